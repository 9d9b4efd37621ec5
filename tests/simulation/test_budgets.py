"""A day's turns and tokens are counted once each, whatever dies, and the limit is never passed."""

from __future__ import annotations

from typing import Any

import pytest

from infra.local.aws import Faults
from mesh.records.agent import Limits
from tests.simulation.deaths import Place, die_at, fails_once, main_job, once_each, places
from tests.simulation.interleaver import Interleaver, Trouble
from tests.simulation.world import World

ROOMY = Limits(turns_per_day=8, tokens_per_day=1_000_000)
"""The main job's four runs are half of the turns."""


def frugal(limits: Limits = ROOMY, seed: int = 1) -> World:
    return World(seed=seed, limits=limits, answers=fails_once)


def day(world: World) -> dict[str, Any]:
    (row,) = [row for (pk, _), row in world.rows().items() if pk.startswith("DAY#")]
    return row


def told(world: World) -> list[tuple[str, int]]:
    """What notices of budgets were put down."""
    return sorted(
        (row["reason"], row["figures"]["percent"])
        for (_, sk), row in world.rows().items()
        if sk == "NOTICE" and row["kind"] == "budget.reached"
    )


def run_with_death(place: Place) -> World:
    world = frugal()
    die_at(world, place)
    try:
        main_job(world)
        world.check()
        assert day(world)["turns"] == 4
        assert told(world) == [("turns_per_day", 50)]
    except BaseException as error:
        error.add_note(f"killed {place}")
        raise
    return world


def test_a_turn_is_counted_once_whoever_dies_with_it(exhaustive: bool) -> None:
    found = [place for place in places(frugal()) if place.name.startswith("turn_worker")]
    assert any("TransactWriteItems" in place.name for place in found)
    for place in found if exhaustive else once_each(found, every=4):
        run_with_death(place)


@pytest.mark.parametrize("seed", range(1, 4))
def test_workers_that_meet_never_pass_the_days_turns(seed: int) -> None:
    world = frugal(Limits(turns_per_day=5, queue_seconds=86_400), seed)
    trouble = Trouble(stall=0.01, stalls_max=2, kill=0.01, kills_max=2, lose=0.05)
    Interleaver(world, seed, trouble).run({"A": 3, "B": 3, "C": 3}, pollers=3)
    world.check()
    assert day(world)["turns"] == 5
    outcomes = [reply["outcome"] for reply in world.receiver.replies]
    assert sorted(outcomes) == ["failure"] * 4 + ["reply"] * 5
    assert told(world) == [("turns_per_day", percent) for percent in (50, 80, 100)]


@pytest.mark.parametrize("seed", range(1, 4))
def test_ordinary_faults_count_no_turn_twice_and_lose_none(seed: int) -> None:
    world = World(seed=seed, faults=Faults(seed), limits=ROOMY, answers=fails_once)
    main_job(world)
    world.check()
    assert day(world)["turns"] == 4
    assert told(world) == [("turns_per_day", 50)]
