"""Owns the noun instance: what an admin sets for every agent at once.

Refuses open secrets: the operators' webhook and its signing secret stay sealed here.
"""

from __future__ import annotations

import msgspec

from mesh.records.install import Sealed


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Where operational notices are posted, and what signs them, both sealed."""

    url: Sealed
    secret: Sealed
    """Minted with the URL, so that another receiver has another one."""
    shown: str
    """Scheme, host and a hash of the URL: what may be shown of it."""


class InstanceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The instance's settings row. Where there is none, the defaults hold at version 0."""

    allow_hosts: tuple[str, ...] = ()
    """Where anything that operators name may be called, beside each install's own list."""
    webhook: Webhook | None = None
    retention_days: int | None = None
    """How long words are kept where an agent has no number of its own; None: the environment's."""
    version: int = 0
