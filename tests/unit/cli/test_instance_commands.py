"""`mesh doctor` and `mesh restore finish`: what is said, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.line import Line
from tests.fakes.operators import Api, admin
from tests.fakes.system import System


@pytest.fixture
def mesh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Line:
    system = System()
    system.stack.tick()
    api = admin(system)
    api.ok("POST", "/api/operators", {"name": "second", "role": "admin"})
    return Line(api, tmp_path, capsys)


def test_the_doctor_finds_nothing_and_says_so(mesh: Line) -> None:
    assert mesh.ok("doctor") == "nothing found\n"
    assert json.loads(mesh.ok("doctor", "--json")) == {"findings": [], "errors": 0}


def test_what_the_doctor_finds_fits_a_terminal_and_errors_come_first(mesh: Line) -> None:
    api: Api = mesh.api
    api.ok("POST", "/api/agents/ada/pause")
    body = {"slug": "bob", "model": {"kind": "openai", "name": "m"}}
    api.ok("POST", "/api/agents", body)
    code, out, _ = mesh("doctor")
    assert code == 1
    assert out.splitlines()[0] == "error  model_key_missing  bob"
    assert "  then: mesh agent update bob --model-key-stdin" in out.splitlines()
    assert out.splitlines()[-1] == "1 error, 1 note"
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = mesh("doctor", "--json")
    document = json.loads(out)
    assert (code, document["errors"]) == (1, 1)
    assert [each["severity"] for each in document["findings"]] == ["error", "note"]
    api.ok("PUT", "/api/agents/bob/model-key", {"value": "canary-model-key"})
    assert mesh("doctor")[0] == 0, "a note is no error"


def test_a_restore_is_finished_only_with_a_yes_and_says_what_comes_next(mesh: Line) -> None:
    made = mesh.api.system.make_install()
    code, _, err = mesh("restore", "finish")
    assert code == 2
    assert err.rstrip().endswith("give --yes")
    assert mesh.api.system.install(made.install_id).state == "enabled"
    out = mesh.ok("restore", "finish", "--yes", "--wait")
    assert "done" in out
    assert "next: mesh doctor" in out
    assert mesh.api.system.install(made.install_id).state == "disabled"
    assert json.loads(mesh.ok("restore", "finish", "--yes", "--json"))["status"] == "running"
