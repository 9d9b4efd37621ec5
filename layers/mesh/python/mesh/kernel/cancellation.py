"""Owns how work that nobody waits for any more is told so, wherever it is in its calls.

Refuses to stop a thread: what waits for something names how it is woken, and then ends by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final


class Cancellation:
    """One piece of work that may be given up. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: dict[object, Callable[[], None]] = {}
        self._cancelled = False

    def cancel(self) -> None:
        """Wakes whatever the work waits for, now and from now on."""
        with self._lock:
            self._cancelled = True
            wakers = list(self._wakers.values())
        for wake in wakers:
            wake()

    @contextmanager
    def woken_by(self, wake: Callable[[], None]) -> Iterator[None]:
        """While the work is in here, giving it up calls `wake`: at once, where that was before."""
        place = object()
        with self._lock:
            self._wakers[place] = wake
            late = self._cancelled
        if late:
            wake()
        try:
            yield
        finally:
            with self._lock:
                del self._wakers[place]


_CURRENT: Final[ContextVar[Cancellation | None]] = ContextVar("cancellation", default=None)


@contextmanager
def cancelled_by(cancellation: Cancellation) -> Iterator[None]:
    """What is called in here may be given up by `cancellation`. Holds for this thread alone."""
    token = _CURRENT.set(cancellation)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def woken_by(wake: Callable[[], None]) -> Iterator[None]:
    """While the caller is in here, giving up the work that it belongs to calls `wake`; nothing
    where the work is not one that can be given up."""
    current = _CURRENT.get()
    if current is None:
        yield
        return
    with current.woken_by(wake):
        yield
