"""Owns the routes of the instance's own affairs: the rotation of the master key, and the end of a
restore.

Refuses anyone but an admin.
"""

from __future__ import annotations

from typing import Final

from mesh.kernel.clock import rfc3339
from mesh.kernel.limits import REWRAP_RUN_MS
from mesh.operator.jobs import ordered
from mesh.operator.route import Answer, Call, Needs, Route, nothing
from mesh.operator.shapes.base import Nothing
from mesh.operator.shapes.instance import RewrapShown
from mesh.operator.shapes.jobs import JobShown
from mesh.records.rewrap import Rewrap, RewrapStatus


def _get(call: Call, _: None, __: Nothing) -> Answer:
    return Answer(_shown(call.plane.rewrapping.state()))


def _go_on(call: Call, _: None, __: Nothing) -> Answer:
    state = call.plane.rewrapping.go_on(call.cause, REWRAP_RUN_MS)
    return Answer(_shown(state), 202 if state.status is RewrapStatus.RUNNING else 200)


def _finish_restore(call: Call, _: None, __: Nothing) -> Answer:
    plane = call.plane
    return ordered(call, plane.restoring.order(plane.jobs, plane.operators, call.cause))


def _shown(state: Rewrap | None) -> RewrapShown:
    if state is None:
        return RewrapShown(
            status="idle",
            done=0,
            total=0,
            rewrapped=0,
            unopenable=0,
            started_at=None,
            ended_at=None,
        )
    return RewrapShown(
        status=state.status.value,
        done=state.done,
        total=max(state.total, state.done),
        rewrapped=state.rewrapped,
        unopenable=state.unopenable,
        started_at=rfc3339(state.started_at),
        ended_at=None if state.ended_at is None else rfc3339(state.ended_at),
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/instance/rewrap",
        operation="getRewrap",
        summary="How far the rotation of the master key is",
        needs=Needs.ADMIN,
        find=nothing,
        takes=Nothing,
        act=_get,
        answers=RewrapShown,
    ),
    Route(
        method="POST",
        path="/api/instance/rewrap",
        operation="goOnWithRewrap",
        summary="Wrap every data key by the newest master key; starts, or goes on",
        needs=Needs.ADMIN,
        find=nothing,
        takes=Nothing,
        act=_go_on,
        answers=RewrapShown,
        also=(202,),
    ),
    Route(
        method="POST",
        path="/api/instance/restore/finish",
        operation="finishRestore",
        summary="After a restore: end every other token, hold every connector, begin a new epoch",
        needs=Needs.ADMIN,
        find=nothing,
        takes=Nothing,
        act=_finish_restore,
        answers=JobShown,
        status=202,
    ),
)
