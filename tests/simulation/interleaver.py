"""Owns true interleavings: workers in threads of which one at a time holds the baton.

Refuses chance: whoever holds the baton gives it on at every AWS call, to whom seeded dice say, so
that a seed is an interleaving and runs the same again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from infra.local.aws import Killed
from mesh.kernel.clock import MINUTE_MS
from tests.simulation.direct import Site
from tests.simulation.world import World

MINUTES_MAX = 120
"""Simulated time after which a run that is not done has lost something."""


class _OverError(BaseException):
    """The run ended elsewhere: unwind."""


@dataclass(eq=False)
class _Task:
    name: str
    body: Callable[[], None]
    queue: str = ""
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    finished: bool = False
    idle: bool = False
    asleep_until: int = 0


@dataclass
class Trouble:
    """How much goes wrong: chances a call, and how often at most."""

    kill: float = 0.0
    kills_max: int = 0
    stall: float = 0.0
    stalls_max: int = 0
    stall_s: float = 80.0
    lose: float = 0.0


class Interleaver:
    """Runs a world with several workers a queue at once."""

    def __init__(self, world: World, seed: int, trouble: Trouble) -> None:
        self._world = world
        self._dice = random.Random(seed)
        self._trouble = trouble
        self._here = threading.local()
        self._tasks: list[_Task] = []
        self._tick_due = False
        self._over = False
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._minute = world.clock.ms // MINUTE_MS
        world.hooks.on_before = self._at_call
        world.hooks.lose = lambda _: self._dice.random() < trouble.lose

    def run(self, talk: dict[str, int], pollers: int = 2) -> None:
        """Lets conversations talk (key → messages) while workers work, until all is done."""
        for conversation, count in talk.items():
            self._add(f"caller {conversation}", self._caller(conversation, count))
        for queue in self._world.sources:
            for number in range(pollers):
                self._add(f"{queue} {number}", self._poller(queue), queue)
        self._add("sweep", self._sweep)
        self._add("time", self._time)
        threads = [
            threading.Thread(target=self._thread, args=(task,), daemon=True) for task in self._tasks
        ]
        for thread in threads:
            thread.start()
        self._tasks[0].turn.release()
        self._done.wait()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    # ---- the tasks

    def _caller(self, conversation: str, count: int) -> Callable[[], None]:
        def talk() -> None:
            for number in range(1, count + 1):
                self._world.say(conversation, f"{conversation}-{number}")

        return talk

    def _poller(self, queue: str) -> Callable[[], None]:
        def poll() -> None:
            me = self._here.task
            while True:
                me.idle = not self._world.poll(queue)
                self._pass_on()

        return poll

    def _sweep(self) -> None:
        me = self._here.task
        while True:
            me.idle = not self._tick_due
            if self._tick_due:
                self._tick_due = False
                self._world.tick()
            self._pass_on()

    def _time(self) -> None:
        """Time jumps when nobody has anything to do; on whole minutes a tick is due."""
        world = self._world
        until = world.clock.ms + MINUTES_MAX * MINUTE_MS
        me = self._here.task
        while True:
            now = world.clock.ms
            if now // MINUTE_MS != self._minute:
                self._minute = now // MINUTE_MS
                self._tick_due = world.sweeping and world.something_due()
            elif self._nothing_to_do(me):
                if world.done and not any(task.asleep_until > now for task in self._tasks):
                    return
                assert now < until, world.waiting()
                wakes = [task.asleep_until for task in self._tasks if task.asleep_until > now]
                world.clock.ms = min([world.next_event(), *wakes])
            self._pass_on()

    def _nothing_to_do(self, me: _Task) -> bool:
        now = self._world.clock.ms
        if any(
            self._world.shows(task.queue) and task.asleep_until <= now
            for task in self._tasks
            if task.queue
        ):
            return False  # somebody who is awake would find a message
        return all(
            task is me or task.finished or task.idle or task.asleep_until > now
            for task in self._tasks
        )

    # ---- what happens at a call

    def _at_call(self, site: Site) -> None:
        task = getattr(self._here, "task", None)
        if task is None:
            return
        task.idle = task.idle and not site.function
        self._pass_on()
        if not site.function:
            return
        trouble = self._trouble
        if trouble.kills_max and self._dice.random() < trouble.kill:
            trouble.kills_max -= 1
            raise Killed(site.name)
        if trouble.stalls_max and self._dice.random() < trouble.stall:
            trouble.stalls_max -= 1
            task.asleep_until = self._world.clock.ms + int(trouble.stall_s * 1000)
            self._pass_on()

    # ---- the baton

    def _add(self, name: str, body: Callable[[], None], queue: str = "") -> None:
        self._tasks.append(_Task(name, body, queue))

    def _thread(self, task: _Task) -> None:
        self._here.task = task
        task.turn.acquire()
        try:
            if not self._over:
                task.body()
                if task.name == "time":
                    self._over = True
        except _OverError:
            pass
        except BaseException as error:  # noqa: BLE001 - told to the thread that waits
            self._error = self._error or error
            self._over = True
        task.finished = True
        self._give_on()

    def _give_on(self) -> None:
        """Gives the baton to somebody; once all is over, to each in turn so that it unwinds."""
        left = [task for task in self._tasks if not task.finished]
        if not left:
            self._done.set()
            return
        self._choose(left).turn.release()

    def _choose(self, left: list[_Task]) -> _Task:
        now = self._world.clock.ms
        awake = [task for task in left if task.asleep_until <= now]
        return self._dice.choice(awake or left)

    def _pass_on(self) -> None:
        me = self._here.task
        if self._over:
            raise _OverError
        chosen = self._choose([task for task in self._tasks if not task.finished])
        if chosen is not me:
            chosen.turn.release()
            me.turn.acquire()
        if self._over:
            raise _OverError
