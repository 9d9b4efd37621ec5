"""Owns the noun job: a long change that was ordered, and how far it is."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from mesh.records.conversation import Mark


class JobKind(StrEnum):
    """What a job does."""

    DELETE_CONVERSATION = "conversation.delete"
    DELETE_ACTOR = "actor.delete"
    DELETE_INSTALL = "connector.delete"
    DELETE_AGENT = "agent.delete"
    REPLAY_ENTRIES = "outbox.replay"
    DISCARD_ENTRIES = "outbox.discard"
    FINISH_RESTORE = "instance.restore"


class JobStatus(StrEnum):
    """Where a job stands. The last two are final."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Job(Mark, frozen=True, kw_only=True):
    """The row of a job. Its place is kept after each step, so that it goes on there.

    Its due mark stands while it runs: whatever dies, the sweep rings for it again.
    """

    job_id: str
    kind: JobKind
    target: str
    """What it is about: an id, or a slug, as its audit rows name it."""
    agent_id: str | None = None
    """Whose it is; None for a job of the instance, which admins alone may see."""
    wanted: dict[str, Any] = msgspec.field(default_factory=dict)
    """What was ordered. The kind knows the shape."""
    place: dict[str, Any] = msgspec.field(default_factory=dict)
    """Where it goes on. The kind knows the shape; empty before the first step."""
    turn: int = 0
    """How many steps were kept: each names the one that it was worked out from."""
    done: int = 0
    """How many things it has done; what counts as one is the kind's."""
    status: JobStatus = JobStatus.RUNNING
    reason: str | None = None
    """Why it failed, or what it waits for; for people."""
    actor: str
    """The operator who ordered it."""
    request_id: str
    started_at: int
    ended_at: int | None = None
