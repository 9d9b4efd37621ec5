"""What its owner may not do waits out of the sweep's way, and goes on when the owner may again."""

from __future__ import annotations

import pytest

from tests.fakes.egress import answer
from tests.simulation.deaths import fails_once
from tests.simulation.direct import Site
from tests.simulation.world import World


def unrung(site: Site) -> bool:
    """Every doorbell but the sweep's is lost."""
    return site.function != "sweep_due"


def accept(world: World) -> None:
    for conversation in "ABC":
        world.say(conversation, f"{conversation}-1")


@pytest.mark.parametrize("rung", [True, False])
def test_a_paused_agents_work_waits_and_goes_on(rung: bool) -> None:
    world = World(answers=fails_once)
    world.hooks.lose = lambda _: True
    accept(world)
    world.pause()
    world.hooks.lose = (lambda _: False) if rung else unrung
    world.run(3600)
    assert world.receiver.requests == 0
    marks = {row["due_pk"] for row in world.waiting() if "due_pk" in row}
    assert marks == {"HELD#" + world.agent.agent_id}
    world.resume()
    assert world.run_until_done(600) <= 400
    world.check()


@pytest.mark.parametrize("rung", [True, False])
def test_a_disabled_installs_replies_wait_and_go_out(rung: bool) -> None:
    world = World(answers=lambda *_: answer(500))
    accept(world)
    world.run(20)
    world.disable()
    world.hooks.lose = (lambda _: False) if rung else unrung
    requests = world.receiver.requests
    world.run(3600)
    assert world.receiver.requests == requests
    marks = {row["due_pk"] for row in world.waiting() if "due_pk" in row}
    assert marks == {"HELD#" + world.made.install_id}
    world.receiver.answers = fails_once
    world.enable()
    assert world.run_until_done(600) <= 400
    world.check()


def test_a_disabled_installs_runs_end_and_their_replies_wait() -> None:
    world = World()
    world.hooks.lose = lambda _: True
    accept(world)
    world.disable()
    world.hooks.lose = lambda _: False
    world.run(600)
    assert world.receiver.requests == 0
    assert [entry["state"] for entry in world.entries()] == ["pending"] * 3
    world.enable()
    world.run_until_done(300)
    world.check()


def test_an_owner_that_changes_its_mind_every_minute_loses_nothing() -> None:
    world = World(answers=lambda number, _: answer(500 if number % 3 else 200))
    for number in range(1, 9):
        world.say("A", f"a-{number}")
        world.say("B", f"b-{number}")
        world.disable() if number % 2 else world.pause()
        world.run(50)
        world.enable() if number % 2 else world.resume()
    world.receiver.answers = lambda *_: answer(200)
    world.run_until_done(2 * 3600)
    world.check()
