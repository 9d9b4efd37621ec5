"""Owns the routes of connectors: an agent's installs and their settings.

Refuses to show a delivery URL whole, and a list of hosts to be changed by anyone but an admin.
"""

from __future__ import annotations

from typing import Final

from mesh.control.idempotency import Minted
from mesh.control.installs import KEEP, Keep, Wanted
from mesh.kernel.errors import Conflict, Failed, Refused
from mesh.operator.agents import agent_of
from mesh.operator.connector_actions import ACTIONS
from mesh.operator.connector_shown import answer, shown
from mesh.operator.entries import counts
from mesh.operator.installs import install_of
from mesh.operator.jobs import JOB_HEADER
from mesh.operator.moving import host_changes, may_wait
from mesh.operator.outbox_orders import job_about
from mesh.operator.refusals import list_refusals
from mesh.operator.route import Answer, Call, Needs, Route
from mesh.operator.shapes.base import Listing, Nothing
from mesh.operator.shapes.connectors import (
    ConnectorCreated,
    ConnectorList,
    ConnectorNew,
    ConnectorPut,
    ConnectorShown,
    RefusalList,
)
from mesh.records.agent import Agent
from mesh.records.install import Caps, Engagement, Install, InstallState
from mesh.records.job import JobKind
from mesh.records.operator import OperatorRole
from mesh.records.outbox import EntryState


def _list(call: Call, agent: Agent, query: Listing) -> Answer:
    place = call.place(query.cursor)
    after = None if place is None else str(place[0])
    ids, last = call.plane.installs.of_agent(agent.agent_id, query.limit, after)
    counted = counts(call.plane, agent, ids) if ids else {}
    items = [
        shown(call, call.plane.installs.whole(install_id), counted[install_id])
        for install_id in ids
    ]
    cursor = call.cursor(None if last is None else [last])
    return Answer(ConnectorList(items=items, next_cursor=cursor))


def _create(call: Call, agent: Agent, body: ConnectorNew) -> Answer:
    if body.allow_hosts and call.principal.role is not OperatorRole.ADMIN:
        raise Refused("forbidden", "only an admin sets allow_hosts")
    secret: str | None = None
    try:
        install, secret = call.plane.installs.create(
            agent,
            _wanted(body, body.delivery_url),
            kind=body.kind,
            enable=body.enable,
            skip_ping=body.skip_ping,
            cause=call.cause,
            minting=call.mint,
            roster=body.roster,
        )
        install_id = install.install_id
    except Minted as minted:
        install_id = str(minted.answer["install_id"])
    whole = call.plane.installs.whole(install_id)
    if whole.install.state is InstallState.ENABLING:
        try:
            whole = call.plane.enablement.go_on(whole, call.plane.generic, call.cause)
        except (Failed, Conflict):
            # The secret is shown whatever follows; enabling again goes on.
            whole = call.plane.installs.whole(install_id)
    install = whole.install
    return Answer(
        ConnectorCreated(
            install_id=install_id,
            kind=install.kind,
            name=install.name,
            agent=install.agent_slug,
            ingress_url=call.plane.deps.settings.ingress_url,
            state=install.state,
            state_reason=install.state_reason,
            secret=secret,
            secret_version=install.secret_version,
            delivery_url=install.delivery_shown,
            version=install.version,
            replayed=secret is None,
        ),
        201,
    )


def _get(call: Call, install: Install, _: Nothing) -> Answer:
    return answer(call, call.plane.installs.whole(install.install_id))


