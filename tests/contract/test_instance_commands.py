"""The commands that `docs/operating.md` names for what every agent shares, each run as it is."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest

from mesh.operator.cli.command import Invocation
from mesh.operator.cli.main import run
from tests.fakes.operators import Api, admin
from tests.fakes.system import System

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operating.md").read_text()
SECTION = PAGE[PAGE.index("## What every agent shares") : PAGE.index("## States")]
COMMANDS = [
    command
    for command in re.findall(r"`(mesh [^`]+)`", SECTION)
    if command not in ("mesh agent show", "mesh instance set")
]


class Line:
    """`mesh`, over the whole system's gateway."""

    def __init__(self, system: System, api: Api, capsys: pytest.CaptureFixture[str]) -> None:
        self._system = system
        self._capsys = capsys
        self._environ = {"MESH_URL": "http://127.0.0.1:8787", "MESH_TOKEN": api.token or ""}

    def __call__(self, command: str) -> Any:
        """The document of a command that must succeed."""
        transport = httpx.MockTransport(self._answer)
        line = [*shlex.split(command)[1:], "--json"]
        code = run(line, Invocation(environ=self._environ, transport=transport))
        out, err = self._capsys.readouterr()
        assert (code, err) == (0, ""), command
        return json.loads(out)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        target = request.url.raw_path.decode()
        headers = dict(request.headers)
        answer = self._system.stack.request(request.method, target, headers, request.content)
        return httpx.Response(answer.status, content=answer.body)


def test_every_command_of_the_page_does_what_the_page_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System()
    api = admin(system)
    api.ok("POST", "/api/agents", {"slug": "slug"})
    mesh = Line(system, api, capsys)
    assert len(COMMANDS) >= 8
    for command in COMMANDS:
        secret = "https://api.example.com/hook" if "webhook" in command else "canary-of-a-key"
        monkeypatch.setattr("sys.stdin", io.StringIO(secret))
        mesh(command.replace("SLUG", "slug"))
    shown = mesh("mesh instance show")
    assert shown["allow_hosts"] == ["api.example.com", "*.example.org:8443"]
    assert (shown["retention_days"], shown["operator_webhook_url"]) == (60, None)
    assert shown["model_keys"] == []
    assert api.ok("GET", "/api/agents/slug")["retention_days"] == 30
    assert {row["action"] for row in api.every("/api/audit")} >= {
        "instance.update",
        "model_key.put",
        "model_key.delete",
    }
