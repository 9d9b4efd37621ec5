"""Owns the shapes of the instance's own affairs.

Refuses to show a key, wrapped or not.
"""

from __future__ import annotations

from typing import Literal

from mesh.operator.shapes.base import Shown, Time


class RewrapShown(Shown):
    """How far the rotation of the master key is."""

    status: Literal["idle", "running", "done", "failed"]
    """`running`: call again to go on. `failed`: it went through, and some keys did not open."""
    done: int
    total: int
    """Owners: the instance, and each agent that there was when it began."""
    rewrapped: int
    """Keys that the newest master key wraps now."""
    unopenable: int
    """Keys that did not open in their place: a row that was moved, or a master key that is gone."""
    started_at: Time | None
    ended_at: Time | None
