"""Whatever overlaps: the outbox never reorders, and a conversation never loses a turn."""

from __future__ import annotations

import random
from typing import Any

import pytest

from infra.local.aws import Faults
from tests.fakes.egress import Outcome, answer
from tests.simulation.direct import Site
from tests.simulation.interleaver import Interleaver, Trouble
from tests.simulation.world import World


def flaky(seed: int) -> Any:
    """A receiver that fails one request in five."""
    dice = random.Random(seed)

    def answers(_number: int, _body: dict[str, Any]) -> Outcome:
        return answer(500 if dice.random() < 0.2 else 200)

    return answers


def interleave(seed: int, trouble: Trouble, **world: Any) -> World:
    made = World(seed=seed, **world)
    try:
        Interleaver(made, seed, trouble).run({"A": 3, "B": 2, "C": 1})
        made.check()
    except BaseException as error:
        error.add_note(f"seed {seed}, {trouble}, {world}")
        raise
    return made


def seeds(exhaustive: bool, few: int, many: int) -> range:
    return range(1, (many if exhaustive else few) + 1)


def test_workers_at_once_need_no_sweep(exhaustive: bool) -> None:
    for seed in seeds(exhaustive, 8, 300):
        interleave(seed, Trouble(), sweeping=False)


def test_workers_at_once_with_wrong_clocks_and_a_failing_receiver_need_no_sweep(
    exhaustive: bool,
) -> None:
    for seed in seeds(exhaustive, 6, 200):
        interleave(
            seed,
            Trouble(),
            sweeping=False,
            skew_ms=7_000,
            cold=True,
            answers=lambda number, _: answer(500 if number in (1, 4) else 200),
        )


def test_workers_that_die_among_others(exhaustive: bool) -> None:
    for seed in seeds(exhaustive, 8, 300):
        interleave(seed, Trouble(kill=0.02, kills_max=4), answers=flaky(seed))


def test_workers_that_stall_past_their_leases_among_others(exhaustive: bool) -> None:
    for seed in seeds(exhaustive, 8, 300):
        interleave(seed, Trouble(stall=0.02, stalls_max=4), answers=flaky(seed))


def test_everything_at_once(exhaustive: bool) -> None:
    """Deaths, stalls, lost, doubled and late doorbells, wrong clocks, AWS's faults, failures."""
    for seed in seeds(exhaustive, 12, 500):
        interleave(
            seed,
            Trouble(kill=0.01, kills_max=3, stall=0.01, stalls_max=3, lose=0.1),
            faults=Faults(seed),
            skew_ms=7_000,
            cold=seed % 2 == 0,
            answers=flaky(seed),
        )


@pytest.mark.parametrize("function", ["turn_worker", "outbox_worker"])
def test_no_wake_up_is_lost_whenever_the_next_message_comes(function: str) -> None:
    """A worker is about to let go; the next message is committed, and the worker whom its doorbell
    wakes meets the first one's lease and lets go: whoever holds a lease looks again after it."""
    calls = 0
    world = World(sweeping=False)

    def count(site: Site) -> None:
        nonlocal calls
        calls += site.function == function

    world.hooks.on_before = count
    world.say("A", "a-1")
    world.drain()
    assert calls > 5
    for when in ("on_before", "on_after"):
        for index in range(1, calls + 1):
            world = World(sweeping=False)
            speak_at(world, when, function, index)
            world.say("A", "a-1")
            world.drain()
            assert world.done, (when, index)
            assert len(world.posted) == 2
            world.check()


def speak_at(world: World, when: str, function: str, index: int) -> None:
    """At that call of the function the next message comes, and everybody else works until idle."""
    count = 0

    def look(site: Site) -> None:
        nonlocal count
        count += site.function == function
        if site.function == function and count == index:
            setattr(world.hooks, when, lambda _: None)
            world.say("A", "a-2")
            world.drain()

    setattr(world.hooks, when, look)
