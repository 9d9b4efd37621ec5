"""Owns the noun epoch: the span from one restore of the instance to the next."""

from __future__ import annotations

import msgspec

FIRST_EPOCH = 1
"""What an instance is in until its first restore; rows that name no epoch are of this one."""


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """The row `EPOCH` of the instance. There is none until the first restore."""

    epoch: int = FIRST_EPOCH
    since: int | None = None
    """When it began (Unix ms); None for the first."""
    job_id: str | None = None
    """The job that holds the connectors and takes the agents over into it."""
