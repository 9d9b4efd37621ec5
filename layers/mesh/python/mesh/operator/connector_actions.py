"""Owns what is done with a connector beside its settings: its states, its secret, its delivery.

Refuses to show a secret again: a minting that is asked for twice answers without it.
"""

from __future__ import annotations

from typing import Final

from mesh.control.audit import Deed
from mesh.control.idempotency import Minted
from mesh.kernel.errors import Conflict, Failed
from mesh.operator.connector_shown import answer, time_of
from mesh.operator.foresight import show_plan, simulate
from mesh.operator.installs import install_of
from mesh.operator.route import Answer, Call, Needs, Route
from mesh.operator.shapes.base import Nothing
from mesh.operator.shapes.connectors import (
    ConnectorShown,
    EnableTaken,
    PingShown,
    RotateTaken,
    Rotation,
)
from mesh.operator.shapes.foresight import (
    PlanShown,
    PlanTaken,
    SimulatedPayload,
    SimulationShown,
)
from mesh.operator.waking import wake
from mesh.records.install import Install, InstallState


def _enable(call: Call, install: Install, body: EnableTaken) -> Answer:
    whole = call.plane.enablement.enable(
        install.install_id, call.plane.generic, skip_ping=body.skip_ping, cause=call.cause
    )
    if whole.install.state is InstallState.ENABLED:
        wake(call, whole.install)
    return answer(call, whole)


def _disable(call: Call, install: Install, _: Nothing) -> Answer:
    return answer(call, call.plane.enablement.disable(install.install_id, call.cause))


def _rotate(call: Call, install: Install, body: RotateTaken) -> Answer:
    try:
        rotated = call.plane.rotation.rotate(
            install.install_id,
            overlap_s=body.overlap_seconds,
            force=body.force,
            cause=call.cause,
            minting=call.mint,
        )
    except Minted as minted:
        version, until = minted.answer["version"], minted.answer["previous_valid_until"]
        assert isinstance(version, int), "the record of a rotation names its version"
        return Answer(
            Rotation(
                install_id=install.install_id,
                secret=None,
                version=version,
                previous_valid_until=time_of(until if isinstance(until, int) else None),
                replayed=True,
            )
        )
    return Answer(
        Rotation(
            install_id=install.install_id,
            secret=rotated.secret,
            version=rotated.version,
            previous_valid_until=time_of(rotated.previous_valid_until),
        )
    )


def _end_overlap(call: Call, install: Install, _: Nothing) -> Answer:
    call.plane.rotation.end_overlap(install.install_id, call.cause)
    return answer(call, call.plane.installs.whole(install.install_id))


def _ping(call: Call, install: Install, _: Nothing) -> Answer:
    whole = call.plane.installs.whole(install.install_id)
    if whole.install.delivery_url is None:
        raise Conflict("state_conflict", "there is no delivery URL to ping; set one first")
    deed = Deed(action="connector.ping", target=install.install_id, agent_id=install.agent_id)
    call.plane.audit.commit((), call.cause, deed)
    try:
        pinged = call.plane.generic.ping(whole)
    except Failed as failed:
        return Answer(
            PingShown(
                delivered=False,
                outbound_id=None,
                http_status=None,
                duration_ms=None,
                reason=failed.message,
            )
        )
    return Answer(
        PingShown(
            delivered=True,
            outbound_id=pinged.outbound_id,
            http_status=pinged.status,
            duration_ms=pinged.duration_ms,
            reason=None,
        )
    )


def _resume_delivery(call: Call, install: Install, _: Nothing) -> Answer:
    whole = call.plane.enablement.resume_delivery(install.install_id, call.cause)
    if whole.install.state is InstallState.ENABLED:
        wake(call, whole.install)
    return answer(call, whole)


_ONE: Final = "/api/connectors/{id}"

ACTIONS: Final = (
    Route(
        method="POST",
        path=f"{_ONE}/enable",
        operation="enableConnector",
        summary="Run the steps of enabling that are left, and answer the state reached",
        needs=Needs.OPERATOR,
        find=install_of,
        takes=EnableTaken,
        act=_enable,
        answers=ConnectorShown,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/disable",
        operation="disableConnector",
        summary="Close a connector, and wait for the deliveries in flight",
        needs=Needs.OPERATOR,
        find=install_of,
        takes=Nothing,
        act=_disable,
        answers=ConnectorShown,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/plan",
        operation="planConnector",
        summary="What enabling and disabling would do, step by step; nothing is done",
        needs=Needs.VIEWER,
        find=install_of,
        takes=PlanTaken,
        act=show_plan,
        answers=PlanShown,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/simulate",
        operation="simulateMessage",
        summary="What a payload would come to if a proven caller posted it; nothing is kept",
        needs=Needs.VIEWER,
        find=install_of,
        takes=SimulatedPayload,
        act=simulate,
        answers=SimulationShown,
        unread=True,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/rotate",
        operation="rotateSecret",
        summary="Mint a new secret; it is shown in this answer and never again",
        needs=Needs.OPERATOR,
        find=install_of,
        takes=RotateTaken,
        act=_rotate,
        answers=Rotation,
        mints=True,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/end-overlap",
        operation="endOverlap",
        summary="Revoke the previous secret now",
        needs=Needs.OPERATOR,
        find=install_of,
        takes=Nothing,
        act=_end_overlap,
        answers=ConnectorShown,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/ping",
        operation="pingConnector",
        summary="Post a signed ping to the delivery URL",
        needs=Needs.OPERATOR,
        find=install_of,
        takes=Nothing,
        act=_ping,
        answers=PingShown,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/resume-delivery",
        operation="resumeDelivery",
        summary="Take the receiver as healthy, and send what waits",
        needs=Needs.OPERATOR,
        find=install_of,
        takes=Nothing,
        act=_resume_delivery,
        answers=ConnectorShown,
    ),
)
