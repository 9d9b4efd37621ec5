"""Owns how a worker function takes doorbells from SQS: one at a time, failures told one by one.

Refuses to read anything but whom the bell is for: rows say what the work is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from mesh.kernel.clock import Clock
from mesh.kernel.log import Log, error_name
from mesh.storage.queues import Doorbell

Work = Callable[[Doorbell, int], None]
"""Works for a bell until a time (Unix ms)."""


def answer_doorbells(
    work: Work, clock: Clock, log: Log, stop_before_limit_ms: int
) -> Callable[[Mapping[str, Any], Any], dict[str, Any]]:
    """A Lambda entry point for an SQS trigger with partial batch failure.

    `work` gets each bell, and the time at which it must let go: so long before the function's limit
    that what it has begun can be ended. A bell whose work raised is told as failed, and comes
    again.
    """
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)

    def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        stop_at = clock.now_ms() + context.get_remaining_time_in_millis() - stop_before_limit_ms

        def answer(record: SQSRecord) -> None:
            try:
                bell = Doorbell.read(record.body)
            except ValueError:
                log("doorbell.unreadable")
                return  # it would come again as unreadable as it is
            try:
                work(bell, stop_at)
            except Exception as error:
                log(
                    "doorbell.failed",
                    conversation_id=bell.conversation_id,
                    error=error_name(error),
                )
                raise

        answered: Any = process_partial_response(
            event=dict(event), record_handler=answer, processor=processor, context=context
        )
        result: dict[str, Any] = answered
        return result

    return handler
