"""Owns the command line as tests run it: in process, over the whole system's gateway."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from mesh.operator.cli.command import Invocation
from mesh.operator.cli.main import run
from tests.fakes.operators import Api

NETWORK_S = 0.05
"""What a request takes; without it, two things that are made after each other would be of one
moment."""


class GatewayTransport(httpx.BaseTransport):
    """Hands each request to the gateway of a system that a test drives."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._api.system.clock.forward(NETWORK_S)
        target = request.url.raw_path.decode()
        answer = self._api.system.stack.request(
            request.method, target, dict(request.headers), request.read()
        )
        return httpx.Response(answer.status, headers=list(answer.headers), content=answer.body)


@dataclass
class Line:
    """Runs command lines with one token. Where a command waits, the system's time passes."""

    api: Api
    folder: Path
    capsys: pytest.CaptureFixture[str]
    transport: Callable[[Api], httpx.BaseTransport] = field(default=GatewayTransport)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        environ = {
            "MESH_URL": "http://127.0.0.1:8787",
            "MESH_TOKEN": str(self.api.token),
            "MESH_CONFIG_DIR": str(self.folder / "config"),
        }
        invocation = Invocation(
            environ=environ, transport=self.transport(self.api), pause=self._pass
        )
        code = run(arguments, invocation)
        out, err = self.capsys.readouterr()
        return code, out, err

    def ok(self, *arguments: str) -> str:
        """The output of a line that must succeed."""
        code, out, err = self(*arguments)
        assert code == 0, (out, err)
        return out

    def _pass(self, seconds: float) -> Any:
        self.api.system.run(seconds)
