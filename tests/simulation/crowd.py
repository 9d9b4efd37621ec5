"""Owns many workers at once on simulated time: as many a queue as an environment gives it, each
held for as long as its invocation takes.

Refuses to let one worker's waiting move another's clock. What an invocation does between two waits
happens at the moment at which it begins, and the time that its calls take is added to its end: it
is off by some hundredths of a second, where a hanging receiver takes ten.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mesh.kernel.clock import MINUTE_MS
from tests.fakes.time import CrowdClock
from tests.simulation.world import World


@dataclass(eq=False)
class _Worker:
    """One instance of a function, in a thread of its own. `until` is when it goes on or is free."""

    queue: str
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    message: dict[str, Any] = field(default_factory=dict)
    until: int = 0
    waits: bool = False


class Crowd:
    """Runs a world whose queues have that many workers each. Nobody posts but between its runs."""

    def __init__(self, world: World, workers: Mapping[str, int]) -> None:
        assert isinstance(world.clock, CrowdClock), "workers need clocks of their own"
        self._world = world
        self._clock: CrowdClock = world.clock
        self._free = {queue: [_Worker(queue) for _ in range(n)] for queue, n in workers.items()}
        self._busy: list[_Worker] = []
        self._here = threading.local()
        self._back = threading.Semaphore(0)
        self._error: BaseException | None = None
        self._minute = world.clock.ms // MINUTE_MS
        for each in self._free.values():
            for worker in each:
                threading.Thread(target=self._work, args=(worker,), daemon=True).start()

    def wait(self, seconds: float) -> None:
        """What a receiver does that answers late: the worker that asks is held meanwhile."""
        me: _Worker = self._here.worker
        self._clock.sleep(seconds)
        me.until, me.waits = self._clock.ms, True
        self._back.release()
        me.go.acquire()
        me.waits = False

    def run(self, seconds: float) -> None:
        """Lets that much time pass."""
        until = self._clock.ms + int(seconds * 1000)
        while True:
            self._begin()
            moment = self._next()
            self._clock.ms = max(self._clock.ms, min(moment, until))
            if moment > until:
                return
            self._go_on()
            if self._clock.ms // MINUTE_MS != self._minute:
                self._minute = self._clock.ms // MINUTE_MS
                self._world.tick()

    def _begin(self) -> None:
        """Gives every free worker a message, where there is one."""
        for queue, source in self._world.sources.items():
            while self._free[queue] and self._world.shows(queue):
                message = source.receive()
                if message is None:
                    break
                worker = self._free[queue].pop()
                worker.message, worker.until = message, self._clock.ms
                self._busy.append(worker)
                self._let(worker)

    def _work(self, worker: _Worker) -> None:
        self._here.worker = worker
        while True:
            worker.go.acquire()
            self._clock.begin(worker.until)
            try:
                self._world.sources[worker.queue].process(worker.message)
            except BaseException as error:  # noqa: BLE001 - told to the thread that waits
                self._error = error
            worker.until = self._clock.ms
            self._back.release()

    def _let(self, worker: _Worker) -> None:
        """Lets one worker work, until it waits or is done."""
        worker.go.release()
        self._back.acquire()
        if self._error is not None:
            raise self._error

    def _go_on(self) -> None:
        """Frees the workers whose time is over, and wakes those that waited."""
        for worker in [each for each in self._busy if each.until <= self._clock.ms]:
            if worker.waits:
                self._let(worker)
            else:
                self._busy.remove(worker)
                self._free[worker.queue].append(worker)

    def _next(self) -> int:
        """The next moment at which something happens."""
        moments = [(self._clock.ms // MINUTE_MS + 1) * MINUTE_MS]
        moments += [worker.until for worker in self._busy]
        for queue, source in self._world.sources.items():
            shows = self._world.aws.sqs.next_visible_ms(source.queue.physical_name)
            if shows is not None and self._free[queue]:
                moments.append(max(shows, self._clock.ms))
        return min(moments)
