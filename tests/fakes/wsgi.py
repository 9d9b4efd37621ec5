"""Owns the system's gateway as a WSGI application, so that other people's clients can call it.

Refuses sockets: a request is answered in the thread that sends it, by the functions that are
deployed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from tests.fakes.system import System


class Wsgi:
    """One system's gateway under PEP 3333."""

    def __init__(self, system: System) -> None:
        self._system = system

    def __call__(
        self, environ: Mapping[str, Any], start_response: Callable[..., object]
    ) -> Iterable[bytes]:
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").title(): str(value)
            for name, value in environ.items()
            if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
        }
        response = self._system.stack.request(
            environ["REQUEST_METHOD"],
            _target(environ),
            {name: value for name, value in headers.items() if value},
            environ["wsgi.input"].read(),
        )
        try:
            reason = HTTPStatus(response.status).phrase
        except ValueError:
            reason = "Unknown"
        start_response(f"{response.status} {reason}", list(response.headers))
        return [response.body]


def _target(environ: Mapping[str, Any]) -> str:
    """Path and query as they were sent; the path is encoded anew where the server tells only what
    it decoded."""
    path: str = environ.get("RAW_URI") or quote(environ.get("PATH_INFO", "").encode("latin-1"))
    query = environ.get("QUERY_STRING")
    return f"{path}?{query}" if query and "?" not in path else path
