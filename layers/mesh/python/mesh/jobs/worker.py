"""Owns how a job goes on: step by step, its place kept after each, until it has ended.

Refuses to hold a lease: steps may be made twice, and the place is kept under the condition that
nobody else kept one. So a worker that was overtaken stops, and one that died is rung for again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.jobs import Jobs
from mesh.control.rows import assign
from mesh.jobs.contract import Kind, Progress
from mesh.kernel.clock import DAY_MS, Clock
from mesh.kernel.errors import Failed
from mesh.kernel.ids import story_of
from mesh.kernel.limits import (
    DUE_AFTER_MS,
    JOB_STEPS_PER_INVOCATION_MAX,
    JOBS_KEPT_DAYS,
)
from mesh.kernel.log import Log
from mesh.records.job import Job, JobKind, JobStatus
from mesh.storage import keys
from mesh.storage.queues import Bell
from mesh.storage.table import Cancelled, ConditionFailed, Table, Why
from mesh.storage.writes import Write


class JobWorker:
    """Goes on with jobs. One per function."""

    def __init__(
        self,
        jobs: Jobs,
        kinds: Mapping[JobKind, Kind],
        *,
        table: Table,
        bell: Bell,
        clock: Clock,
        audit: AuditTrail,
        log: Log,
    ) -> None:
        self._jobs = jobs
        self._kinds = kinds
        self._table = table
        self._bell = bell
        self._clock = clock
        self._audit = audit
        self._log = log

    def work(self, job_id: str, stop_at_ms: int) -> None:
        """Makes steps of a job until it has ended, must wait, or time is up.

        Raises Failed when a step could not be made; the ring comes again.
        """
        job = self._jobs.find(job_id)
        for _ in range(JOB_STEPS_PER_INVOCATION_MAX):
            if job is None or job.status is not JobStatus.RUNNING:
                return
            if self._clock.now_ms() >= stop_at_ms:
                break
            kind = self._kinds[job.kind]
            progress = kind.step(job, stop_at_ms)
            kept = self._kept(job, progress, kind.ended)
            if kept is not None and progress.wait_s and kept.status is JobStatus.RUNNING:
                self._bell.chore(job_id, progress.wait_s)
                return
            job = kept
        self._bell.chore(job_id)

    def _kept(self, job: Job, progress: Progress, ended: str) -> Job | None:
        """Writes down what a step came to; the job as it then is, None where another worker was
        faster."""
        now = self._clock.now_ms()
        changes: dict[str, Any] = {"turn": job.turn + 1, "done": job.done + progress.done}
        over = progress.failed is not None or progress.place is None
        if over:
            status = JobStatus.DONE if progress.failed is None else JobStatus.FAILED
            changes |= {
                "status": status.value,
                "reason": progress.failed,
                "ended_at": now,
                # Not before: one that waits for a connector may wait for long.
                "ttl": (now + JOBS_KEPT_DAYS * DAY_MS) // 1000,
                "due_pk": None,
                "due_at": None,
            }
        else:
            wait_ms = progress.wait_s * 1000
            changes |= {
                "place": dict(progress.place or {}),
                "reason": progress.waits,
                "due_pk": keys.due(job.job_id),
                "due_at": now + wait_ms + DUE_AFTER_MS,
            }
        write = assign(
            keys.job(story_of(job.job_id)),
            changes,
            "#turn = :turn AND #status = :running",
            turn=job.turn,
            running=JobStatus.RUNNING.value,
        )
        try:
            if over:
                failed = f"{job.kind.value}_failed"
                self._end(job, write, ended if progress.failed is None else failed)
            else:
                self._table.write(write)
        except (ConditionFailed, Cancelled) as lost:
            if isinstance(lost, Cancelled) and all(
                r.why is not Why.CONDITION for r in lost.reasons
            ):
                raise Failed("unavailable", "the job's row is contended; try again") from None
            return None
        return self._jobs.find(job.job_id)

    def _end(self, job: Job, write: Write, ended: str) -> None:
        """The last write of a job, with the audit row that says how it ended."""
        cause = Cause(job.actor, job.request_id)
        self._audit.commit(
            [write], cause, Deed(action=ended, target=job.target, agent_id=job.agent_id)
        )
        self._log("job.ended", chore_id=job.job_id, action=ended)
