"""Owns how an attempt ended, from what the guarded way out answered or why it did not.

Refuses to look at a body: a status line decides, and a failure's kind. Contract §2.1.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import assert_never

from mesh.kernel.limits import RETRY_AFTER_S_MAX
from mesh.outbox.schedule import Outcome
from mesh.records.outbox import AttemptEnd
from mesh.security.egress import EgressFailureKind


def of_status(status: int, retry_after: str | None, now_ms: int) -> Outcome:
    """How an attempt ended that got an answer. A body never decides."""
    if 200 <= status < 300:
        return Outcome(AttemptEnd.DELIVERED, status)
    wait = _retry_after_ms(retry_after, now_ms) if status in (429, 503) else 0
    match status:
        case 410:
            end = AttemptEnd.GONE
        case 408:
            end = AttemptEnd.TIMEOUT
        case 425 | 429:
            end = AttemptEnd.THROTTLED
        case _ if 300 <= status < 400:
            end = AttemptEnd.REDIRECT
        case _ if 400 <= status < 500:
            end = AttemptEnd.CLIENT_ERROR
        case _:
            end = AttemptEnd.SERVER_ERROR
    return Outcome(end, status, retry_after_ms=wait)


def of_failure(kind: EgressFailureKind) -> Outcome:
    """How an attempt ended that got none."""
    match kind:
        case EgressFailureKind.REFUSED_URL | EgressFailureKind.REFUSED_ADDRESS:
            end = AttemptEnd.REFUSED_ADDRESS
        case EgressFailureKind.DNS | EgressFailureKind.DNS_TIMEOUT:
            end = AttemptEnd.DNS
        case EgressFailureKind.CONNECT | EgressFailureKind.CLOSED:
            end = AttemptEnd.CONNECT
        case EgressFailureKind.TLS:
            end = AttemptEnd.TLS
        case EgressFailureKind.TIMEOUT:
            end = AttemptEnd.TIMEOUT
        case (
            EgressFailureKind.PROTOCOL
            | EgressFailureKind.HEAD_TOO_LARGE
            | EgressFailureKind.BODY_TOO_LARGE
        ):
            end = AttemptEnd.PROTOCOL
        case _:
            assert_never(kind)
    return Outcome(end, detail=kind.value)


def _retry_after_ms(value: str | None, now_ms: int) -> int:
    """What `Retry-After` asks for (RFC 9110 §10.2.3), at most an hour; 0 for nonsense or the
    past."""
    if value is None:
        return 0
    text = value.strip()
    if text.isascii() and text.isdigit():
        wait_ms = int(text[:9]) * 1000
    else:
        try:
            asked = parsedate_to_datetime(text)
            if asked.tzinfo is None:  # RFC 9110 §5.6.7: a date without a zone is in UTC
                asked = asked.replace(tzinfo=UTC)
            wait_ms = int(asked.timestamp() * 1000) - now_ms
        except (TypeError, ValueError, OverflowError):
            return 0
    return max(0, min(wait_ms, RETRY_AFTER_S_MAX * 1000))
