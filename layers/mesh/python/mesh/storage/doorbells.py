"""Owns how a worker function takes doorbells from SQS: one at a time, failures told one by one.

Refuses to read anything but whom the bell is for: rows say what the work is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self, TypeVar

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from mesh.kernel.clock import Clock
from mesh.kernel.log import Log, error_name


class Readable(Protocol):
    """A bell that a queue message carries."""

    @classmethod
    def read(cls, body: str) -> Self:
        """ValueError when the message is none of this kind."""
        ...

    def told(self) -> dict[str, str]:
        """What a log says of it."""
        ...


_B = TypeVar("_B", bound=Readable)

Entry = Callable[[Mapping[str, Any], Any], dict[str, Any]]
"""A Lambda entry point for an SQS trigger."""


def answer_doorbells(
    kind: type[_B],
    work: Callable[[_B, int], None],
    clock: Clock,
    log: Log,
    stop_before_limit_ms: int,
) -> Entry:
    """A Lambda entry point for an SQS trigger with partial batch failure.

    `work` gets each bell of that kind, and the time (Unix ms) at which it must let go: so long
    before the function's limit that what it has begun can be ended. A bell whose work raised is
    told as failed, and comes again.
    """
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)

    def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        stop_at = clock.now_ms() + context.get_remaining_time_in_millis() - stop_before_limit_ms

        def answer(record: SQSRecord) -> None:
            try:
                bell = kind.read(record.body)
            except ValueError:
                log("doorbell.unreadable")
                return  # it would come again as unreadable as it is
            try:
                work(bell, stop_at)
            except Exception as error:
                log("doorbell.failed", error=error_name(error), **bell.told())
                raise

        answered: Any = process_partial_response(
            event=dict(event), record_handler=answer, processor=processor, context=context
        )
        result: dict[str, Any] = answered
        return result

    return handler
