"""Owns time and randomness as tests have them: a clock that moves when told, dice that repeat."""

from __future__ import annotations

import random
import threading

START_MS = 1_796_000_000_000


class SimulatedClock:
    """Moves when somebody sleeps on it, or when a test says so; never by itself."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self.ms = start_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.ms += max(1, int(seconds * 1000))

    def forward(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


class CrowdClock(SimulatedClock):
    """Everybody's time, and in a worker's thread the worker's own."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._everybodys = START_MS

    @property
    def ms(self) -> int:  # type: ignore[override]
        own: int | None = getattr(self._own, "ms", None)
        return self._everybodys if own is None else own

    @ms.setter
    def ms(self, moment: int) -> None:
        if getattr(self._own, "ms", None) is None:
            self._everybodys = moment
        else:
            self._own.ms = moment

    def begin(self, moment: int) -> None:
        """From here on this thread has a time of its own."""
        self._own.ms = moment


class SeededRandom:
    """Randomness that repeats exactly."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
