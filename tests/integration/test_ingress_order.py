"""Messages of a conversation keep the order of their commits, whatever the clocks say."""

from __future__ import annotations

import pytest

from tests.fakes.door import Door
from tests.fakes.time import SimulatedClock


class Skewed:
    """Another machine's clock: the same time, `ahead_ms` off."""

    def __init__(self, clock: SimulatedClock, ahead_ms: int) -> None:
        self._clock = clock
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


@pytest.mark.parametrize("between_ms", [0, 1, 700], ids=lambda ms: f"{ms} ms apart")
def test_two_instances_five_seconds_apart_never_turn_messages_round(between_ms: int) -> None:
    door = Door()
    door.install()
    ahead = door.cold(Skewed(door.clock, 5_000))
    behind = door.cold(Skewed(door.clock, -5_000))
    said = [f"line {n}" for n in range(12)]
    for number, line in enumerate(said):
        # two by one, then two by the other, so that each goes first at times
        handler = (ahead, behind)[number // 2 % 2]
        assert door.say(line, body=line, handler=handler).status == 202
        door.clock.ms += between_ms
    assert door.orders() == said
    orders = [row["order"] for row in door.rows("PEND#")]
    assert len(set(orders)) == len(said)
    (conversation,) = door.rows("ORDER")
    assert conversation["last_order"] == max(orders)


def test_a_message_comes_after_the_reply_that_was_committed_before_it() -> None:
    door = Door()
    door.install()
    behind = door.cold(Skewed(door.clock, -5_000))
    assert door.say("m-1").status == 202
    door.system.settle()
    assert door.say("m-2", handler=behind).status == 202
    roles = [row["role"] for row in door.rows("MSG#")]
    assert roles == ["utterance", "reply", "utterance"]


def test_clocks_that_differ_change_no_verdict_on_a_duplicate() -> None:
    door = Door()
    door.install()
    first = door.say("m-1", handler=door.cold(Skewed(door.clock, 5_000)))
    again = door.say("m-1", handler=door.cold(Skewed(door.clock, -5_000)))
    assert again.json() == first.json() | {"status": "duplicate"}
