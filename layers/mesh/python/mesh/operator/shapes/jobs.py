"""Owns the shape of a job."""

from __future__ import annotations

from typing import Literal

from mesh.operator.shapes.base import Shown, Time


class JobShown(Shown):
    """A long change that was ordered, and how far it is."""

    job_id: str
    kind: str
    """What it does, as the audit names it: `conversation.delete`, `outbox.replay`, …"""
    target: str
    status: Literal["running", "done", "failed"]
    reason: str | None
    """Why it failed, or what it waits for."""
    done: int
    """How many things it has done so far."""
    started_at: Time
    ended_at: Time | None
