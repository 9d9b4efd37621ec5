"""Owns the route of a job: how far a long change is.

Refuses to show a job of the instance to anyone but an admin, and another's as anything but missing.
"""

from __future__ import annotations

from typing import Final

from mesh.control.agents import not_found
from mesh.kernel.clock import rfc3339
from mesh.operator.route import Answer, Call, Needs, Route
from mesh.operator.shapes.base import Nothing
from mesh.operator.shapes.jobs import JobShown
from mesh.records.job import Job
from mesh.records.operator import OperatorRole


def job_of(call: Call) -> Job:
    """The job of the path's id. Raises `not_found`, the same where it is not the caller's."""
    job = call.plane.jobs.find(call.path["id"])
    if job is None:
        raise not_found()
    if job.agent_id is None:
        if call.principal.role is not OperatorRole.ADMIN:
            raise not_found()
    elif not call.principal.reaches(job.agent_id):
        raise not_found()
    return job


def shown(job: Job) -> JobShown:
    """A job as it is shown."""
    return JobShown(
        job_id=job.job_id,
        kind=job.kind.value,
        target=job.target,
        status=job.status.value,
        reason=job.reason,
        done=job.done,
        started_at=rfc3339(job.started_at),
        ended_at=None if job.ended_at is None else rfc3339(job.ended_at),
    )


def ordered(call: Call, job: Job) -> Answer:
    """Rings for a job that was just ordered, and answers with it."""
    call.plane.deps.bell.chore(job.job_id)
    return Answer(shown(job), 202)


JOB_HEADER: Final = "X-Mesh-Job"
"""Names the job that goes on behind an answer which is not about it."""


def _get(_: Call, job: Job, __: Nothing) -> Answer:
    return Answer(shown(job))


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/jobs/{id}",
        operation="getJob",
        summary="How far a long change is",
        needs=Needs.VIEWER,
        find=job_of,
        takes=Nothing,
        act=_get,
        answers=JobShown,
    ),
)
