"""Owns the reading of `Retry-After` (RFC 9110 §10.2.3): seconds, or a date.

Refuses to pass on nonsense: whatever is neither of the two asks for nothing.
"""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from mesh.kernel.limits import RETRY_AFTER_S_MAX

_SECONDS: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", re.ASCII)
"""The RFC knows no fractions; some APIs send them."""


def seconds_of(text: str, now_ms: int, most_s: float = RETRY_AFTER_S_MAX) -> float | None:
    """How long `text` asks to be left alone, from 0 to `most_s`; None for nonsense."""
    asked_s = _number(text)
    return _until(text, now_ms, most_s) if asked_s is None else min(asked_s, float(most_s))


def milliseconds_of(text: str) -> float | None:
    """The same, in seconds, for the `retry-after-ms` that some model APIs send beside it."""
    asked_ms = _number(text)
    return None if asked_ms is None else min(asked_ms / 1000, float(RETRY_AFTER_S_MAX))


def _number(text: str) -> float | None:
    found = text.strip()
    if found.isascii() and found.isdigit():
        return float(found[:12])  # more of them are beyond every bound
    return float(found) if _SECONDS.fullmatch(found) else None


def _until(text: str, now_ms: int, most_s: float) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:  # RFC 9110 §5.6.7: a date without a zone is in UTC
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, min(moment.timestamp() - now_ms / 1000, float(most_s)))
    except (TypeError, ValueError, OverflowError):
        return None
