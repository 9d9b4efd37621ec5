"""Owns what Lambda's event source mapping does with a queue: receive, invoke, delete what passed.

Refuses to delete what failed: it comes back when its visibility ends, and goes to the dead-letter
queue after its last try, exactly as SQS does it. Batch size 1, partial batch failure reported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from infra import topology
from infra.local.runtime import FunctionError
from mesh.kernel.log import Log, error_name

Invoke = Callable[[str, dict[str, Any]], Any]

LONG_POLL_S: Final = 20
"""How long an idle source waits in one receive."""
PAUSE_S: Final = 0.5
"""How long it waits for room, and after a receive that failed."""


class Source:
    """One queue, and the function that consumes it."""

    def __init__(self, sqs: Any, queue: topology.Queue, url: str, function: str, invoke: Invoke):
        self.queue = queue
        self.function = function
        self._sqs = sqs
        self._url = url
        self._invoke = invoke

    def receive(self, wait_s: int = 0) -> dict[str, Any] | None:
        """One message, which is then invisible for the queue's time; None when there is none."""
        answer = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=1,
            WaitTimeSeconds=wait_s,
            MessageSystemAttributeNames=["All"],
        )
        messages = answer.get("Messages") or []
        return messages[0] if messages else None

    def process(self, message: dict[str, Any]) -> bool:
        """Invokes the function with that message; deletes it when it passed. Whether it passed."""
        record = self._record(message)
        try:
            answer = self._invoke(self.function, {"Records": [record]})
        except FunctionError:
            return False
        if record["messageId"] in failed_items(answer, frozenset({record["messageId"]})):
            return False
        self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return True

    def poll_once(self) -> bool:
        """Receives and processes one message, without waiting. Whether there was one."""
        message = self.receive()
        if message is None:
            return False
        self.process(message)
        return True

    def _record(self, message: dict[str, Any]) -> dict[str, Any]:
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": dict(message.get("Attributes") or {}),
            "messageAttributes": {},
            "md5OfBody": message.get("MD5OfBody", ""),
            "eventSource": "aws:sqs",
            "eventSourceARN": f"arn:aws:sqs:local:000000000000:{self.queue.physical_name}",
            "awsRegion": "local",
        }


def failed_items(answer: Any, received: frozenset[str]) -> frozenset[str]:
    """The message ids that a function reports as failed, by Lambda's rules.

    Nothing, or an empty list, is success. An identifier that is empty or was not received, or a
    list of another shape, fails the whole batch.
    """
    if answer is None:
        return frozenset()
    if not isinstance(answer, dict):
        return received
    items = answer.get("batchItemFailures")
    if items is None:
        return frozenset()
    if not isinstance(items, list):
        return received
    failed = {item.get("itemIdentifier") if isinstance(item, dict) else None for item in items}
    named = frozenset(name for name in failed if isinstance(name, str))
    return named if len(named) == len(failed) and named <= received else received


class Poller:
    """One thread that receives from a source, and a thread for each message while it is processed.

    A message is received only when there is room to process it, so that its visibility does not
    run out while it waits here.
    """

    def __init__(self, source: Source, concurrency: int, log: Log) -> None:
        self._source = source
        self._log = log
        self._room = threading.BoundedSemaphore(concurrency)
        self._concurrency = concurrency
        self._stop = threading.Event()
        name = f"poll-{source.queue.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts receiving."""
        self._thread.start()

    def stop(self) -> None:
        """Receives no more; does not wait."""
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Waits until nothing is received or processed any more. False when time ran out first."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        taken = 0
        while taken < self._concurrency and self._room.acquire(timeout=timeout_s):
            taken += 1
        for _ in range(taken):
            self._room.release()
        return taken == self._concurrency

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._room.acquire(timeout=PAUSE_S):
                continue
            message = self._receive()
            if message is None:
                self._room.release()
                continue
            threading.Thread(
                target=self._process,
                args=(message,),
                name=f"run-{self._source.function}",
                daemon=True,
            ).start()

    def _receive(self) -> dict[str, Any] | None:
        try:
            return self._source.receive(LONG_POLL_S)
        except Exception as error:  # noqa: BLE001 - a source outlives every failed receive
            self._log("receive_failed", function=self._source.function, error=error_name(error))
            self._stop.wait(PAUSE_S)
            return None

    def _process(self, message: dict[str, Any]) -> None:
        try:
            self._source.process(message)
        except Exception as error:  # noqa: BLE001 - the message comes back when its visibility ends
            self._log("delete_failed", function=self._source.function, error=error_name(error))
        finally:
            self._room.release()
