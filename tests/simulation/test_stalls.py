"""A worker that stalls for longer than its lease, and then goes on, does no harm."""

from __future__ import annotations

import pytest

from tests.simulation.deaths import REQUEST, Place, calm, main_job, once_each, places
from tests.simulation.direct import Site
from tests.simulation.world import World

STALLS_S = (45.0, 80.0, 400.0)
"""Past a delivery's lease, past a turn's, and past every queue's visibility."""


def stall_at(world: World, place: Place, seconds: float) -> None:
    """The worker that reaches `place` stands still there while everything else goes on."""

    def stall() -> None:
        world.hooks.on_after = world.hooks.on_before = lambda _: None
        world.receiver.after = lambda _: None
        world.run(seconds)
        for posted in world.posted:
            if not posted.answered:  # the caller gave up on the request that stands still
                world.post(posted)
        world.drain()

    if place.name == REQUEST:

        def at_request(number: int) -> None:
            if number == place.index:
                stall()

        world.receiver.after = at_request
        return
    count = 0

    def at_call(site: Site) -> None:
        nonlocal count
        count += bool(site.function)
        if site.function and count == place.index:
            stall()

    if place.when == "before":
        world.hooks.on_before = at_call
    else:
        world.hooks.on_after = at_call


@pytest.mark.parametrize("seconds", STALLS_S)
def test_a_stall_at_any_call_doubles_nothing_and_turns_nothing_round(
    seconds: float, exhaustive: bool
) -> None:
    found = [place for place in places(calm()) if place.when == "after"]
    for place in found if exhaustive else once_each(found, every=9):
        world = calm()
        stall_at(world, place, seconds)
        try:
            main_job(world)
            world.check()
        except BaseException as error:
            error.add_note(f"stalled {seconds} s {place}")
            raise
