"""Owns the noun rewrap: how far the wrapping of all data keys under the newest master key is."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class RewrapStatus(StrEnum):
    """Where a rewrap stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """It went through, and some keys did not open in their place."""


class Rewrap(msgspec.Struct, frozen=True, kw_only=True):
    """The one row of it. Its place is kept after each few keys, so that it goes on there."""

    token: str
    """Of this walk through all owners; each later one has another."""
    status: RewrapStatus
    slug: str | None = None
    """The agent that was reached; None before the instance key is done, empty right after."""
    row: str | None = None
    """The last row of that agent that is done; None when the agent is."""
    done: int = 0
    total: int
    """Owners: the instance, and each agent that there was when it began."""
    rewrapped: int = 0
    unopenable: int = 0
    started_at: int
    ended_at: int | None = None
