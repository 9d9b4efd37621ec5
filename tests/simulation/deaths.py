"""Owns the places at which a simulated job can be disturbed: every call, every request, both sides.

Refuses to guess them: they are recorded from an undisturbed run of the same job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from infra.local.aws import Faults, Killed
from tests.fakes.egress import Outcome, answer
from tests.simulation.direct import Site
from tests.simulation.world import World

When = Literal["before", "after"]


def fails_once(number: int, _body: dict[str, Any]) -> Outcome:
    """The first delivery fails, all others succeed."""
    return answer(500 if number == 1 else 200)


def main_job(world: World) -> None:
    """Three messages in one conversation and one in another, until all is done.

    The second conversation speaks between the others, so that work of both is under way at once.
    """
    world.say("A", "a-1")
    world.drain()
    world.say("A", "a-2")
    world.say("B", "b-1")
    world.say("A", "a-3")
    world.run_until_done(SECONDS_MAX)


SECONDS_MAX = 900.0
"""Within so much simulated time all is done after one death: three sweeps and their back-off."""


@dataclass(frozen=True)
class Place:
    """One call of a function (`index` counts them from 1), or one request to the receiver."""

    index: int
    name: str
    when: When

    def __str__(self) -> str:
        return f"{self.when} {self.index} ({self.name})"


REQUEST = "request"


def places(world: World) -> list[Place]:
    """Every place of the main job, run undisturbed in `world`."""
    names: list[str] = []

    def note(site: Site) -> None:
        if site.function:
            names.append(site.name)

    world.hooks.on_before = note
    main_job(world)
    world.check()
    found = [
        Place(index, name, when)
        for index, name in enumerate(names, 1)
        for when in ("before", "after")
    ]
    return found + [
        Place(index, REQUEST, when)
        for index in range(1, world.receiver.requests + 1)
        for when in ("before", "after")
    ]


def once_each(found: Iterable[Place], every: int) -> list[Place]:
    """The first place of each name and side, and of the others every n-th."""
    kept: dict[Place, None] = {}
    by_kind: dict[tuple[str, str], list[Place]] = {}
    for place in found:
        by_kind.setdefault((place.name, place.when), []).append(place)
    for kind in by_kind.values():
        kept |= dict.fromkeys(kind[::every])
    return list(kept)


def die_at(world: World, place: Place) -> None:
    """The worker that reaches `place` dies there."""
    if place.name == REQUEST:
        world.receiver.kill(place.index, place.when)
        return
    count = 0

    def before(site: Site) -> None:
        nonlocal count
        if not site.function:
            return
        count += 1
        if count == place.index and place.when == "before":
            raise Killed(str(place))

    def after(site: Site) -> None:
        if site.function and count == place.index and place.when == "after":
            raise Killed(str(place))

    world.hooks.on_before = before
    world.hooks.on_after = after


def faulty(seed: int) -> World:
    """A world in which AWS has its ordinary faults."""
    return World(seed=seed, faults=Faults(seed), answers=fails_once)


def calm(seed: int = 1) -> World:
    return World(seed=seed, answers=fails_once)
