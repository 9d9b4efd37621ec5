"""Owns the embedded SQS: its JSON protocol, AWS's limits, receipts and long polling.

Refuses what SQS refuses: illegal group ids, delays on FIFO queues, stale receipts. With a
simulated clock it never waits: a receive answers at once with what is visible.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from itertools import count
from typing import Final
from uuid import UUID

from infra.local.aws.message_wire import (
    bad,
    check_body,
    handle_of,
    identifier,
    received,
    sent,
    system_attributes,
    visibility,
)
from infra.local.aws.messages import Message, Queue, arn
from infra.local.aws.wire import Answer, AwsError, Json
from mesh.kernel.clock import Clock, SystemClock

DELAY_S_MAX: Final = 900
URL_PREFIX: Final = "https://sqs.eu-west-1.amazonaws.com/123456789012/"

_NOT_THERE: Final = "Message does not exist or is not available for visibility timeout change."


class Sqs:
    """Every queue, behind one condition. `dice` mints message ids and receipts."""

    def __init__(self, clock: Clock, dice: random.Random) -> None:
        self.lateness_ms: Callable[[], int] = lambda: 0
        """How much later than asked the next message shows: a fault's hook."""
        self.doubled: Callable[[], bool] = lambda: False
        """Whether the next message of a standard queue is delivered twice: a fault's hook."""
        self._clock = clock
        self._waits = isinstance(clock, SystemClock)
        self._dice = dice
        self._changed = threading.Condition()
        self._closed = False
        self._queues: dict[str, Queue] = {}
        self._sequence = count(1)
        self._operations: dict[str, Callable[[Json], Json]] = {
            "SendMessage": self._send,
            "SendMessageBatch": self._send_batch,
            "ReceiveMessage": self._receive,
            "DeleteMessage": self._delete,
            "DeleteMessageBatch": self._delete_batch,
            "ChangeMessageVisibility": self._change,
            "GetQueueUrl": self._url,
            "GetQueueAttributes": self._attributes,
            "PurgeQueue": self._purge,
        }

    def create(
        self,
        name: str,
        *,
        fifo: bool = False,
        visibility_s: int = 30,
        delay_s: int = 0,
        retention_s: int = 4 * 24 * 3600,
        dead_letter: str | None = None,
        max_receives: int | None = None,
    ) -> str:
        """Makes a queue and answers its address; `dead_letter` names one that exists."""
        if fifo != name.endswith(".fifo"):
            raise ValueError("a FIFO queue's name ends in .fifo, and no other's does")
        dead = None if dead_letter is None else self._queues[dead_letter]
        if dead is not None and dead.fifo != fifo:
            raise ValueError("a dead-letter queue is of its source's kind")
        self._queues[name] = Queue(
            name, fifo, visibility_s, delay_s, retention_s, max_receives, dead
        )
        return URL_PREFIX + name

    def close(self) -> None:
        """Ends every wait; receives from now on answer at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def depth(self, name: str) -> tuple[int, int]:
        """Messages that are visible now, and those that are in flight or delayed."""
        with self._changed:
            now = self._clock.now_ms()
            messages = self._queues[name].messages()
            visible = sum(message.visible_ms <= now for message in messages)
            return visible, len(messages) - visible

    def next_visible_ms(self, name: str) -> int | None:
        """The earliest moment (Unix ms) at which a receive would find something, or None."""
        with self._changed:
            return self._queues[name].next_visible_ms()

    def call(self, operation: str, body: Json) -> Answer:
        """Carries out one operation; raises AwsError."""
        if operation not in self._operations:
            raise AwsError("UnknownOperationException", f"the embedded AWS has no {operation}")
        with self._changed:
            return Answer(self._operations[operation](body))

    def _queue(self, body: Json) -> Queue:
        name = str(body.get("QueueUrl", "")).removeprefix(URL_PREFIX)
        if name not in self._queues:
            raise AwsError(
                "QueueDoesNotExist",
                "The specified queue does not exist.",
                query_code="AWS.SimpleQueueService.NonExistentQueue",
            )
        return self._queues[name]

    def _send(self, body: Json) -> Json:
        queue = self._queue(body)
        text = str(body.get("MessageBody", ""))
        check_body(text)
        group = identifier(body, "MessageGroupId")
        deduplication = identifier(body, "MessageDeduplicationId")
        delay_s = self._delay(queue, body)
        now = self._clock.now_ms()
        if queue.fifo:
            if group is None:
                raise bad(
                    "The request must contain the parameter MessageGroupId.", "MissingParameter"
                )
            if deduplication is None:
                raise bad(
                    "The queue should either have ContentBasedDeduplication enabled or "
                    "MessageDeduplicationId provided explicitly"
                )
            if (first := queue.duplicate_of(group, deduplication, now)) is not None:
                return sent(first, text, queue.fifo)
        elif deduplication is not None:
            raise bad(
                "The request include parameter MessageDeduplicationId, which is not valid for "
                "this queue type"
            )
        visible_ms = now + delay_s * 1000 + self.lateness_ms()
        message = Message(
            id=str(UUID(int=self._dice.getrandbits(128), version=4)),
            body=text,
            sent_ms=now,
            visible_ms=visible_ms,
            sequence=next(self._sequence),
            group=group,
            deduplication=deduplication,
            attributes=body.get("MessageAttributes") or {},
            system=system_attributes(body),
        )
        queue.put(message, now)
        if not queue.fifo and self.doubled():
            twin = Message(
                message.id,
                text,
                now,
                visible_ms + self.lateness_ms(),
                next(self._sequence),
                group,
                attributes=message.attributes,
                system=message.system,
            )
            queue.put(twin, now)
        self._changed.notify_all()
        return sent(message, text, queue.fifo)

    def _delay(self, queue: Queue, body: Json) -> int:
        asked = body.get("DelaySeconds")
        if asked is None:
            return queue.delay_s
        if queue.fifo:
            raise bad(
                f"Value {asked} for parameter DelaySeconds is invalid. Reason: The request include "
                "parameter that is not valid for this queue type."
            )
        if not 0 <= asked <= DELAY_S_MAX:
            raise bad(
                f"Value {asked} for parameter DelaySeconds is invalid. Reason: DelaySeconds must "
                f"be >= 0 and <= {DELAY_S_MAX}."
            )
        return int(asked)

    def _send_batch(self, body: Json) -> Json:
        return self._batch(body, self._send)

    def _delete_batch(self, body: Json) -> Json:
        return self._batch(body, self._delete)

    def _batch(self, body: Json, one: Callable[[Json], Json]) -> Json:
        entries = body.get("Entries") or []
        ids = [entry["Id"] for entry in entries]
        if not entries:
            raise bad("There should be at least one entry in the request.", "EmptyBatchRequest")
        if len(entries) > 10:
            raise bad(
                "Maximum number of entries per request are 10.", "TooManyEntriesInBatchRequest"
            )
        if len(set(ids)) != len(ids):
            raise bad("Two or more batch entries have the same Id.", "BatchEntryIdsNotDistinct")
        out: Json = {"Successful": [], "Failed": []}
        for entry in entries:
            try:
                done = one({**entry, "QueueUrl": body["QueueUrl"]})
            except AwsError as problem:
                failed = {"Code": problem.code, "Message": problem.message, "SenderFault": True}
                out["Failed"].append({"Id": entry["Id"], **failed})
            else:
                out["Successful"].append({"Id": entry["Id"], **done})
        return out

    def _receive(self, body: Json) -> Json:
        queue = self._queue(body)
        wanted = body.get("MaxNumberOfMessages", 1)
        if not 1 <= wanted <= 10:
            raise bad(
                f"Value {wanted} for parameter MaxNumberOfMessages is invalid. Reason: Must be "
                "between 1 and 10, if provided."
            )
        visibility_s = visibility(body.get("VisibilityTimeout", queue.visibility_s))
        wait_s = body.get("WaitTimeSeconds", 0)
        if not 0 <= wait_s <= 20:
            raise bad(
                "Value for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20"
            )
        until = self._clock.now_ms() + wait_s * 1000
        while True:
            now = self._clock.now_ms()
            taken = queue.take(wanted, now, self._receipt, visibility_s)
            if taken or not self._waits or self._closed or now >= until:
                return {"Messages": [received(each, body) for each in taken]} if taken else {}
            coming = queue.next_visible_ms()
            wake = until if coming is None else min(until, max(coming, now + 1))
            self._changed.wait((wake - now) / 1000)

    def _receipt(self) -> str:
        return f"{self._dice.getrandbits(256):064x}"

    def _delete(self, body: Json) -> Json:
        queue, handle = self._queue(body), handle_of(body)
        message = queue.by_handle.get(handle)
        # A receipt that is not the newest succeeds and deletes nothing, as SQS has it.
        if message is not None:
            if queue.fifo and message.visible_ms <= self._clock.now_ms():
                raise bad(
                    "Value for parameter ReceiptHandle is invalid. Reason: The receipt handle has "
                    "expired."
                )
            queue.remove(message)
            self._changed.notify_all()
        return {}

    def _change(self, body: Json) -> Json:
        queue, handle = self._queue(body), handle_of(body)
        visibility_s = visibility(body.get("VisibilityTimeout"))
        message = queue.by_handle.get(handle)
        now = self._clock.now_ms()
        if message is None:
            raise bad(f"Value for parameter ReceiptHandle is invalid. Reason: {_NOT_THERE}")
        if message.visible_ms <= now:
            raise AwsError(
                "MessageNotInflight",
                "The specified message isn't in flight.",
                query_code="AWS.SimpleQueueService.MessageNotInflight",
            )
        queue.hide(message, now + visibility_s * 1000)
        self._changed.notify_all()
        return {}

    def _url(self, body: Json) -> Json:
        url = URL_PREFIX + str(body.get("QueueName", ""))
        self._queue({"QueueUrl": url})
        return {"QueueUrl": url}

    def _attributes(self, body: Json) -> Json:
        queue = self._queue(body)
        now = self._clock.now_ms()
        messages = queue.messages()
        hidden = [message for message in messages if message.visible_ms > now]
        known = {
            "QueueArn": arn(queue.name),
            "VisibilityTimeout": str(queue.visibility_s),
            "DelaySeconds": str(queue.delay_s),
            "ApproximateNumberOfMessages": str(len(messages) - len(hidden)),
            "ApproximateNumberOfMessagesNotVisible": str(sum(m.received > 0 for m in hidden)),
            "ApproximateNumberOfMessagesDelayed": str(sum(m.received == 0 for m in hidden)),
        }
        asked = set(body.get("AttributeNames") or ())
        return {
            "Attributes": {k: v for k, v in known.items() if k in asked or "All" in asked},
        }

    def _purge(self, body: Json) -> Json:
        queue = self._queue(body)
        for message in queue.messages():
            queue.remove(message)
        return {}
