"""Owns how a call under way is watched: somebody looks once a second whether it is still wanted.

Refuses to wait for a call that is not: its thread is left to its own deadline, and whatever it
comes back with is dropped, because no write of it would pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

_T = TypeVar("_T")

LOOK_EVERY_S = 1.0


class Watch(Protocol):
    """Makes calls, several at once, and has somebody look meanwhile."""

    def calls(self, works: Sequence[Callable[[], _T]], look: Callable[[], None]) -> list[_T]:
        """What each of `works` came to, in their order.

        Raises what `look` raises, as soon as it does, and else the first exception of a call.
        """
        ...


class ThreadWatch:
    """Makes each call in a thread of its own, and looks once a second."""

    def calls(self, works: Sequence[Callable[[], _T]], look: Callable[[], None]) -> list[_T]:
        """As the protocol says. A call that is not waited for goes on to its own deadline."""
        pool = ThreadPoolExecutor(len(works), thread_name_prefix="call")
        try:
            futures = [pool.submit(work) for work in works]
            left = set(futures)
            while left:
                _, left = wait(left, timeout=LOOK_EVERY_S)
                if left:
                    look()
            return [future.result() for future in futures]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class InlineWatch:
    """Makes one call after the other in the caller's thread, and looks after each: for a process
    that steps through time by hand."""

    def calls(self, works: Sequence[Callable[[], _T]], look: Callable[[], None]) -> list[_T]:
        """As the protocol says, without a look while a call is under way."""
        came_to = []
        for work in works:
            came_to.append(work())
            look()
        return came_to
