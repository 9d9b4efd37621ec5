"""Whatever AWS does, a caller has its answer well inside three seconds, and the answer is true."""

from __future__ import annotations

import pytest

from infra.local.aws import Faults
from infra.local.aws.faults import Kind
from mesh.kernel.limits import INGRESS_CONNECT_S, INGRESS_DEADLINE_S, INGRESS_READ_S
from mesh.records.install import Caps
from tests.fakes.door import OTHER, Door
from tests.fakes.time import SimulatedClock

USUAL_S = 0.02
TAKES_S = {Kind.LOST: INGRESS_READ_S, Kind.UNREACHABLE: INGRESS_CONNECT_S}


class Slow(Faults):
    """Faults that take the time that they take: a lost answer is waited for to the end."""

    clock: SimulatedClock | None = None

    def draw(self, service: str, operation: str) -> Kind | None:
        met = super().draw(service, operation)
        if self.clock is not None and not self._off:
            self.clock.forward(TAKES_S.get(met, USUAL_S) if met else USUAL_S)
        return met


def _door(seed: int, rates: dict[Kind, float], in_a_row_max: int = 100) -> Door:
    faults = Slow(seed, rates=rates, in_a_row_max=in_a_row_max)
    door = Door(seed=seed, faults=faults)
    door.install(caps=Caps(waiting=10_000))
    faults.clock = door.clock
    return door


@pytest.mark.behaviour("ingress:ack-3s")
@pytest.mark.parametrize(
    "rates",
    [
        {Kind.LOST: 0.5},
        {Kind.UNREACHABLE: 0.6},
        {Kind.CONFLICT: 0.9},
        {Kind.THROTTLE: 0.6},
        {Kind.LOST: 0.3, Kind.UNREACHABLE: 0.2, Kind.CONFLICT: 0.4, Kind.THROTTLE: 0.2},
    ],
    ids=["lost", "unreachable", "contended", "throttled", "all at once"],
)
def test_no_answer_takes_longer_than_the_deadline(rates: dict[Kind, float]) -> None:
    door = _door(3, rates)
    taken, told = [], {}
    for number in range(30):
        handler = door.cold() if number % 3 == 0 else door.handler
        began = door.clock.monotonic()
        answer = door.say(f"m-{number}", handler=handler, actor_id=f"u-{number % 7}")
        taken.append(door.clock.monotonic() - began)
        told[f"m-{number}"] = answer
    assert {answer.status for answer in told.values()} == {202, 503}
    assert max(taken) <= INGRESS_DEADLINE_S
    stored = {row["message_id"] for row in door.rows("STORY")}
    for message_id, answer in told.items():
        if answer.status == 202:
            assert message_id in stored
        elif "outcome" not in answer.json()["error"]:
            assert message_id not in stored


def test_where_nothing_arrives_everybody_is_told_so_in_time() -> None:
    door = _door(1, {Kind.UNREACHABLE: 1.0})
    for more in ({}, {"install": OTHER}):
        began = door.clock.monotonic()
        answer = door.say(**more, handler=door.cold())
        assert (answer.status, answer.code) == (503, "unavailable")
        assert "outcome" not in answer.json()["error"]
        assert door.clock.monotonic() - began <= INGRESS_DEADLINE_S


def test_a_slow_look_up_leaves_no_time_to_begin_what_could_not_be_ended() -> None:
    door = _door(1, {})
    door.say("warm")
    held = door.clock.monotonic

    class Late(SimulatedClock):
        """Two seconds pass between the request's start and its transaction."""

        asked = 0

        def monotonic(self) -> float:
            self.asked += 1
            return held() + (2.0 if self.asked > 2 else 0.0)

        def now_ms(self) -> int:
            return door.clock.now_ms()

    late = door.cold(Late())
    with door.calls() as calls:
        answer = door.say("m-1", handler=late)
    assert answer.status == 503
    assert "TransactWriteItems" not in [call.operation for call in calls]
