"""Owns what the doctor finds: how bad it is, what it is about, and the command that mends it."""

from __future__ import annotations

from typing import Literal

from mesh.kernel.clock import DAY_MS, MINUTE_MS
from mesh.operator.shapes.doctor import FindingShown

HOUR_MS = 60 * MINUTE_MS


def error(code: str, subject: str, text: str, command: str | None = None) -> FindingShown:
    """Something does not work."""
    return _finding("error", code, subject, text, command)


def warning(code: str, subject: str, text: str, command: str | None = None) -> FindingShown:
    """Something will not work for long, or works for some alone."""
    return _finding("warning", code, subject, text, command)


def note(code: str, subject: str, text: str, command: str | None = None) -> FindingShown:
    """Something that is on purpose now and then, and forgotten at other times."""
    return _finding("note", code, subject, text, command)


def _finding(
    severity: Literal["error", "warning", "note"],
    code: str,
    subject: str,
    text: str,
    command: str | None,
) -> FindingShown:
    return FindingShown(severity=severity, code=code, subject=subject, text=text, command=command)


def span(ms: int) -> str:
    """A span of time in words, to its greatest whole unit."""
    for unit_ms, word in ((DAY_MS, "day"), (HOUR_MS, "hour"), (MINUTE_MS, "minute")):
        if ms >= unit_ms:
            count = ms // unit_ms
            return f"{count} {word}{'' if count == 1 else 's'}"
    return "less than a minute"
