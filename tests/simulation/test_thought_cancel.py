"""A cancelled run lets go of its worker within two looks, in the middle of any call, and what the
call comes back with is dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from mesh.engine.watch import ThreadWatch
from tests.fakes.time import SimulatedClock
from tests.simulation.test_thought import cancel
from tests.simulation.thought import MODEL, TOOL, Outside, calls_then_done, thinking

PATIENCE_S = 30.0
"""How long a call that is never let go would hang: far longer than two looks."""


class _Pushed(Exception):
    """What a look raises that does not find what it looks for."""


@dataclass
class TickingWatch(ThreadWatch):
    """The real watch, in real threads; each of its looks is a second of the simulated clock."""

    clock: SimulatedClock
    looks: int = 0

    def __post_init__(self) -> None:
        super().__init__(self.clock)

    def calls(
        self, works: Sequence[Callable[[], Any]], look: Callable[[], None], within_s: float
    ) -> list[Any]:
        def ticking() -> None:
            self.looks += 1
            self.clock.forward(1)
            look()

        return super().calls(works, ticking, within_s)


def test_a_call_that_is_not_wanted_any_more_is_not_waited_for() -> None:
    let_go, back = threading.Event(), threading.Event()

    def work() -> None:
        let_go.wait(PATIENCE_S)
        back.set()

    def look() -> None:
        raise _Pushed

    with pytest.raises(_Pushed):
        ThreadWatch(SimulatedClock()).calls([work, work], look, 60)
    assert not back.is_set()
    let_go.set()
    assert back.wait(PATIENCE_S)


@pytest.mark.parametrize("at", [MODEL, TOOL])
def test_a_cancel_in_the_middle_of_a_call_takes_effect_within_two_seconds(at: str) -> None:
    let_go, back = threading.Event(), threading.Event()
    clock = SimulatedClock()
    watch = TickingWatch(clock)
    outside = Outside(calls_then_done(("send", 1)), raced=True)
    world = thinking(outside, clock=clock, calls=watch)

    def cancelled_under_way(what: str) -> None:
        if what == at:
            cancel(world)
            let_go.wait(PATIENCE_S)

    def came_back(what: str) -> None:
        if what == at:
            back.set()

    outside.before, outside.after = cancelled_under_way, came_back
    world.say("A", "a-1")
    world.drain()
    assert 1 <= watch.looks <= 2
    assert not back.is_set()
    (story,) = [row for (_, sk), row in world.rows().items() if sk == "STORY"]
    assert story["status"] == "cancelled"

    before = world.rows()
    let_go.set()
    assert back.wait(PATIENCE_S)
    world.run(120)
    assert world.receiver.requests == 0
    steps = {key: row for key, row in world.rows().items() if key[1].startswith("STEP#")}
    assert steps == {key: row for key, row in before.items() if key[1].startswith("STEP#")}
    assert len(outside.asked) == 1
