"""Plans and simulations on the command line: what is asked, what is printed, how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.test_commands import INSTALL, Api, Line, api, mesh

__all__ = ["api", "mesh"]

PLAN = {
    "install_id": INSTALL,
    "state": "disabled",
    "state_reason": None,
    "enable": {
        "steps": [{"name": "ping", "description": "post a signed ping", "done": False}],
        "next": f"mesh connector enable {INSTALL} runs: ping",
    },
    "disable": {
        "steps": [{"name": "close", "description": "refuse every message", "done": True}],
        "in_flight": 1,
        "in_flight_until": "2026-11-30T05:42:35.123Z",
        "waiting": 2,
    },
}
FOUND: dict[str, Any] = {
    "outcome": "accepted",
    "status": 202,
    "error": None,
    "closed": None,
    "verdict": "engage",
    "reason": "mentioned",
    "rule": "engagement.policy",
    "text": "the message mentions the agent's handle",
    "starts_run": True,
    "duplicate_of": None,
    "message_id": "m",
    "conversation_id": "conv_1",
}
REFUSED = FOUND | {
    "outcome": "refused",
    "status": 422,
    "verdict": None,
    "text": "the caller would be refused",
    "error": {
        "status": 422,
        "code": "invalid_payload",
        "message": "the payload is not valid",
        "fields": [{"path": "tools", "problem": "is not known"}],
    },
    "closed": {"status": 403, "code": "connector_disabled", "message": "ask", "fields": []},
}
SIMULATE = f"POST /api/connectors/{INSTALL}/simulate"


def test_a_plan_is_printed_step_by_step(mesh: Line, api: Api) -> None:
    api.on(f"POST /api/connectors/{INSTALL}/plan", 200, PLAN)
    code, out, _ = mesh("connector", "plan", INSTALL, "--skip-ping")
    assert code == 0
    assert api.body() == {"skip_ping": True}
    for text in ("ping", "post a signed ping", "close", "in flight", "runs: ping"):
        assert text in out
    assert json.loads(mesh("connector", "plan", INSTALL, "--json")[1]) == PLAN


def test_a_payload_in_a_file_is_sent_byte_for_byte(mesh: Line, api: Api, tmp_path: Path) -> None:
    api.on(SIMULATE, 200, FOUND)
    file = tmp_path / "payload.json"
    file.write_bytes(b'{"a":1,"a":\xff}')
    code, out, _ = mesh("connector", "simulate", INSTALL, str(file), "--cloudevent")
    assert code == 0
    assert api.requests[0].content == b'{"a":1,"a":\xff}'
    assert api.requests[0].headers["content-type"] == "application/cloudevents+json"
    assert "engagement.policy" in out
    assert mesh("connector", "simulate", INSTALL, "--text", "hi", "--cloudevent")[0] == 2
    assert len(api.requests) == 1


def test_a_message_can_be_made_up(mesh: Line, api: Api) -> None:
    api.on(SIMULATE, 200, FOUND)
    given = ("--text", "hi @ada", "--actor", "u-1", "--topology", "group", "--parent", "out_1")
    assert mesh("connector", "simulate", INSTALL, *given, "--json")[0] == 0
    sent = api.body()
    assert sent.pop("message_id").startswith("simulated-")
    assert sent == {
        "conversation_key": "cli",
        "actor_id": "u-1",
        "body": "hi @ada",
        "topology": "group",
        "parent_id": "out_1",
    }


def test_what_would_be_refused_exits_with_1_and_names_the_fields(
    mesh: Line, api: Api, tmp_path: Path
) -> None:
    api.on(SIMULATE, 200, REFUSED)
    code, out, _ = mesh("connector", "simulate", INSTALL, "--text", "x")
    assert code == 1
    assert "422 invalid_payload" in out
    assert "tools: is not known" in out
    assert "403 connector_disabled" in out
    file = tmp_path / "payload.json"
    file.write_text("{}")
    assert mesh("connector", "simulate", INSTALL, str(file), "--text", "x")[0] == 2


def test_a_payload_is_read_from_standard_input(
    mesh: Line, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in"
    file.write_bytes(b"{}")
    api.on(SIMULATE, 200, FOUND)
    with file.open(encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert mesh("connector", "simulate", INSTALL)[0] == 0
    assert api.requests[0].content == b"{}"
