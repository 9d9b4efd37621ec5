"""Owns the operator API as tests call it: over the whole system's gateway, with a token."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from infra.local.gateway import Response
from tests.fakes.system import System


@dataclass
class Api:
    """Calls of one token. A POST gets an Idempotency-Key of its own unless one is given."""

    system: System
    token: str | None

    def __call__(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        key: str | None = None,
        raw: bytes | None = None,
        content_type: str | None = "application/json",
        headers: dict[str, str] | None = None,
    ) -> Response:
        sent = dict(headers or {})
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if data and content_type is not None:
            sent["Content-Type"] = content_type
        if method == "POST" and "Idempotency-Key" not in sent:
            sent["Idempotency-Key"] = key or self.system.ids.ulid()
        return self.system.stack.request(method, target, sent, data)

    def ok(self, method: str, target: str, body: Any = None, **more: Any) -> Any:
        """The document of an answer that must be a success."""
        response = self(method, target, body, **more)
        assert response.status < 300, (response.status, response.body)
        return response.json() if response.body else None

    def every(self, target: str) -> list[Any]:
        """All items of a list, page by page."""
        found: list[Any] = []
        cursor = ""
        while True:
            page = self.ok("GET", f"{target}{'&' if '?' in target else '?'}limit=2{cursor}")
            found += page["items"]
            if page["next_cursor"] is None:
                return found
            cursor = f"&cursor={page['next_cursor']}"


def admin(system: System) -> Api:
    """Calls of an admin."""
    return Api(system, system.stack.bootstrap())


def minted(by: Api, role: str, agents: list[str] | None = None) -> Api:
    """Calls of a fresh token of that role."""
    body: dict[str, Any] = {"name": role, "role": role}
    if agents is not None:
        body["agents"] = agents
    return Api(by.system, by.ok("POST", "/api/operators", body)["token"])


def error_of(response: Response) -> str:
    """The stable code of a refusal."""
    code: str = response.json()["error"]["code"]
    return code
