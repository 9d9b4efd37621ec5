"""Owns the web access of an instance as tests of the operator API set it and read it."""

from __future__ import annotations

from typing import Any

from mesh.control.connections import read_grants
from mesh.records.connection import Capability
from tests.fakes.operators import admin, error_of, minted
from tests.fakes.system import System

KEY = "canary-k9Zq4Tt7Wm2Xc8Vb1Nh5"
OTHER = "canary-r3Ld6Fs0Gj4Kp9Yu2Ei7"
ACCOUNT = "0123456789abcdef" * 2
LIMITS = {"requests_per_minute": 60, "requests_per_run": 20}
BASES = ("/api/web-access", "/api/agents/bob/web-access")


class WebInstance:
    """An instance with two agents, and tokens of each role that reach the first."""

    def __init__(self) -> None:
        self.system = System()
        self.admin = admin(self.system)
        self.agent_id = self.admin.ok("POST", "/api/agents", {"slug": "bob"})["agent_id"]
        self.operator = minted(self.admin, "operator", ["bob"])
        self.viewer = minted(self.admin, "viewer", ["bob"])

    def get(self, base: str = BASES[0], capability: str = "search") -> Any:
        one = self.viewer.ok("GET", f"{base}/{capability}")
        every = self.viewer.ok("GET", base)["capabilities"]
        assert one in every
        assert [each["capability"] for each in every] == [each.value for each in Capability]
        return one

    def put(self, base: str = BASES[0], capability: str = "search", **body: Any) -> Any:
        """A change at the version that stands. What comes of it is what `GET` shows then."""
        settings = self.get(base, capability)["settings"]
        version = 0 if settings is None else settings["version"]
        put = self.admin.ok("PUT", f"{base}/{capability}", {"version": version} | body)
        assert put == self.get(base, capability)
        assert put["settings"]["version"] == version + 1
        return put

    def connect(self, base: str = BASES[0], provider: str = "brave", **more: Any) -> Any:
        given = {"mode": "custom", "provider": provider, "limits": LIMITS, "api_key": KEY}
        return self.put(base, **(given | more))

    def problems(self, base: str, capability: str = "search", **body: Any) -> dict[str, str]:
        """What is wrong with a change that must be refused, by field."""
        response = self.admin("PUT", f"{base}/{capability}", {"version": 0} | body)
        assert (response.status, error_of(response)) == (422, "invalid_request"), response.body
        return {each["path"]: each["problem"] for each in response.json()["error"]["fields"]}

    def grant(self, capability: Capability = Capability.SEARCH) -> Any:
        return read_grants(self.system.table, self.agent_id, [capability])[capability]


def kept(shown: Any) -> list[str]:
    """Of which providers the owner has a key."""
    return [each["provider"] for each in shown["kept_keys"]]
