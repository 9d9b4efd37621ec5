"""Owns how an attempt ended, from what the guarded way out answered or why it did not.

Refuses to look at a body: a status line decides, and a failure's kind. Contract §2.1.
"""

from __future__ import annotations

from typing import assert_never

from mesh.kernel import retry_after
from mesh.outbox.schedule import Outcome
from mesh.records.outbox import AttemptEnd
from mesh.security.egress import EgressFailureKind


def of_status(status: int, asked: str | None, now_ms: int) -> Outcome:
    """How an attempt ended that got an answer, which `asked` to be left alone by `Retry-After`. A
    body never decides."""
    if 200 <= status < 300:
        return Outcome(AttemptEnd.DELIVERED, status)
    wait = _retry_after_ms(asked, now_ms) if status in (429, 503) else 0
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
    """What `Retry-After` asks for, at most an hour; 0 for nonsense or the past."""
    asked_s = None if value is None else retry_after.seconds_of(value, now_ms)
    return 0 if asked_s is None else int(asked_s * 1000)
