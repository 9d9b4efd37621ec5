"""Owns time and randomness as tests have them: a clock that moves when told, dice that repeat."""

from __future__ import annotations

import random

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


class SeededRandom:
    """Randomness that repeats exactly."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
