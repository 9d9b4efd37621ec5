"""Owns time as the rest of the system sees it: wall time in milliseconds, and waiting.

Refuses to be asked for anything but numbers; formatting for people is `rfc3339`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

from mesh.kernel.errors import Failed, Phase

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


class Clock(Protocol):
    """Where time comes from. Injected everywhere, so that a test can own it."""

    def now_ms(self) -> int:
        """Unix time in whole milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Waits at least that long."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Deadline:
    """The time that the calls of one request share. Starts anew with each request; until the first,
    nothing is bounded."""

    def __init__(self, clock: Clock, call_s: float) -> None:
        self._clock = clock
        self._call_s = call_s
        self._until: float | None = None

    def start(self, seconds: float) -> None:
        """From now on `seconds` are left."""
        self._until = self._clock.monotonic() + seconds

    def allows_a_call(self) -> bool:
        """Whether a call that begins now ends in time, however long it takes."""
        return self._until is None or self._clock.monotonic() + self._call_s <= self._until

    def demand_a_call(self) -> None:
        """Raises Failed where the time does not allow one more call."""
        if not self.allows_a_call():
            raise Failed("unavailable", "there is no time left; try again", Phase.BEFORE)


def rfc3339(at_ms: int) -> str:
    """`at_ms` as RFC 3339 in UTC with milliseconds, such as `2026-11-30T05:42:35.123Z`."""
    moment = datetime.fromtimestamp(at_ms // 1000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def day_of(at_ms: int) -> str:
    """The UTC day of `at_ms`, such as `2026-11-30`."""
    return f"{datetime.fromtimestamp(at_ms // 1000, tz=UTC):%Y-%m-%d}"
