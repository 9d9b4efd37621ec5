"""Owns the record of calls: which operation, for whom, what it cost, how it ended.

Refuses to keep what a call said: benchmarks and tests count calls, they do not read bodies.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from infra.local.aws.wire import Units

_CALLER: ContextVar[str] = ContextVar("caller", default="")


@dataclass(frozen=True, slots=True)
class Call:
    """One request on the wire; an SDK's second try is a second call."""

    number: int
    service: str
    operation: str
    caller: str
    outcome: str
    """`ok`, AWS's error code, or the fault that swallowed the answer."""
    units: Units

    @property
    def table_write(self) -> float:
        """The table's write units."""
        return self.units.table_write

    @property
    def index_write(self) -> float:
        """The indexes' write units."""
        return self.units.index_write

    @property
    def read(self) -> float:
        """Read units."""
        return self.units.read


class Recorder:
    """Keeps calls while it is on."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.on = False
        self._lock = threading.Lock()

    def note(self, call: Call) -> None:
        """Keeps `call` when recording."""
        if self.on:
            with self._lock:
                self.calls.append(call)

    @contextmanager
    def recording(self) -> Iterator[list[Call]]:
        """Records the calls made inside, and yields the list that they go to."""
        before, was_on = self.calls, self.on
        self.calls, self.on = [], True
        try:
            yield self.calls
        finally:
            self.calls, self.on = before, was_on


def caller() -> str:
    """The label of whoever calls in this context; empty when nobody said."""
    return _CALLER.get()


@contextmanager
def calling(label: str) -> Iterator[None]:
    """Labels the calls that this context makes inside, such as with a function's name."""
    token = _CALLER.set(label)
    try:
        yield
    finally:
        _CALLER.reset(token)
