"""Owns the seeded faults: which call meets which, how often, and never too many in a row.

Refuses to be random: the same seed and the same order of calls give the same faults.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What can go wrong on AWS without anybody being at fault."""

    CONFLICT = "conflict"
    """A transaction, or a write against one, is refused: another one holds the item."""
    THROTTLE = "throttle"
    """The call is refused for its rate."""
    LOST = "lost"
    """The call is applied and its answer never arrives."""
    UNREACHABLE = "unreachable"
    """The call never arrives."""
    DUPLICATE = "duplicate"
    """A message of a standard queue is delivered twice."""
    LATE = "late"
    """A message shows later than it should."""
    UNPROCESSED = "unprocessed"
    """A batch read leaves some of its keys to be asked for again."""


DEFAULT_RATES: Final[Mapping[Kind, float]] = {
    Kind.CONFLICT: 0.05,
    Kind.THROTTLE: 0.02,
    Kind.LOST: 0.02,
    Kind.UNREACHABLE: 0.01,
    Kind.DUPLICATE: 0.1,
    Kind.LATE: 0.1,
    Kind.UNPROCESSED: 0.1,
}
LATE_MS_MAX: Final = 5_000

_SINGLE_WRITES: Final = frozenset({"PutItem", "UpdateItem", "DeleteItem"})
_TRANSACTIONS: Final = frozenset({"TransactWriteItems", "TransactGetItems"})


class Faults:
    """Draws faults. `rates` are chances a call, by kind; a kind that is missing never happens."""

    def __init__(
        self, seed: int, *, rates: Mapping[Kind, float] | None = None, in_a_row_max: int = 2
    ) -> None:
        self.counts: Counter[Kind] = Counter()
        self.rates = dict(DEFAULT_RATES if rates is None else rates)
        self.in_a_row_max = in_a_row_max
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._in_a_row = threading.local()
        self._off = 0

    def draw(self, service: str, operation: str) -> Kind | None:
        """The fault that this call meets, or None."""
        with self._lock:
            met = None
            for kind in self._possible(service, operation):
                if met is None and self._random.random() < self.rates.get(kind, 0):
                    met = kind
            in_a_row: int = getattr(self._in_a_row, "count", 0)
            if met is None or self._off or in_a_row >= self.in_a_row_max:
                self._in_a_row.count = 0
                return None
            self._in_a_row.count = in_a_row + 1
            self.counts[met] += 1
            return met

    def happens(self, kind: Kind) -> bool:
        """Whether a fault of `kind` happens now, for those that belong to a part of a call."""
        with self._lock:
            met = self._random.random() < self.rates.get(kind, 0) and not self._off
            self.counts[kind] += met
            return met

    def choose(self, count: int) -> int:
        """One of `count` things."""
        with self._lock:
            return self._random.randrange(count)

    def lateness_ms(self) -> int:
        """How much later than it should the next message shows: mostly 0."""
        if not self.happens(Kind.LATE):
            return 0
        return 1 + self.choose(LATE_MS_MAX)

    def left_over(self, count: int) -> int:
        """How many of a batch's `count` keys are left unread: mostly 0, never all."""
        if count < 2 or not self.happens(Kind.UNPROCESSED):
            return 0
        return 1 + self.choose(count - 1)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """No faults inside, on any thread: for what a test prepares and for what it counts."""
        with self._lock:
            self._off += 1
        try:
            yield
        finally:
            with self._lock:
                self._off -= 1

    @staticmethod
    def _possible(service: str, operation: str) -> tuple[Kind, ...]:
        everywhere = (Kind.THROTTLE, Kind.LOST, Kind.UNREACHABLE)
        if service == "dynamodb" and operation in _SINGLE_WRITES | _TRANSACTIONS:
            return (Kind.CONFLICT, *everywhere)
        return everywhere
