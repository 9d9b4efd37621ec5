"""Every loop has a bound, and what lies behind the bound is reached all the same."""

from __future__ import annotations

from typing import Any

import msgspec

from infra import topology
from mesh.app import Handler, Ports, build
from mesh.control.holds import release_write
from mesh.kernel.limits import MODEL_CALL_S_MAX, TURN_STOP_BEFORE_LIMIT_MS
from mesh.models.contract import ModelAnswer, ModelRequest
from mesh.outbox.entries import replay_write
from mesh.records.agent import Limits
from mesh.records.outbox import Entry
from mesh.storage import keys
from mesh.storage.queues import Bell
from mesh.storage.writes import delete, put, update
from tests.fakes.egress import answer
from tests.fakes.model import says
from tests.fakes.time import SimulatedClock
from tests.simulation.world import World

MANY = 700


def test_a_head_behind_hundreds_of_discarded_entries_is_found() -> None:
    world = World(watching=False, answers=lambda *_: answer(500))
    world.say("A", "a-1")
    world.drain()
    (first,) = world.entries()
    conversation = first["pk"].removeprefix("CONV#")
    last = MANY + 1
    for sequence in range(2, last + 1):
        state = "pending" if sequence == last else "discarded"
        row = {**first, "sequence": sequence, "state": state, "attempts": None, "recent": None}
        world.table.write(put(keys.entry(conversation, sequence), row))
    world.table.write(update(keys.outbox(conversation), "SET #seq = :last", last=last))
    world.receiver.answers = lambda *_: answer(200)
    world.run_until_done(300)
    assert world.entries()[-1]["state"] == "delivered"


def test_a_release_reaches_every_held_conversation_however_many() -> None:
    world = World(watching=False)
    source = keys.held(world.made.install_id)
    for number in range(2 * MANY):
        conversation = keys.conversation_id(world.made.install_id, str(number))
        row = {
            "conversation_id": conversation,
            "install_id": world.made.install_id,
            "agent_id": world.agent.agent_id,
            "seq": 0,
            "due_pk": source,
            "due_at": world.clock.ms,
        }
        world.table.write(put(keys.outbox(conversation), row))
    world.table.write(release_write(keys.install(world.made.install_id), source, world.clock.ms))
    world.clock.ms += 3_600_000  # no sweep ran while the release was young
    world.run_until_done(900)
    assert not [row for row in world.rows().values() if row.get("due_pk") == source]


def test_a_row_that_cannot_be_read_hides_no_other_from_the_sweep() -> None:
    world = World(watching=False)
    world.hooks.lose = lambda site: site.function != "sweep_due"
    for shard in range(64):
        row = {"due_pk": keys.due_shard(shard), "due_at": 1, "seq": "of another release"}
        world.table.write(put(keys.outbox(f"unreadable-{shard}"), row))
    world.say("A", "a-1")
    world.run(400)
    world.check_replies()


def test_a_replay_whose_reply_was_deleted_ends() -> None:
    world = World(watching=False)
    world.say("A", "a-1")
    world.drain()
    (row,) = world.entries()
    entry = msgspec.convert(row, Entry)
    (story,) = [row for (_, sk), row in world.rows().items() if sk == "STORY"]
    conversation = story["conversation_id"]
    world.table.write(delete(keys.message(conversation, entry.reply_order)))
    world.table.write(replay_write(conversation, entry, world.clock.ms))
    bell = Bell(world.clients.sqs, world.settings.queue_urls, world.ids)
    bell.delivery(conversation, replay=entry.story, recovery=0)
    world.run(600)
    assert keys.replay(entry.story) not in world.rows()


class SlowModel:
    """Takes as long as a call may take."""

    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock

    def answer(self, request: ModelRequest, timeout_s: float) -> ModelAnswer:
        self._clock.sleep(timeout_s)
        return says(f"after {timeout_s} s: {request.question}")


def test_no_model_call_outlasts_its_function_and_none_is_taken_over_while_it_runs() -> None:
    invocations: list[float] = []

    def slow(name: str, ports: Ports) -> Handler:
        if name != "turn_worker":
            return build(name, ports)
        model = SlowModel(world.clock)
        handler = build(name, msgspec.structs.replace(ports, models=lambda _: model))

        def timed(event: Any, context: Any) -> dict[str, Any]:
            began = world.clock.ms
            answered = handler(event, context)
            invocations.append((world.clock.ms - began) / 1000)
            return answered

        return timed

    world = World(handler=slow, sweeping=False, limits=Limits(queue_seconds=86_400))
    for number in range(1, 10):
        world.say("A", f"a-{number}")
    world.run_until_done(1200)
    world.check()
    assert max(invocations) <= topology.TURN_TIMEOUT_S - TURN_STOP_BEFORE_LIMIT_MS / 1000 + 5
    assert sum(seconds > MODEL_CALL_S_MAX for seconds in invocations) > 1, "it handed over"
