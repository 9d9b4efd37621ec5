"""An agent works on as many conversations at once as it may; the others wait, and none for ever."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from infra.local.aws import Faults
from mesh.engine.slots import NoSlot, Slot, Slots
from mesh.kernel.limits import LEASE_GRACE_MS, LEASE_MS
from mesh.records.agent import Limits
from mesh.storage import keys
from mesh.storage.queues import Bell
from tests.simulation.deaths import Place, die_at, once_each
from tests.simulation.direct import Site
from tests.simulation.interleaver import Interleaver, Trouble
from tests.simulation.world import CAUSE, World

LEASE_OVER_S = (LEASE_MS + LEASE_GRACE_MS) / 1000


def one_at_once(**more: Any) -> World:
    return World(limits=Limits(runs_at_once=1, queue_seconds=86_400), **more)


def slots_of(world: World) -> Slots:
    """Slots as a worker that stands still takes them."""
    bell = Bell(world.clients.sqs, world.settings.queue_urls, world.ids)
    return Slots(world.table, world.clock, world.ids, bell)


def busy(world: World, name: str = "elsewhere") -> Slot:
    return slots_of(world).take(world.agent, name)


def running(world: World) -> dict[str, Any]:
    return world.rows()[keys.running(world.agent.agent_id)]


def taken(world: World) -> set[str]:
    return {name for name in running(world) if name.startswith("slot_")}


def who_waits(world: World) -> set[str]:
    place = keys.waiting(world.agent.agent_id)
    return {row["conversation_key"] for row in world.rows().values() if row.get("due_pk") == place}


def set_limit(world: World, runs_at_once: int) -> None:
    """The operator sets another number."""
    agent = world.agent
    world.agent = world.agents.update(
        agent,
        version=agent.version,
        name=agent.name,
        handle=agent.handle,
        instructions=agent.instructions,
        model=agent.model,
        limits=Limits(runs_at_once=runs_at_once),
        cause=CAUSE,
    )


def test_what_finds_no_slot_waits_and_goes_on_oldest_first_when_one_is_freed() -> None:
    world = one_at_once()
    slot = busy(world)
    for conversation in "CAB":
        world.say(conversation, f"{conversation}-1")
        world.run(1)
    assert who_waits(world) == {"A", "B", "C"}
    assert world.receiver.requests == 0
    world.run(5)  # the index shows them all

    slots_of(world).free(world.agent.agent_id, slot)
    world.run(5)  # no sweep in between
    world.check()
    assert [reply["in_reply_to"] for reply in world.receiver.replies] == ["C-1", "A-1", "B-1"]
    assert taken(world) == set()


def test_who_waits_behind_a_worker_that_died_goes_on_when_its_slot_is_over() -> None:
    world = one_at_once()
    busy(world)
    world.say("A", "a-1")
    world.say("B", "b-1")
    seconds = world.run_until_done(600)
    world.check()
    assert seconds <= LEASE_OVER_S + 2 * 60


def test_a_slot_that_is_freed_while_a_conversation_is_parked_is_not_missed() -> None:
    world = one_at_once(sweeping=False)
    slot = busy(world)

    def free_before_the_mark(site: Site) -> None:
        if site.name.startswith("turn_worker: UpdateItem ORDER SET #due_pk = :waiting"):
            world.hooks.on_before = lambda _: None
            slots_of(world).free(world.agent.agent_id, slot)

    world.hooks.on_before = free_before_the_mark
    world.say("A", "a-1")
    world.run_until_done(5)
    world.check()


def test_who_waits_for_the_one_slot_of_an_agent_does_not_ring_in_circles(exhaustive: bool) -> None:
    many = 1_000 if exhaustive else 150
    world = one_at_once(watching=False)
    slot = busy(world)
    rung: Counter[str] = Counter()

    def count(site: Site) -> None:
        if site.operation == "SendMessage" and str(site.body["QueueUrl"]).endswith("turns"):
            rung[site.function] += 1

    for number in range(many):
        world.say(f"room-{number}", f"m-{number}")
        world.clock.forward(0.2)  # an install takes in so many a minute
        if number % 50 == 49:
            slot = slots_of(world).renew(world.agent.agent_id, slot) or slot
    world.hooks.on_before = count
    world.drain()
    assert (len(who_waits(world)), world.receiver.requests) == (many, 0)
    assert not rung  # who waits rings for nobody

    slots_of(world).free(world.agent.agent_id, slot)
    world.run_until_done(3_600)
    world.check_replies()
    assert rung["turn_worker"] <= many
    assert sum(rung.values()) <= many + 60


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_lowered_limit_counts_what_still_runs_above_it(limit: int) -> None:
    world = World(limits=Limits(runs_at_once=5))
    slots = slots_of(world)
    held = [slots.take(world.agent, f"worker {number}") for number in range(5)]
    assert len({slot.name for slot in held}) == 5
    set_limit(world, limit)
    agent_id = world.agent.agent_id
    for left in range(5, limit - 1, -1):
        with pytest.raises(NoSlot):
            slots.take(world.agent, "one more")
        assert left == len(taken(world))
        slots.free(agent_id, held.pop())
    again = slots.take(world.agent, "one more")
    assert len(taken(world)) == limit
    assert again.name in {f"slot_{number:02d}" for number in range(limit)}


def test_a_raised_limit_lets_go_on_who_waits_at_the_next_sweep() -> None:
    world = one_at_once()
    busy(world)
    for conversation in "ABC":
        world.say(conversation, f"{conversation}-1")
    world.run(2)
    assert who_waits(world) == {"A", "B", "C"}
    set_limit(world, 4)
    assert world.run_until_done(600) <= 2 * 60
    world.check()


def test_a_worker_gives_up_the_slot_that_a_lowered_limit_took_away() -> None:
    world = World(limits=Limits(runs_at_once=2))
    slots, agent_id = slots_of(world), world.agent.agent_id
    first, second = sorted((busy(world), busy(world)), key=lambda slot: slot.name)
    slots.free(agent_id, second)

    def lower(site: Site) -> None:
        if site.name.startswith("turn_worker: TransactWriteItems"):
            world.hooks.on_before = lambda _: None
            set_limit(world, 1)

    for number in range(3):
        world.say("A", f"a-{number}")
    world.hooks.on_before = lower
    world.drain()
    assert len(world.receiver.replies) == 1  # what had begun was ended
    assert (taken(world), who_waits(world)) == ({first.name}, {"A"})
    slots.free(agent_id, first)
    world.run_until_done(300)
    world.check()


def test_a_paused_agents_conversations_stay_where_they_wait_until_it_is_resumed() -> None:
    world = one_at_once()
    busy(world)
    world.say("A", "a-1")
    world.run(1)
    world.pause()
    world.run(600)
    assert world.receiver.requests == 0
    world.resume()
    world.run_until_done(300)
    world.check()


def test_the_mark_of_an_agent_for_whom_nobody_waits_any_more_goes() -> None:
    world = one_at_once()
    busy(world)
    world.say("A", "a-1")
    world.run_until_done(600)
    assert "due_pk" in running(world)
    world.run(900)
    assert "due_pk" not in running(world)


def test_a_run_that_waited_too_long_for_a_slot_expires() -> None:
    world = World(limits=Limits(runs_at_once=1, queue_seconds=30))
    busy(world)
    world.say("A", "a-1")
    world.run_until_done(600)
    (reply,) = world.receiver.replies
    assert reply["outcome"] == "failure"
    assert world.rows()["STORY#" + world.story_of("a-1"), "STORY"]["status"] == "expired"


# ---- death


def crowded(world: World) -> None:
    """Two conversations wait for the one slot; then its holder lets it go, and a third comes."""
    slot = busy(world)
    world.say("A", "a-1")
    world.say("B", "b-1")
    world.drain()
    slots_of(world).free(world.agent.agent_id, slot)
    world.say("A", "a-2")
    world.say("C", "c-1")
    world.run_until_done(1_200)


def places_of(world: World) -> list[Place]:
    names: list[str] = []
    world.hooks.on_before = lambda site: names.append(site.name) if site.function else None
    crowded(world)
    world.check()
    return [
        Place(index, name, when)
        for index, name in enumerate(names, 1)
        for when in ("before", "after")
    ]


def test_a_death_at_any_call_among_conversations_that_wait_loses_nothing(exhaustive: bool) -> None:
    found = places_of(one_at_once())
    assert any("WAITING" in place.name for place in found)
    for place in found if exhaustive else once_each(found, every=4):
        world = one_at_once()
        die_at(world, place)
        try:
            crowded(world)
            world.check()
        except BaseException as error:
            error.add_note(f"killed {place}")
            raise


@pytest.mark.parametrize("seed", range(1, 5))
def test_workers_that_meet_stall_and_die_never_run_more_than_the_agent_may(seed: int) -> None:
    world = World(seed=seed, limits=Limits(runs_at_once=2, queue_seconds=86_400))
    trouble = Trouble(stall=0.02, stalls_max=4, kill=0.01, kills_max=3, lose=0.1)
    Interleaver(world, seed, trouble).run({"A": 2, "B": 2, "C": 1, "D": 1}, pollers=3)
    world.check()


@pytest.mark.parametrize("trouble", [{"faults": True}, {"skew_ms": 7_000, "cold": True}])
def test_ordinary_faults_and_wrong_clocks_keep_nobody_waiting(
    trouble: dict[str, Any], exhaustive: bool
) -> None:
    for seed in range(1, 9 if exhaustive else 3):
        faults = Faults(seed) if trouble.get("faults") else None
        world = one_at_once(**trouble | {"seed": seed, "faults": faults})
        for number in range(6):
            world.say("ABC"[number % 3], f"m-{number}")
        world.run_until_done(1_800)
        world.check()
