"""Owns what SQS requests may say and how its answers are written.

Refuses illegal ids, bodies and receipts, with the errors of SQS.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from infra.local.aws.messages import Message
from infra.local.aws.wire import AwsError, Json

MESSAGE_BYTES_MAX: Final = 256 * 1024
VISIBILITY_S_MAX: Final = 12 * 3600

_IDENTIFIER = re.compile(r"[A-Za-z0-9!-/:-@\[-`{-~]{1,128}\Z")
_BODY = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+\\Z")


def bad(message: str, code: str = "InvalidParameterValue") -> AwsError:
    """An error of SQS, under the name that botocore shows."""
    return AwsError(code, message, query_code=code)


def check_body(text: str) -> None:
    """Raises AwsError for an empty, long or illegal body."""
    if not text:
        raise bad("The request must contain the parameter MessageBody.", "MissingParameter")
    if len(text.encode("utf-8", "surrogatepass")) > MESSAGE_BYTES_MAX:
        raise bad(
            "One or more parameters are invalid. Reason: Message must be shorter than "
            f"{MESSAGE_BYTES_MAX} bytes."
        )
    if not _BODY.match(text):
        raise bad("Invalid characters found in the message body.", "InvalidMessageContents")


def identifier(body: Json, name: str) -> str | None:
    """The group or deduplication id that the request gives, or None."""
    value = body.get(name)
    if value is None:
        return None
    if not _IDENTIFIER.match(value):
        raise bad(
            f"Value for parameter {name} is invalid. Reason: {name} can only include alphanumeric "
            "and punctuation characters. 1 to 128 in length."
        )
    return str(value)


def visibility(value: int | None) -> int:
    """The visibility time-out that the request gives, in seconds."""
    if value is None:
        raise bad("The request must contain the parameter VisibilityTimeout.", "MissingParameter")
    if not 0 <= value <= VISIBILITY_S_MAX:
        raise bad(
            f"Value {value} for parameter VisibilityTimeout is invalid. Reason: Must be between 0 "
            f"and {VISIBILITY_S_MAX}."
        )
    return value


def handle_of(body: Json) -> str:
    """The receipt that the request gives, well-formed."""
    handle = str(body.get("ReceiptHandle", ""))
    if not re.fullmatch(r"[0-9a-f]{64}", handle):
        raise AwsError(
            "ReceiptHandleIsInvalid",
            "The input receipt handle is invalid.",
            status=404,
            query_code="ReceiptHandleIsInvalid",
        )
    return handle


def system_attributes(body: Json) -> dict[str, str]:
    """The system attributes that the sender gives, such as the trace header."""
    given = body.get("MessageSystemAttributes") or {}
    return {name: value["StringValue"] for name, value in given.items()}


def _md5(text: str) -> str:
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def sent(message: Message, text: str, fifo: bool) -> Json:
    """What a send answers."""
    out = {"MessageId": message.id, "MD5OfMessageBody": _md5(text)}
    if fifo:
        out["SequenceNumber"] = f"{message.sequence:020d}"
    return out


def received(message: Message, body: Json) -> Json:
    """What a receive says of one message, with the attributes that `body` asks for."""
    out: Json = {
        "MessageId": message.id,
        "ReceiptHandle": message.handle,
        "Body": message.body,
        "MD5OfBody": _md5(message.body),
    }
    known = {
        "SenderId": "AIDALOCAL",
        "SentTimestamp": str(message.sent_ms),
        "ApproximateReceiveCount": str(message.received),
        "ApproximateFirstReceiveTimestamp": str(message.first_received_ms),
        **message.system,
    }
    if message.group is not None:
        known["MessageGroupId"] = message.group
    if message.deduplication is not None:
        known["MessageDeduplicationId"] = message.deduplication
        known["SequenceNumber"] = f"{message.sequence:020d}"
    asked = {*(body.get("MessageSystemAttributeNames") or ()), *(body.get("AttributeNames") or ())}
    if shown := {k: v for k, v in known.items() if k in asked or "All" in asked}:
        out["Attributes"] = shown
    if message.attributes and body.get("MessageAttributeNames"):
        out["MessageAttributes"] = message.attributes
    return out
