"""The main job: a signed utterance in, a gated turn, an ordered signed reply out."""

from __future__ import annotations

import json

from tests.fakes.system import System


def test_a_signed_utterance_is_answered_by_a_signed_push() -> None:
    system = System()
    made = system.make_install()
    response = system.say(made, "hello")
    assert response.status == 202, response.body
    accepted = response.json()
    assert accepted["status"] == "accepted"
    assert accepted["message_id"] == "m-1"
    assert accepted["engagement"] == {"verdict": "engage", "reason": "direct_message"}
    system.settle()
    (call,) = system.calls()
    reply = json.loads(call.body)
    assert reply["sequence"] == 1
    assert reply["in_reply_to"] == "m-1"
    assert reply["run_id"] == accepted["run_id"]
    assert "hello" in reply["body"]
    assert system.verifies(made, call)
