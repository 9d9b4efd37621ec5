"""Owns one queue: its messages, their visibility, order, deduplication and redrive.

Refuses nothing by itself: what a request may say is `queues`'s.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar, Final

DEDUPLICATION_MS: Final = 5 * 60 * 1000


@dataclass(slots=True)
class Message:
    """One message. `handle` names its newest receipt; an empty one says it was never received."""

    id: str
    body: str
    sent_ms: int
    visible_ms: int
    sequence: int
    group: str | None = None
    deduplication: str | None = None
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    system: dict[str, str] = field(default_factory=dict)
    received: int = 0
    first_received_ms: int = 0
    handle: str = ""
    gone: bool = False


@dataclass(slots=True)
class Queue:
    """A queue, its settings and its messages. Not safe under threads: its owner holds a lock."""

    listeners: ClassVar[list[Callable[[Message], None]]] = []
    """Who is shown every message of every queue, as it is taken in."""

    name: str
    fifo: bool
    visibility_s: int
    delay_s: int = 0
    retention_s: int = 4 * 24 * 3600
    max_receives: int | None = None
    dead: Queue | None = None
    by_handle: dict[str, Message] = field(default_factory=dict)
    _waiting: list[tuple[int, int, int, Message]] = field(default_factory=list)
    _ready: list[tuple[int, int, Message]] = field(default_factory=list)
    _ticks: count[int] = field(default_factory=count)
    _groups: dict[str, deque[Message]] = field(default_factory=dict)
    _seen: dict[tuple[str, str], tuple[int, Message]] = field(default_factory=dict)

    def duplicate_of(self, group: str, deduplication: str, now: int) -> Message | None:
        """The message sent with these ids in the last five minutes, deleted or not."""
        while self._seen:
            oldest = next(iter(self._seen))
            if now - self._seen[oldest][0] < DEDUPLICATION_MS:
                break
            del self._seen[oldest]
        found = self._seen.get((group, deduplication))
        return None if found is None else found[1]

    def put(self, message: Message, now: int) -> None:
        """Takes in a message."""
        for listen in self.listeners:
            listen(message)
        if self.fifo:
            group = message.group or ""
            if message.deduplication is not None:
                self._seen[group, message.deduplication] = (now, message)
            self._groups.setdefault(group, deque()).append(message)
        else:
            self._queue(message)

    def _queue(self, message: Message) -> None:
        entry = (message.visible_ms, message.sequence, next(self._ticks), message)
        heapq.heappush(self._waiting, entry)

    def take(
        self, wanted: int, now: int, receipt: Callable[[], str], visibility_s: int
    ) -> list[Message]:
        """Up to `wanted` visible messages, now hidden; what was received too often is redriven."""
        taken: list[Message] = []
        for message in self._visible(now):
            if now - message.sent_ms >= self.retention_s * 1000:
                self.remove(message)
                continue
            if self.max_receives is not None and message.received >= self.max_receives:
                self._redrive(message, now)
                continue
            self.by_handle.pop(message.handle, None)
            message.received += 1
            message.first_received_ms = message.first_received_ms or now
            message.handle = receipt()
            self.by_handle[message.handle] = message
            self.hide(message, now + visibility_s * 1000)
            taken.append(message)
            if len(taken) == wanted:
                break
        return taken

    def _visible(self, now: int) -> Iterator[Message]:
        if self.fifo:
            yield from self._visible_in_groups(now)
            return
        while self._waiting and self._waiting[0][0] <= now:
            entry = heapq.heappop(self._waiting)
            _, sequence, tick, message = entry
            if _stands(*entry):
                heapq.heappush(self._ready, (sequence, tick, message))
        while self._ready:
            message = heapq.heappop(self._ready)[-1]
            if not message.gone and message.visible_ms <= now:
                yield message

    def _visible_in_groups(self, now: int) -> Iterator[Message]:
        """Messages in order; a group stops at its first message that is not visible."""
        for group in list(self._groups):
            for message in list(self._groups[group]):
                if message.visible_ms > now:
                    break
                yield message

    def hide(self, message: Message, until_ms: int) -> None:
        """Makes a message visible at `until_ms` and not before."""
        message.visible_ms = until_ms
        if not self.fifo:
            self._queue(message)

    def remove(self, message: Message) -> None:
        """Deletes a message."""
        message.gone = True
        self.by_handle.pop(message.handle, None)
        if self.fifo:
            waiting = self._groups[message.group or ""]
            waiting.remove(message)
            if not waiting:
                del self._groups[message.group or ""]

    def _redrive(self, message: Message, now: int) -> None:
        self.remove(message)
        if self.dead is None:
            return
        moved = Message(
            id=message.id,
            body=message.body,
            sent_ms=message.sent_ms,
            visible_ms=now,
            sequence=message.sequence,
            group=message.group,
            deduplication=message.deduplication,
            attributes=message.attributes,
            system={**message.system, "DeadLetterQueueSourceArn": arn(self.name)},
        )
        self.dead.put(moved, now)

    def messages(self) -> list[Message]:
        """Every message that is not deleted, in no order."""
        if self.fifo:
            return [message for group in self._groups.values() for message in group]
        found = {id(entry[-1]): entry[-1] for entry in self._waiting}
        found |= {id(entry[-1]): entry[-1] for entry in self._ready}
        return [each for each in found.values() if not each.gone]

    def next_visible_ms(self) -> int | None:
        """The earliest moment at which a receive would find something, or None."""
        if self.fifo:
            return min((group[0].visible_ms for group in self._groups.values()), default=None)
        while self._waiting and not _stands(*self._waiting[0]):
            heapq.heappop(self._waiting)
        while self._ready and self._ready[0][-1].gone:
            heapq.heappop(self._ready)
        shows = [self._ready[0][-1].visible_ms] if self._ready else []
        shows += [self._waiting[0][0]] if self._waiting else []
        return min(shows, default=None)


def _stands(due_ms: int, _sequence: int, _tick: int, message: Message) -> bool:
    """Whether an entry still says when its message shows: it is neither deleted nor hidden anew."""
    return not message.gone and message.visible_ms == due_ms


def arn(name: str) -> str:
    """The queue's ARN in the embedded region."""
    return f"arn:aws:sqs:eu-west-1:123456789012:{name}"
