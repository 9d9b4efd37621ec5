"""Owns the embedded EventBridge: buses, and the events that were put to them, newest last.

Refuses what EventBridge refuses: more than ten entries, too many bytes, an entry without source,
type or a JSON object as its detail. Nothing goes on from here: no rule reads a bus.
"""

from __future__ import annotations

import json
import random
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from infra.local.aws.wire import Answer, AwsError, Json
from mesh.kernel.clock import Clock

ENTRIES_MAX: Final = 10
BYTES_MAX: Final = 256 * 1024
TIME_BYTES: Final = 14
"""What a `Time` counts for, whatever it says."""
KEPT: Final = 1_000
"""Events that a bus remembers, so that a stack that runs for weeks does not grow."""
DEFAULT_BUS: Final = "default"

_REQUIRED: Final = ("Source", "DetailType", "Detail")


@dataclass(frozen=True, slots=True)
class PutEvent:
    """An event as a rule would match it."""

    id: str
    at_ms: int
    source: str
    detail_type: str
    detail: dict[str, Any] = field(repr=False)


class EventBridge:
    """Every bus, behind a lock. The account's default one is always there."""

    def __init__(self, clock: Clock, dice: random.Random) -> None:
        self._clock = clock
        self._dice = dice
        self._lock = threading.Lock()
        self._buses: dict[str, deque[PutEvent]] = {DEFAULT_BUS: deque(maxlen=KEPT)}

    def create(self, name: str) -> None:
        """Makes a bus."""
        self._buses.setdefault(name, deque(maxlen=KEPT))

    def events(self, bus: str = DEFAULT_BUS) -> list[PutEvent]:
        """What was put to a bus, oldest first."""
        with self._lock:
            return list(self._buses[bus])

    def call(self, operation: str, body: Json) -> Answer:
        """Carries out one operation; raises AwsError."""
        if operation != "PutEvents":
            raise AwsError("UnknownOperationException", f"the embedded AWS has no {operation}")
        entries = body["Entries"]
        if not 1 <= len(entries) <= ENTRIES_MAX:
            raise AwsError(
                "ValidationException",
                "1 validation error detected: Value at 'entries' failed to satisfy constraint:"
                f" Member must have length less than or equal to {ENTRIES_MAX}",
            )
        if sum(map(_bytes_of, entries)) > BYTES_MAX:
            raise AwsError(
                "ValidationException", "Total size of the entries in the request is over the limit."
            )
        buses = [entry.get("EventBusName", DEFAULT_BUS).rpartition("/")[2] for entry in entries]
        for bus in buses:
            if bus not in self._buses:
                raise AwsError("ResourceNotFoundException", f"Event bus {bus} does not exist.")
        with self._lock:
            answers = [
                self._put(self._buses[bus], entry)
                for bus, entry in zip(buses, entries, strict=True)
            ]
        failed = sum("ErrorCode" in answer for answer in answers)
        return Answer({"FailedEntryCount": failed, "Entries": answers})

    def _put(self, bus: deque[PutEvent], entry: Json) -> Json:
        """Takes one entry, or says why not: others of the same request go on."""
        for name in _REQUIRED:
            if not entry.get(name):
                return _refused(
                    "InvalidArgument",
                    f"Parameter {name} is not valid. Reason: {name} is a required argument.",
                )
        if entry["Source"].startswith("aws."):
            return _refused("NotAuthorizedForSourceException", "Not authorized for the source.")
        try:
            detail = json.loads(entry["Detail"])
        except ValueError:
            detail = None
        if not isinstance(detail, dict):
            return _refused("MalformedDetail", "Detail is malformed.")
        event_id = str(UUID(int=self._dice.getrandbits(128), version=4))
        bus.append(
            PutEvent(event_id, self._clock.now_ms(), entry["Source"], entry["DetailType"], detail)
        )
        return {"EventId": event_id}


def _bytes_of(entry: Json) -> int:
    """What an entry counts for, as EventBridge's guide works it out."""
    texts = [entry.get(name) or "" for name in _REQUIRED] + list(entry.get("Resources") or ())
    return sum(len(text.encode()) for text in texts) + (TIME_BYTES if "Time" in entry else 0)


def _refused(code: str, message: str) -> Json:
    return {"ErrorCode": code, "ErrorMessage": message}
