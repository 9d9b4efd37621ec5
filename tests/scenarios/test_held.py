"""Time on hold counts to no age, whatever dies afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.kernel.clock import DAY_MS
from mesh.storage import keys
from tests.fakes.egress import Call
from tests.fakes.system import Made, Reply, System, answer


class Killed(BaseException):
    """The process ends here."""


def dies(_: Call) -> Reply:
    raise Killed


def operate(system: System, token: str, made: Made, action: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    path = f"/api/connectors/{made.install_id}/{action}"
    body = b'{"skip_ping":true}' if action == "enable" else b""
    reply = system.stack.request("POST", path, headers, body)
    assert reply.status == 200, reply.body
    shown: dict[str, Any] = reply.json()
    return shown


def test_an_entry_that_was_held_for_long_outlives_a_worker_that_dies_with_it() -> None:
    system = System()
    token = system.stack.bootstrap()
    made = system.make_install()
    system.say(made, "Hello")
    assert system.stack.poll_once("turns")
    assert operate(system, token, made, "disable")["state"] == "disabled"
    system.run(120)
    assert system.delivered() == []

    system.clock.forward(8 * DAY_MS / 1000)
    system.receiver(dies, answer(204))
    assert operate(system, token, made, "enable")["state"] == "enabled"
    with pytest.raises(Killed):
        system.run(120)
    system.run(300)

    (entry,) = system.rows(keys.ENTRY)
    assert (entry["state"], entry.get("state_reason")) == ("delivered", None)
    assert [attempt["end"] for attempt in entry["recent"]] == ["unknown", "delivered"]
    assert [call.headers["X-Mesh-Attempt"] for call in system.calls()] == ["1", "2"]
