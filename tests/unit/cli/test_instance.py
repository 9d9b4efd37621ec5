"""`mesh instance` and an agent's retention: what is named changes, and a secret is shown once."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.test_commands import AGENT, Api, Line, error, one_line

SETTINGS = "/api/instance/settings"
HOOK = "https://hooks.example/canary-of-a-url"
SHOWN: dict[str, Any] = {
    "allow_hosts": ["*.example"],
    "operator_webhook_url": "https://hooks.example/… 0011",
    "retention_days": 30,
    "retention_days_default": 90,
    "version": 4,
    "webhook_secret": None,
    "model_keys": [{"kind": "openai", "version": 2, "updated_at": "2026-11-30T06:00:00.000Z"}],
}


@pytest.fixture
def api() -> Api:
    return Api().on(f"GET {SETTINGS}", 200, SHOWN).on(f"PUT {SETTINGS}", 200, SHOWN)


@pytest.fixture
def mesh(api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Line:
    return Line(api, tmp_path, capsys)


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_the_settings_are_shown_with_the_model_keys_that_there_are(mesh: Line) -> None:
    code, out, _ = mesh("instance", "show")
    assert code == 0
    for text in ("*.example", "https://hooks.example/… 0011", "30 days", "model key openai"):
        assert text in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert json.loads(mesh("instance", "show", "--json")[1]) == SHOWN


KEPT = {"allow_hosts": ["*.example"], "retention_days": 30, "version": 4}


@pytest.mark.parametrize(
    ("line", "body"),
    [
        (
            ("--allow-host", "a.test", "--allow-host", "b.test:8443"),
            {"allow_hosts": ["a.test", "b.test:8443"]},
        ),
        (("--clear-allow-hosts",), {"allow_hosts": []}),
        (("--retention-days", "7"), {"retention_days": 7}),
        (("--retention-days", "default"), {"retention_days": None}),
        (("--clear-webhook",), {"operator_webhook_url": None}),
    ],
)
def test_what_is_named_changes_and_nothing_else(
    mesh: Line, api: Api, line: tuple[str, ...], body: dict[str, Any]
) -> None:
    assert mesh("instance", "set", *line)[0] == 0
    assert api.body() == KEPT | body


def test_a_webhook_comes_from_standard_input_and_its_secret_is_shown_once(
    mesh: Line, api: Api, piped: Callable[[str], None]
) -> None:
    api.on(f"PUT {SETTINGS}", 200, SHOWN | {"webhook_secret": "whsec_shown"})
    piped(HOOK + "\n")
    code, out, err = mesh("instance", "set", "--webhook-url-stdin")
    assert (code, api.body()) == (0, KEPT | {"operator_webhook_url": HOOK})
    assert "whsec_shown" in out
    assert "shown once" in out
    assert HOOK not in out + err


@pytest.mark.parametrize(
    "line",
    [
        (),
        ("--allow-host", "a.test", "--clear-allow-hosts"),
        ("--webhook-url-stdin", "--clear-webhook"),
        ("--retention-days", "soon"),
        ("--retention-days", "-1"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_asked(
    mesh: Line, api: Api, line: tuple[str, ...]
) -> None:
    code, out, err = mesh("instance", "set", *line)
    assert (code, out, api.requests) == (2, "", [])
    one_line(err)


def test_a_change_that_came_between_is_told_in_one_line(mesh: Line, api: Api) -> None:
    api.on(f"PUT {SETTINGS}", 409, error("version_conflict", "the settings are at version 5"))
    code, _, err = mesh("instance", "set", "--clear-allow-hosts")
    assert code == 1
    assert "look with `show`" in one_line(err)


def test_a_model_key_is_piped_in_kept_and_forgotten_and_never_shown(
    mesh: Line, api: Api, piped: Callable[[str], None]
) -> None:
    path = "/api/instance/model-keys/openai"
    kept = {
        "credential_present": True,
        "kept_for": "openai https://api.openai.com",
        "version": 1,
        "updated_at": "2026-11-30T06:00:00.000Z",
    }
    api.on(f"PUT {path}", 200, kept).on(f"DELETE {path}", 204, None)
    piped("canary-of-a-key\n")
    code, out, err = mesh("instance", "model-key", "set", "openai", "--key-stdin")
    assert (code, api.body()) == (0, {"value": "canary-of-a-key"})
    assert "openai https://api.openai.com" in out
    assert "canary" not in out + err
    assert mesh("instance", "model-key", "delete", "openai")[0] == 0
    assert mesh("instance", "model-key", "set", "bedrock", "--key-stdin")[0] == 2


def test_an_agents_retention_is_set_and_otherwise_kept(mesh: Line, api: Api) -> None:
    agent = AGENT | {"retention_days": 12}
    api.on("GET /api/agents/ada", 200, agent).on("PUT /api/agents/ada", 200, agent)
    for line, expected in (
        (("--name", "A"), 12),
        (("--retention-days", "5"), 5),
        (("--retention-days", "default"), None),
    ):
        assert mesh("agent", "update", "ada", *line)[0] == 0
        assert api.body()["retention_days"] == expected
    assert "12 days" in mesh("agent", "show", "ada")[1]


@pytest.mark.parametrize(
    ("source", "text"), [("agent", "kept"), ("instance", "the instance's"), (None, "\N{EN DASH}")]
)
def test_an_agent_tells_whose_model_key_it_has(
    mesh: Line, api: Api, source: str | None, text: str
) -> None:
    model = AGENT["model"] | {"credential_source": source}  # type: ignore[operator]
    api.on("GET /api/agents/ada", 200, AGENT | {"model": model})
    (line,) = [x for x in mesh("agent", "show", "ada")[1].splitlines() if "model key" in x]
    assert line.removeprefix("model key").strip() == text
