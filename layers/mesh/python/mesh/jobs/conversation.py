"""Owns the job that erases a conversation up to the point at which its deletion was ordered.

Refuses to touch what came later: the point is a part of the order, and never moves.
"""

from __future__ import annotations

from mesh.jobs.contract import Progress
from mesh.jobs.erasure import Erasure
from mesh.outbox.commit import CONVERSATION_DELETED
from mesh.records.job import Job


class DeleteConversation:
    """Implements `Kind`."""

    ended = "conversation.deleted"

    def __init__(self, erasure: Erasure) -> None:
        self._erasure = erasure

    def step(self, job: Job, stop_at_ms: int) -> Progress:
        """Erases a page. Raises Failed."""
        erased = self._erasure.conversation(
            job.target, job.wanted["forget_to"], CONVERSATION_DELETED, stop_at_ms
        )
        return Progress(place=None if erased.over else {}, done=erased.done, wait_s=erased.wait_s)