def _put(call: Call, install: Install, body: ConnectorPut) -> Answer:
    if body.allow_hosts != install.allow_hosts and call.principal.role is not OperatorRole.ADMIN:
        raise Refused("forbidden", "only an admin changes allow_hosts")
    url = body.delivery_url if "delivery_url" in body.model_fields_set else KEEP
    wanted = _wanted(body, url)
    # What cannot be saved is refused before any reply is asked about.
    call.plane.installs.check(install, wanted, version=body.version)
    if host_changes(install, url):
        if body.pending is None and may_wait(call, install):
            raise Conflict(
                "state_conflict",
                "replies wait for the old host, or may; say pending: send or discard",
            )
        if body.pending == "discard":
            return _move_without_what_waits(call, install, wanted, body.version)
    call.plane.installs.update(install, wanted, version=body.version, cause=call.cause)
    return answer(call, call.plane.installs.whole(install.install_id))


def _move_without_what_waits(call: Call, install: Install, wanted: Wanted, version: int) -> Answer:
    """Changes the host, and has what waits discarded, in one transaction.

    From then on delivery itself discards what it comes to of it; the job sees to the rest, which
    may wait for long.
    """
    job = job_about(call, JobKind.DISCARD_ENTRIES, install, frozenset({EntryState.PENDING}))
    call.plane.installs.update(
        install,
        wanted,
        version=version,
        cause=call.cause,
        discard_before=call.plane.deps.clock.now_ms() + 1,
        also=[call.plane.jobs.order(job)],
    )
    call.plane.deps.bell.chore(job.job_id)
    return answer(call, call.plane.installs.whole(install.install_id))


def _delete(call: Call, install: Install, _: Nothing) -> Answer:
    job, order = call.plane.deletions.install(install, call.cause)
    call.plane.enablement.remove(install, call.cause, order)
    call.plane.deps.bell.chore(job.job_id)
    return Answer(None, 204, {JOB_HEADER: job.job_id})


def _wanted(body: ConnectorNew | ConnectorPut, url: str | Keep | None) -> Wanted:
    return Wanted(
        name=body.name,
        delivery_url=url,
        allow_hosts=body.allow_hosts,
        engagement=Engagement(**body.engagement.model_dump()),
        caps=Caps(**body.caps.model_dump()),
        failure_replies=body.failure_replies,
    )


_OF_AGENT: Final = "/api/agents/{slug}/connectors"
_ONE: Final = "/api/connectors/{id}"

ROUTES: Final = (
    Route(
        method="GET",
        path=_OF_AGENT,
        operation="listConnectors",
        summary="The connectors of an agent, oldest first",
        needs=Needs.VIEWER,
        find=agent_of,
        takes=Listing,
        act=_list,
        answers=ConnectorList,
    ),
    Route(
        method="POST",
        path=_OF_AGENT,
        operation="createConnector",
        summary="Make a connector; its secret is shown in this answer and never again",
        needs=Needs.OPERATOR,
        find=agent_of,
        takes=ConnectorNew,
        act=_create,
        answers=ConnectorCreated,
        status=201,
        mints=True,
    ),
    Route(
        method="GET",
        path=_ONE,
        operation="getConnector",
        summary="One connector",
        needs=Needs.VIEWER,
        find=install_of,
        takes=Nothing,
        act=_get,
        answers=ConnectorShown,
    ),
    Route(
        method="PUT",
        path=_ONE,
        operation="putConnector",
        summary="Replace a connector's settings",
        needs=Needs.OPERATOR,
        find=install_of,
        takes=ConnectorPut,
        act=_put,
        answers=ConnectorShown,
    ),
    Route(
        method="DELETE",
        path=_ONE,
        operation="deleteConnector",
        summary="Delete a connector; X-Mesh-Job names the job that erases what was said in it",
        needs=Needs.OPERATOR,
        find=install_of,
        takes=Nothing,
        act=_delete,
        answers=None,
        status=204,
    ),
    *ACTIONS,
    Route(
        method="GET",
        path=f"{_ONE}/refusals",
        operation="listRefusals",
        summary="What proven callers were refused, by reason and minute",
        needs=Needs.VIEWER,
        find=install_of,
        takes=Listing,
        act=list_refusals,
        answers=RefusalList,
    ),
)
