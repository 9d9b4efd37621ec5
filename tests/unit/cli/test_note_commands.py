"""`mesh note …` on the command line, over the whole system."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.line import Line
from tests.scenarios.test_notes import Notes


def test_notes_are_listed_moved_and_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Notes()
    scene.note("hours", "open from \u202e nine\nand more")
    line = Line(scene.api, tmp_path, capsys)
    at = ("--agent", "grace", "--connector", scene.made.install_id)
    assert line.ok("note", "list", "--agent", "grace") == "nothing here\n"
    out = line.ok("note", "list", *at)
    assert "hours" in out
    assert "\u202e" not in out
    assert max(map(len, out.splitlines())) <= 80
    code, _, err = line("note", "widen", "hours", *at)
    assert (code, "--version" in err) == (2, True)
    code, _, err = line("note", "widen", "hours", *at, "--version", "7")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "in every install" in line.ok("note", "widen", "hours", *at, "--version", "1")
    assert "hours" in line.ok("note", "list", "--agent", "grace", "--jsonl")
    back = line.ok("note", "narrow", "hours", "--agent", "grace", "--version", "2", "--json")
    assert json.loads(back)["install_id"] == scene.made.install_id
    assert "deleted" in line.ok("note", "delete", "hours", *at)
    code, _, err = line("note", "delete", "hours", "--agent", "grace")
    assert (code, len(err.splitlines())) == (1, 1)
    assert scene.notes() == {}
