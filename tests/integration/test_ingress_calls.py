"""What one message costs: AWS calls and units, by the ledger of the embedded AWS."""

from __future__ import annotations

from typing import Any

import pytest

from infra.local.aws.recorder import Call
from mesh.kernel.limits import KNOWN_ACTORS_MAX
from mesh.records.install import Engagement
from mesh.storage import keys
from mesh.storage.writes import put
from tests.fakes.door import INSTALL, Door, told, utterance

KNOWN = ["Query", "TransactWriteItems", "SendMessage"]
PAYLOAD_OF_1_KB = utterance(body="x" * 1024)


@pytest.fixture(scope="module")
def shared() -> Door:
    return Door()


@pytest.fixture
def door(shared: Door) -> Door:
    shared.forget_everything()
    shared.install()
    assert shared.say("m-0").status == 202
    shared.clock.forward(1)
    return shared


def _cost(door: Door, **more: Any) -> list[Call]:
    with door.calls() as calls:
        answer = door.post(PAYLOAD_OF_1_KB | more)
    assert answer.status == 202, answer.body
    door.clock.forward(1)
    return calls


def _written(calls: list[Call]) -> float:
    return sum(call.table_write for call in calls)


def _read(calls: list[Call]) -> float:
    return sum(call.read for call in calls)


def test_a_known_actor_in_a_known_conversation_costs_three_calls(door: Door) -> None:
    calls = _cost(door)
    assert told(calls) == KNOWN
    assert _written(calls) <= 14
    assert _read(calls) == 1


def test_an_observed_message_rings_nothing_and_costs_less(door: Door) -> None:
    engaged, observed = _cost(door), _cost(door, message_id="m-2", topology="group")
    assert told(observed) == KNOWN[:2]
    assert _written(observed) < _written(engaged)


def test_a_parent_in_a_group_costs_one_call_more(door: Door) -> None:
    door.system.settle()
    story = door.rows("STORY")[0]["story"]
    door.clock.forward(1)
    calls = _cost(door, topology="group", parent_id=f"out_{story}")
    assert told(calls) == ["Query", "GetItem", "TransactWriteItems", "SendMessage"]
    assert _read(calls) == 2


NEW = {
    "conversation": {"conversation_key": "room-10"},
    "actor of the install": {"actor_id": "u-43"},
    "actor and conversation": {"actor_id": "u-43", "conversation_key": "room-10"},
}


@pytest.mark.parametrize("name", NEW)
def test_what_is_new_costs_five_calls_at_most(door: Door, name: str) -> None:
    calls = _cost(door, **NEW[name])
    _assert_tries(calls)
    assert told(_cost(door, message_id="m-2", **NEW[name])) == KNOWN


def test_an_actor_known_from_another_conversation_costs_five_calls_at_most(door: Door) -> None:
    _cost(door, actor_id="u-43", conversation_key="room-10")
    calls = _cost(door, message_id="m-2", actor_id="u-43")
    _assert_tries(calls)
    assert told(_cost(door, message_id="m-3", actor_id="u-43")) == KNOWN


def _assert_tries(calls: list[Call]) -> None:
    """Five calls at most: look-up, a try that learns, the actor's row, the try that succeeds, ring.

    30 units for the two tries, and 2 for each kilobyte of body in each of them.
    """
    assert len(calls) <= 5, told(calls)
    tries = [call for call in calls if call.operation == "TransactWriteItems"]
    assert len(tries) == 2, told(calls)
    assert _written(calls) <= 30 + 2 * len(tries), [call.table_write for call in tries]
    assert _read(calls) <= 2


def test_each_further_kilobyte_of_body_costs_two_units(door: Door) -> None:
    one = _written(_cost(door, body="x" * 1024))
    nine = _written(_cost(door, message_id="m-2", body="x" * 9 * 1024))
    assert nine - one == 2 * 8


def test_a_duplicate_costs_two_calls(door: Door) -> None:
    _cost(door)
    with door.calls() as calls:
        assert door.post(PAYLOAD_OF_1_KB).status == 200
    assert told(calls) == KNOWN[:2]


def test_a_refused_actor_costs_less_than_a_welcome_one(door: Door) -> None:
    welcome = _written(_cost(door))
    door.install(engagement=Engagement(deny_actors=("bad",)))
    calls = _cost(door, actor_id="bad", message_id="m-2")
    assert told(calls) == KNOWN[:2]
    assert _written(calls) < welcome


def test_a_warm_instance_asks_no_key_service(door: Door) -> None:
    handler = door.cold()
    with door.calls() as first:
        door.post(utterance(message_id="a"), handler=handler)
    door.clock.forward(1)
    with door.calls() as second:
        door.post(utterance(message_id="b"), handler=handler)
    assert [call.service for call in first].count("kms") == 1
    assert [call.service for call in second].count("kms") == 0
    assert told(second) == KNOWN


def test_ten_messages_of_history_or_a_thousand_cost_the_same(door: Door) -> None:
    costs = []
    conversation = keys.conversation_id(INSTALL, "room-9")
    for history in (10, 1_000):
        with_order = door.clock.now_ms() * 1000
        for n in range(history):
            row = {"body": f"line {n}", "role": "utterance", "order": with_order - n}
            door.table.write(put(keys.message(conversation, with_order - n), row))
        door.clock.forward(1)
        passed = door.aws.dynamo.passed
        calls = _cost(door, message_id=f"after {history}")
        costs.append((told(calls), _written(calls), _read(calls), door.aws.dynamo.passed - passed))
    assert costs[0] == costs[1]


def test_a_known_actor_costs_no_more_in_a_crowded_conversation(door: Door) -> None:
    for n in range(20):
        _cost(door, message_id=f"by {n}", actor_id=f"u-{n}")
    calls = _cost(door, message_id="last", actor_id="u-7")
    assert told(calls) == KNOWN
    assert _written(calls) <= 14


def test_a_set_of_known_actors_that_is_full_stays_bounded_and_turns_nobody_away(
    door: Door,
) -> None:
    order = keys.order(keys.conversation_id(INSTALL, "room-9"))
    period = door.table.get(order)["actors"].copy().pop().partition(":")[0]
    full = {f"{period}:{n:014d}" for n in range(KNOWN_ACTORS_MAX)}
    row = {k: v for k, v in door.table.get(order).items() if k not in ("pk", "sk")}
    door.table.write(put(order, row | {"actors": full}))
    for n in range(3):
        calls = _cost(door, message_id=f"crowd {n}", actor_id="u-late")
        assert len(calls) <= 5
        assert len(door.table.get(order)["actors"]) == KNOWN_ACTORS_MAX


def test_a_new_period_of_ten_days_is_noted_once_an_actor(door: Door) -> None:
    door.clock.ms += 10 * 86_400_000
    door.post(utterance(), secret="whsec_no")  # opens the instance key, which is no part of this
    first = _cost(door)
    assert told(first) == ["Query", "TransactWriteItems", "TransactWriteItems", "SendMessage"]
    assert told(_cost(door, message_id="m-2")) == KNOWN
    (row,) = door.rows("ACTOR#")
    assert row["period"] == door.clock.now_ms() // (10 * 86_400_000)
