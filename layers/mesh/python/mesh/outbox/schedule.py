"""Owns what follows an attempt: delivered, tried again at a time, or dead with a reason.

Refuses I/O and clocks: it is arithmetic over the entry, the attempt's end and a drawn number.
Contract §2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mesh.kernel.ids import Random
from mesh.kernel.limits import (
    ATTEMPTS_CLIENT_ERROR_MAX,
    ATTEMPTS_HEALTHY_MAX,
    ATTEMPTS_REFUSED_ADDRESS_MAX,
    ENTRY_AGE_MS_MAX,
    RETRY_DELAYS_S,
    RETRY_JITTER,
)
from mesh.records.install import Endpoint
from mesh.records.outbox import AttemptEnd, Entry, EntryState

ENDPOINT_FAILURES: Final = frozenset(
    {
        AttemptEnd.TIMEOUT,
        AttemptEnd.DNS,
        AttemptEnd.CONNECT,
        AttemptEnd.TLS,
        AttemptEnd.PROTOCOL,
        AttemptEnd.SERVER_ERROR,
        AttemptEnd.THROTTLED,
    }
)
"""Ends that speak of the endpoint and not of the entry."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended, and what the receiver asked for."""

    end: AttemptEnd
    http_status: int | None = None
    detail: str | None = None
    retry_after_ms: int = 0


@dataclass(frozen=True, slots=True)
class Next:
    """What becomes of the entry. `due_time` counts while it is pending."""

    state: EntryState
    reason: str | None
    due_time: int
    not_before: int
    counted: int
    refused_in_row: int
    client_errors: int


def after_attempt(
    entry: Entry, outcome: Outcome, *, probe: bool, age_ms: int, now_ms: int, random: Random
) -> Next:
    """What becomes of `entry`, whose attempt just ended with `outcome`.

    `probe` attempts of a degraded endpoint do not count to the ten. `age_ms` is the entry's age
    less the time in which it was held on purpose.
    """
    counted = entry.counted + (0 if probe else 1)
    refused = entry.refused_in_row + 1 if outcome.end is AttemptEnd.REFUSED_ADDRESS else 0
    client_errors = entry.client_errors + (outcome.end is AttemptEnd.CLIENT_ERROR)
    state, reason = EntryState.PENDING, None
    if outcome.end is AttemptEnd.DELIVERED:
        state = EntryState.DELIVERED
    elif outcome.end is AttemptEnd.GONE:
        state, reason = EntryState.DEAD, "gone"
    elif client_errors >= ATTEMPTS_CLIENT_ERROR_MAX:
        state, reason = EntryState.DEAD, "client_errors"
    elif refused >= ATTEMPTS_REFUSED_ADDRESS_MAX:
        state, reason = EntryState.DEAD, "refused_address"
    elif not probe and counted >= ATTEMPTS_HEALTHY_MAX:
        state, reason = EntryState.DEAD, "attempts_exhausted"
    elif age_ms >= ENTRY_AGE_MS_MAX:
        state, reason = EntryState.DEAD, "too_old"
    not_before = now_ms + outcome.retry_after_ms if outcome.retry_after_ms else 0
    return Next(
        state=state,
        reason=reason,
        due_time=max(now_ms + delay_ms(max(1, counted), random), not_before),
        not_before=not_before,
        counted=counted,
        refused_in_row=refused,
        client_errors=client_errors,
    )


def due_time(entry: Entry, endpoint: Endpoint) -> int:
    """When the head may be tried: what failed before its endpoint came back is due at once."""
    if entry.last_ended_at and entry.last_ended_at <= endpoint.recovered_at:
        return entry.not_before
    return entry.due_time


def delay_ms(failures: int, random: Random) -> int:
    """The delay after the n-th failure (n from 1), drawn within ten per cent."""
    delay_s = RETRY_DELAYS_S[min(failures, len(RETRY_DELAYS_S)) - 1]
    return int(delay_s * 1000 * random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER))
