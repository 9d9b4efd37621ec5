"""Owns the reading of `Retry-After` (RFC 9110 §10.2.3): seconds, or a date.

Refuses to pass on nonsense: whatever is neither of the two asks for nothing.
"""

from __future__ import annotations

import math
from datetime import UTC
from email.utils import parsedate_to_datetime

from mesh.kernel.limits import RETRY_AFTER_S_MAX


def seconds_of(text: str, now_ms: int, most_s: float = RETRY_AFTER_S_MAX) -> float | None:
    """How long `text` asks to be left alone, from 0 to `most_s`; None for nonsense."""
    try:
        asked_s = float(text)
    except ValueError:
        return _until(text, now_ms, most_s)
    return _bounded(asked_s, most_s)


def milliseconds_of(text: str) -> float | None:
    """The same, in seconds, for the `retry-after-ms` that some model APIs send beside it."""
    try:
        return _bounded(float(text) / 1000, RETRY_AFTER_S_MAX)
    except ValueError:
        return None


def _until(text: str, now_ms: int, most_s: float) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:  # RFC 9110 §5.6.7: a date without a zone is in UTC
            moment = moment.replace(tzinfo=UTC)
        return _bounded(moment.timestamp() - now_ms / 1000, most_s)
    except (TypeError, ValueError, OverflowError):
        return None


def _bounded(asked_s: float, most_s: float) -> float | None:
    return None if math.isnan(asked_s) else max(0.0, min(asked_s, float(most_s)))
