"""Owns how calls under way are watched: a look each second whether they are still wanted.

Refuses to wait for a call that is not, or that takes longer than it was given: its request is cut
off, and what it comes back with is dropped, because no write of it would pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final, Protocol, TypeVar

from mesh.kernel.cancellation import Cancellation, cancelled_by
from mesh.kernel.clock import Clock

_T = TypeVar("_T")

LOOK_EVERY_S: Final = 1.0


class OutOfTime(Exception):
    """The calls took longer than they were given; some of them may be under way still."""


class Watch(Protocol):
    """Makes calls, several at once, and has somebody look meanwhile."""

    def calls(
        self, works: Sequence[Callable[[], _T]], look: Callable[[], None], within_s: float
    ) -> list[_T]:
        """What each of `works` came to, in their order.

        Raises what `look` raises, as soon as it does, OutOfTime after `within_s`, and else the
        first exception of a call.
        """
        ...

    def pause(self, seconds: float, look: Callable[[], None]) -> None:
        """Waits so long, and has somebody look meanwhile. Raises what `look` raises."""
        ...


class ThreadWatch:
    """Makes each call in a thread of its own, and looks once a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def calls(
        self, works: Sequence[Callable[[], _T]], look: Callable[[], None], within_s: float
    ) -> list[_T]:
        """As the protocol says. The request of a call that is not waited for is cut off."""
        until = self._clock.monotonic() + within_s
        pool = ThreadPoolExecutor(len(works), thread_name_prefix="call")
        cancellation = Cancellation()

        def made(work: Callable[[], _T]) -> _T:
            with cancelled_by(cancellation):
                return work()

        try:
            futures = [pool.submit(made, work) for work in works]
            left = set(futures)
            while left:
                _, left = wait(left, timeout=LOOK_EVERY_S)
                if left:
                    look()
                    if self._clock.monotonic() >= until:
                        raise OutOfTime
            return [future.result() for future in futures]
        finally:
            cancellation.cancel()  # requests under way are cut off; without one it is nothing
            pool.shutdown(wait=False, cancel_futures=True)

    def pause(self, seconds: float, look: Callable[[], None]) -> None:
        """As the protocol says, a second at a time."""
        _paused(self._clock, seconds, look)


class InlineWatch:
    """Makes one call after the other in the caller's thread, and looks after each: for a process
    that steps through time by hand."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def calls(
        self, works: Sequence[Callable[[], _T]], look: Callable[[], None], within_s: float
    ) -> list[_T]:
        """As the protocol says, without a look while a call is under way."""
        until = self._clock.monotonic() + within_s
        came_to = []
        for work in works:
            came_to.append(work())
            look()
        if self._clock.monotonic() > until:
            raise OutOfTime
        return came_to

    def pause(self, seconds: float, look: Callable[[], None]) -> None:
        """As the protocol says, a second at a time."""
        _paused(self._clock, seconds, look)


def _paused(clock: Clock, seconds: float, look: Callable[[], None]) -> None:
    left = seconds
    while left > 0:
        clock.sleep(min(left, LOOK_EVERY_S))
        left -= LOOK_EVERY_S
        look()
