"""`mesh outbox replay|discard`: of one entry, or of many of a connector."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.test_commands import INSTALL, Api, Line, api, mesh, one_line

__all__ = ["api", "mesh"]

JOB = {
    "job_id": "job_1",
    "kind": "outbox.replay",
    "target": INSTALL,
    "status": "running",
    "reason": None,
    "done": 0,
    "started_at": "2026-11-30T05:42:35.123Z",
    "ended_at": None,
}
MANY = f"POST /api/connectors/{INSTALL}/outbox"


@pytest.mark.parametrize(("action", "see"), [("replay", "explain"), ("discard", "outbox attempts")])
def test_one_entry_is_named_by_its_id(mesh: Line, api: Api, action: str, see: str) -> None:
    api.on(f"POST /api/outbox/out_1/{action}", 202, {"outbound_id": "out_1"})
    code, out, _ = mesh("outbox", action, "out_1")
    assert code == 0
    assert out.splitlines()[-1] == f"next: mesh {see} out_1"
    assert json.loads(mesh("outbox", action, "out_1", "--json")[1]) == {"outbound_id": "out_1"}


def test_many_are_chosen_by_connector_state_and_time(mesh: Line, api: Api) -> None:
    api.on(f"{MANY}/replay", 202, JOB)
    since, until = "2026-11-29T00:00:00Z", "2026-11-30T00:00:00Z"
    chosen = ("--status", "dead", "--status", "discarded", "--since", since, "--until", until)
    code, out, _ = mesh("outbox", "replay", "--connector", INSTALL, *chosen, "--yes")
    assert code == 0
    assert "mesh job wait job_1" in out
    assert json.loads(api.requests[-1].content) == {
        "status": ["dead", "discarded"],
        "since": since,
        "until": until,
    }


def test_what_is_left_out_is_the_apis_to_say(mesh: Line, api: Api) -> None:
    api.on(f"{MANY}/discard", 202, JOB)
    assert mesh("outbox", "discard", "--connector", INSTALL, "--yes")[0] == 0
    assert json.loads(api.requests[-1].content) == {}


@pytest.mark.parametrize(("status", "code"), [("done", 0), ("failed", 1)])
def test_it_can_be_waited_for(mesh: Line, api: Api, status: str, code: int) -> None:
    api.on(f"{MANY}/replay", 202, JOB)
    api.on("GET /api/jobs/job_1", 200, JOB | {"status": status, "done": 7})
    line = ("outbox", "replay", "--connector", INSTALL, "--yes", "--wait", "--json")
    ended, out, _ = mesh(*line)
    shown: dict[str, Any] = json.loads(out)
    assert (ended, shown["status"], shown["done"]) == (code, status, 7)


@pytest.mark.parametrize("action", ["replay", "discard"])
def test_without_a_terminal_to_ask_many_need_yes(mesh: Line, api: Api, action: str) -> None:
    code, _, err = mesh("outbox", action, "--connector", INSTALL)
    assert (code, api.requests) == (2, [])
    assert "--yes" in one_line(err)


@pytest.mark.parametrize(
    "line",
    [
        ("replay",),
        ("discard", "--yes"),
        ("replay", "out_1", "--connector", INSTALL),
        ("replay", "out_1", "--status", "dead"),
        ("discard", "out_1", "--wait"),
        ("discard", "--connector", INSTALL, "--status", "dead", "--yes"),
        ("replay", "--connector", INSTALL, "--status", "pending", "--yes"),
    ],
)
def test_one_or_many_and_not_both(mesh: Line, api: Api, line: tuple[str, ...]) -> None:
    code, _, err = mesh("outbox", *line)
    assert (code, api.requests) == (2, [])
    one_line(err)
