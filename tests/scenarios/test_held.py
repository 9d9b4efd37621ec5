"""Time on hold counts to no age, whatever dies afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.kernel.clock import DAY_MS
from mesh.storage import keys
from tests.fakes.egress import Call
from tests.fakes.system import Reply, System, answer


class Killed(BaseException):
    """The process ends here."""


def dies(_: Call) -> Reply:
    raise Killed


def operate(system: System, token: str, path: str, body: bytes = b"") -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    reply = system.stack.request("POST", f"/api/{path}", headers, body)
    assert reply.status == 200, reply.body
    shown: dict[str, Any] = reply.json()
    return shown


def test_an_entry_that_was_held_for_long_outlives_a_worker_that_dies_with_it() -> None:
    system = System()
    token = system.stack.bootstrap()
    made = system.make_install()
    system.say(made, "Hello")
    assert system.stack.poll_once("turns")
    install = f"connectors/{made.install_id}"
    assert operate(system, token, f"{install}/disable")["state"] == "disabled"
    system.run(120)
    assert system.delivered() == []

    system.clock.forward(8 * DAY_MS / 1000)
    system.receiver(dies, answer(204))
    shown = operate(system, token, f"{install}/enable", b'{"skip_ping":true}')
    assert shown["state"] == "enabled"
    with pytest.raises(Killed):
        system.run(120)
    system.run(300)

    (entry,) = system.rows(keys.ENTRY)
    assert (entry["state"], entry.get("state_reason")) == ("delivered", None)
    assert [attempt["end"] for attempt in entry["recent"]] == ["unknown", "delivered"]
    assert [call.headers["X-Mesh-Attempt"] for call in system.calls()] == ["1", "2"]


def test_what_waited_for_an_agent_goes_on_with_the_answer_and_not_with_the_next_sweep() -> None:
    system = System()
    token = system.stack.bootstrap()
    made = system.make_install()
    for number in range(3):
        system.say(made, "Hello", f"m-{number}", conversation_key=f"room-{number}")
    assert operate(system, token, "agents/ada/pause")["status"] == "paused"
    system.run(300)
    assert system.delivered() == []

    assert operate(system, token, "agents/ada/resume")["status"] == "active"
    system.settle()  # no time passes, and no schedule ticks
    assert sorted(body["in_reply_to"] for body in system.delivered()) == ["m-0", "m-1", "m-2"]
