"""Owns the orders about many entries of a connector at once: replay and discard, as jobs.

Refuses to touch an entry within the request: the job does, step by step, and tells how far it is.
"""

from __future__ import annotations

from typing import Final

from mesh.control.audit import Deed
from mesh.control.rows import item_of
from mesh.kernel.errors import Conflict, FieldProblem, Invalid
from mesh.operator.installs import install_of
from mesh.operator.jobs import ordered
from mesh.operator.route import Answer, Call, Needs, Route
from mesh.operator.shapes.base import milliseconds
from mesh.operator.shapes.happened import DiscardMany, ReplayMany
from mesh.operator.shapes.jobs import JobShown
from mesh.records.install import Install
from mesh.records.job import Job, JobKind
from mesh.records.outbox import Chosen, EntryState


def _replay(call: Call, install: Install, body: ReplayMany) -> Answer:
    check_address(install)
    return _order(call, install, JobKind.REPLAY_ENTRIES, body)


def check_address(install: Install) -> None:
    """Raises Conflict `state_conflict` where a replay would have nowhere to go to."""
    if install.delivery_url is None:
        raise Conflict(
            "state_conflict",
            "there is no delivery URL to send to; set one:"
            f" mesh connector update {install.install_id} --delivery-url URL",
        )


def _discard(call: Call, install: Install, body: DiscardMany) -> Answer:
    return _order(call, install, JobKind.DISCARD_ENTRIES, body)


def _order(call: Call, install: Install, kind: JobKind, body: ReplayMany | DiscardMany) -> Answer:
    states = (body.status,) if isinstance(body.status, EntryState) else body.status
    job = job_about(
        call,
        kind,
        install,
        frozenset(states),
        since=None if body.since is None else milliseconds(body.since),
        until=None if body.until is None else milliseconds(body.until),
    )
    deed = Deed(action=kind.value, target=install.install_id, agent_id=install.agent_id)
    call.plane.audit.commit([call.plane.jobs.order(job)], call.cause, deed)
    return ordered(call, job)


def job_about(
    call: Call,
    kind: JobKind,
    install: Install,
    states: frozenset[EntryState],
    *,
    since: int | None = None,
    until: int | None = None,
) -> Job:
    """A job about those entries of an install that stand now, not ordered yet. Raises Invalid."""
    after_now = call.plane.deps.clock.now_ms() + 1
    chosen = Chosen(
        install_id=install.install_id,
        states=states,
        since=max(install.created_at, since or 0),
        until=min(after_now, after_now if until is None else until),
    )
    if since is not None and until is not None and since >= until:
        problem = FieldProblem("until", "must be later than since")
        raise Invalid("invalid_request", "the request is not valid", (problem,))
    return call.plane.jobs.new(
        kind, install.install_id, call.cause, agent_id=install.agent_id, wanted=item_of(chosen)
    )


_OF_INSTALL: Final = "/api/connectors/{id}/outbox"

ORDERS: Final = (
    Route(
        method="POST",
        path=f"{_OF_INSTALL}/replay",
        operation="replayEntries",
        summary="Send entries of a connector that ended once more, beside the order, as a job",
        needs=Needs.OPERATOR,
        find=install_of,
        takes=ReplayMany,
        act=_replay,
        answers=JobShown,
        status=202,
    ),
    Route(
        method="POST",
        path=f"{_OF_INSTALL}/discard",
        operation="discardEntries",
        summary="Give up the entries of a connector that wait, as a job",
        needs=Needs.OPERATOR,
        find=install_of,
        takes=DiscardMany,
        act=_discard,
        answers=JobShown,
        status=202,
    ),
)
