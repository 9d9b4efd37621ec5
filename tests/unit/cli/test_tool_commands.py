"""`mesh tool` on the command line: what is offered and why not, and one call by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.test_commands import Api, Line, error, one_line

TOOLS = "/api/agents/ada/tools"
NOTE = {
    "name": "note",
    "class": "effect",
    "package": "note",
    "description": "Keep something in mind.",
    "enabled": False,
    "offered": False,
    "reason": "disabled",
    "acting": "agent",
    "payer": None,
    "version": 2,
}
PROBED = {
    "run_id": "run_01JDXW5Y9ZK3V7Q2M8N4P6R0ST",
    "tool": "note",
    "observation_kind": "result",
    "text": "kept\x1b[31m\nline two",
    "provenance": {"origin": "conversations"},
    "sources": [],
    "acting": "agent",
    "payer": None,
    "started_at": "2026-11-30T05:42:35.123Z",
    "ended_at": "2026-11-30T05:42:35.223Z",
}


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def mesh(api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Line:
    return Line(api, tmp_path, capsys)


def test_the_list_says_of_each_tool_whether_it_is_offered_and_why_not(mesh: Line, api: Api) -> None:
    api.on(f"GET {TOOLS}", 200, {"items": [NOTE], "next_cursor": None})
    code, out, err = mesh("tool", "list", "--agent", "ada")
    assert (code, err) == (0, "")
    assert "disabled" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    _, document, _ = mesh("tool", "list", "--agent", "ada", "--json")
    assert json.loads(document)["items"] == [NOTE]


def test_a_tool_is_put_over_the_version_that_stands(mesh: Line, api: Api) -> None:
    api.on(f"GET {TOOLS}", 200, {"items": [NOTE], "next_cursor": None})
    api.on(f"PUT {TOOLS}/note", 200, NOTE | {"enabled": True, "offered": True, "version": 3})
    code, _, err = mesh("tool", "enable", "note", "--agent", "ada")
    assert (code, err, api.body()) == (0, "", {"enabled": True, "version": 2})
    code, _, err = mesh("tool", "disable", "nothing", "--agent", "ada")
    assert code == 1
    assert "mesh tool list --agent ada" in one_line(err)


def test_a_probe_shows_what_came_back_as_text_alone(mesh: Line, api: Api) -> None:
    api.on(f"POST {TOOLS}/note/probe", 200, PROBED)
    given = ("--arguments", '{"name": "x"}', "--connector", "ins_1")
    code, out, err = mesh("tool", "probe", "note", "--agent", "ada", *given)
    assert (code, err) == (0, "")
    assert api.body() == {"arguments": {"name": "x"}, "install_id": "ins_1"}
    assert "\x1b" not in out
    assert "line two" in out


def test_a_probe_that_came_to_nothing_is_no_success(mesh: Line, api: Api) -> None:
    api.on(f"POST {TOOLS}/note/probe", 200, PROBED | {"observation_kind": "failed"})
    code, _, _ = mesh("tool", "probe", "note", "--agent", "ada")
    assert code == 1


@pytest.mark.parametrize("given", ["{", "[]", "3"])
def test_arguments_that_are_no_object_are_bad_usage(mesh: Line, given: str) -> None:
    code, _, err = mesh("tool", "probe", "note", "--agent", "ada", "--arguments", given)
    assert code == 2
    assert "--arguments" in one_line(err)


def test_what_the_instance_refuses_is_one_line(mesh: Line, api: Api) -> None:
    api.on(f"POST {TOOLS}/note/probe", 409, error("state_conflict", "the tool is not offered"))
    code, _, err = mesh("tool", "probe", "note", "--agent", "ada")
    assert code == 1
    assert "not offered" in one_line(err)
