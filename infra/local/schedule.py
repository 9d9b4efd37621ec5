"""Owns the schedule: which functions tick, when, and with what document.

Refuses to promise more than EventBridge Scheduler does: at least once, about on time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from infra import topology
from infra.local.runtime import FunctionError
from mesh.kernel.clock import MINUTE_MS, Clock, rfc3339
from mesh.kernel.ids import Ids

Invoke = Callable[[str, dict[str, Any]], Any]

SCHEDULED: Final = tuple(f for f in topology.FUNCTIONS if f.schedule_minutes is not None)


def tick_event(function: topology.Function, clock: Clock, ids: Ids) -> dict[str, Any]:
    """What EventBridge Scheduler sends to a function whose schedule names no input."""
    return {
        "version": "0",
        "id": ids.ulid(),
        "detail-type": "Scheduled Event",
        "source": "aws.scheduler",
        "account": "000000000000",
        "time": rfc3339(clock.now_ms()),
        "region": "local",
        "resources": [f"arn:aws:scheduler:local:000000000000:schedule/default/{function.name}"],
        "detail": "{}",
    }


class Schedule:
    """Ticks every scheduled function; by hand (`tick`), or on whole minutes in a thread."""

    def __init__(self, invoke: Invoke, clock: Clock, ids: Ids) -> None:
        self._invoke = invoke
        self._clock = clock
        self._ids = ids
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="schedule", daemon=True)

    def tick(self) -> None:
        """Invokes every scheduled function once. One that fails is tried again at the next tick."""
        minute = self._clock.now_ms() // MINUTE_MS
        for function in SCHEDULED:
            if minute % (function.schedule_minutes or 1) == 0:
                try:
                    self._invoke(function.name, tick_event(function, self._clock, self._ids))
                except FunctionError:
                    continue  # it is in the function's log

    def start(self) -> None:
        """Starts ticking on whole minutes."""
        self._thread.start()

    def stop(self) -> None:
        """Ticks no more; does not wait."""
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Waits for a tick under way. False when time ran out first."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.wait((MINUTE_MS - self._clock.now_ms() % MINUTE_MS) / 1000):
            self.tick()
