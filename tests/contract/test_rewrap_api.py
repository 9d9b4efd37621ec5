"""The rotation of the master key through the operator API: who may, and what is told."""

from __future__ import annotations

from tests.fakes.operators import admin, error_of, minted
from tests.fakes.system import System

REWRAP = "/api/instance/rewrap"


def test_a_rewrap_is_an_admins_and_tells_how_far_it_is() -> None:
    system = System()
    system.make_install()
    api = admin(system)
    idle = api.ok("GET", REWRAP)
    assert (idle["status"], idle["done"], idle["total"], idle["started_at"]) == ("idle", 0, 0, None)
    api.ok("PUT", "/api/agents/ada/vault/github", {"value": "canary-kept"})
    ended = api("POST", REWRAP)
    assert ended.status == 200
    state = ended.json()
    assert (state["status"], state["done"], state["total"]) == ("done", 2, 2)
    assert (state["rewrapped"], state["unopenable"]) == (2, 0)
    assert state["ended_at"] >= state["started_at"]
    assert api.ok("GET", REWRAP) == state
    assert api("POST", REWRAP, {"what": 1}).status == 422
    for role in ("operator", "viewer"):
        other = minted(api, role, ["ada"])
        for method in ("GET", "POST"):
            assert error_of(other(method, REWRAP)) == "forbidden"
    rows = api.every("/api/audit?action=instance.rewrap")
    assert {row["target"] for row in rows} == {"instance"}


def test_a_message_is_taken_in_before_and_after_a_rewrap() -> None:
    system = System()
    made = system.make_install()
    api = admin(system)
    assert system.say(made, "hello", "m-1").status == 202
    api.ok("POST", REWRAP)
    system.clock.forward(360)  # longer than a function keeps the key that opens secrets
    assert system.say(made, "hello", "m-2").status == 202
