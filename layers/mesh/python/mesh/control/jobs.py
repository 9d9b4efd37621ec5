"""Owns the order of a long change: the row that a job is, written in the transaction of the change
that begins it.

Refuses to do any of it: `mesh.jobs` goes on with it, step by step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mesh.control.audit import Cause
from mesh.control.rows import item_of, record_of
from mesh.kernel.clock import Clock
from mesh.kernel.ids import Ids, is_minted, story_of
from mesh.kernel.limits import DUE_AFTER_MS
from mesh.records.job import Job, JobKind
from mesh.storage import keys
from mesh.storage.table import Table
from mesh.storage.writes import Write, put


class Jobs:
    """Orders jobs, and tells how far they are."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def new(
        self,
        kind: JobKind,
        target: str,
        cause: Cause,
        *,
        agent_id: str | None = None,
        wanted: Mapping[str, Any] | None = None,
    ) -> Job:
        """A job that is not ordered yet: `order` is the write that does it."""
        now = self._clock.now_ms()
        job_id = self._ids.mint("job")
        return Job(
            job_id=job_id,
            kind=kind,
            target=target,
            agent_id=agent_id,
            wanted=dict(wanted or {}),
            actor=cause.actor,
            request_id=cause.request_id,
            started_at=now,
            due_pk=keys.due(job_id),
            due_at=now + DUE_AFTER_MS,
        )

    def order(self, job: Job) -> Write:
        """The write that orders `job`; goes into the transaction of the change that begins it.

        Ring for it afterwards (`Bell.job`); a ring that is lost is the sweep's.
        """
        return put(keys.job(story_of(job.job_id)), item_of(job), "attribute_not_exists(#pk)")

    def find(self, job_id: str) -> Job | None:
        """The job of that id, read consistently; None when there is none. Raises Failed."""
        if not job_id.startswith("job_") or not is_minted(job_id):
            return None
        item = self._table.get(keys.job(story_of(job_id)))
        return None if item is None else record_of(item, Job)
