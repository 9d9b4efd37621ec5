"""Doorbells only ring: lost, doubled, late ones and wrong clocks cost latency, within bounds."""

from __future__ import annotations

import random

import pytest

from infra.local.aws import Faults
from infra.local.aws.faults import Kind
from tests.simulation.deaths import fails_once
from tests.simulation.direct import Site
from tests.simulation.world import World

RETRY_S = 5.5
"""The first retry's delay at its longest."""
LATE_S = 5.0
"""How much later than it should a message shows at most, when AWS is late."""


def talk(world: World) -> None:
    """Two conversations, four messages each, some while work is under way."""
    for number in range(1, 5):
        world.say("A", f"a-{number}")
        world.say("B", f"b-{number}")
        if number % 2:
            world.drain()


@pytest.mark.parametrize("seed", range(1, 9))
def test_doubled_and_late_doorbells_never_make_work_wait_for_a_sweep(seed: int) -> None:
    faults = Faults(seed, rates={Kind.DUPLICATE: 0.3, Kind.LATE: 0.4})
    world = World(seed=seed, faults=faults, sweeping=False, answers=fails_once)
    talk(world)
    took = world.run_until_done(60)
    world.check()
    assert took <= RETRY_S + 3 * LATE_S + 3


@pytest.mark.parametrize("seed", range(1, 9))
def test_wrong_clocks_never_make_work_wait_for_a_sweep(seed: int) -> None:
    world = World(seed=seed, skew_ms=10_000, cold=True, sweeping=False, answers=fails_once)
    talk(world)
    took = world.run_until_done(60)
    world.check()
    assert took <= RETRY_S + 20 + 3, (
        "the retry's time was drawn by another clock than it is read by"
    )


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_first_delivery_waits_for_nobodys_clock(seed: int) -> None:
    world = World(seed=seed, skew_ms=10_000, cold=True, sweeping=False)
    talk(world)
    world.drain()
    assert world.done
    world.check()


@pytest.mark.parametrize("seed", range(1, 7))
def test_where_only_the_sweep_rings_its_bound_is_the_latency(seed: int) -> None:
    world = World(seed=seed, answers=fails_once)
    world.hooks.lose = lambda site: site.function != "sweep_due"
    talk(world)
    # A mark is given a minute; the tick that finds it comes within another, or, where the index
    # lags behind, within one more. A turn, a delivery and its retry wait for one tick each.
    took = world.run_until_done(3 * 180)
    world.check()
    assert took > 60, "nothing but the sweep rang"


@pytest.mark.parametrize("seed", range(1, 9))
def test_doorbells_lost_at_random_are_made_good_by_sweeps(seed: int) -> None:
    world = World(seed=seed, answers=fails_once)
    dice = random.Random(seed)

    def lost(_: Site) -> bool:
        return dice.random() < 0.3

    world.hooks.lose = lost
    talk(world)
    world.run_until_done(3600)
    world.check()
