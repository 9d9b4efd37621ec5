"""Owns the route of the doctor: what of the instance is not as it should be, and what mends it.

Refuses to look at everything at once: a request looks at a part, and its cursor says where the next
one goes on. Nothing is changed, and nothing that was opened is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mesh.engine.budgets import read_days
from mesh.kernel.errors import Failed
from mesh.kernel.limits import (
    DOCTOR_AGENTS_PER_REQUEST,
    DOCTOR_CONNECTORS_PER_REQUEST,
    DOCTOR_SHARDS_PER_REQUEST,
    DUE_SHARDS,
)
from mesh.operator.checks.agents import check_agent
from mesh.operator.checks.connectors import check_connector
from mesh.operator.checks.instance import check_due, check_instance
from mesh.operator.checks.web import check_web
from mesh.operator.entries import counts
from mesh.operator.plane import ControlPlane
from mesh.operator.route import Answer, Call, Needs, Route, nothing
from mesh.operator.shapes.doctor import DoctorAsked, FindingList, FindingShown
from mesh.records.agent import Agent
from mesh.records.running import Day
from mesh.security.sealing import InstanceKey

_DUE: Final = "due"
_AGENTS: Final = "agents"
Place = list[str | int]
"""What comes next: shards of the due index from a number on, or agents after a slug; with the
install after which the agent of that slug goes on, or nothing where it is done."""


def _get(call: Call, _: None, query: DoctorAsked) -> Answer:
    place = call.place(query.cursor)
    plane = call.plane
    following: Place | None
    if place is None:
        items, following = list(check_instance(plane)), [_DUE, 0]
    elif place[0] == _DUE:
        first = int(place[1])
        shards = range(first, min(first + DOCTOR_SHARDS_PER_REQUEST, DUE_SHARDS))
        items = list(check_due(plane, shards))
        following = [_DUE, shards.stop] if shards.stop < DUE_SHARDS else [_AGENTS, "", ""]
    else:
        items, following = _agents(plane, str(place[1]), str(place[2]))
    return Answer(FindingList(items=items, next_cursor=call.cursor(following)))


def _agents(plane: ControlPlane, slug: str, after: str) -> tuple[list[FindingShown], Place | None]:
    """So many agents and connectors, and where the next request goes on."""
    found: list[FindingShown] = []
    kinds = plane.instance_model_keys.kept()
    key = _instance_key(plane)
    left = DOCTOR_CONNECTORS_PER_REQUEST
    for _ in range(DOCTOR_AGENTS_PER_REQUEST):
        if after:
            agent = plane.agents.by_slug(slug)
        else:
            page, last = plane.agents.page(1, slug or None)
            agent = page[0] if page else None
            if agent is None and last is None:
                return found, None
            slug = agent.slug if agent is not None else last or ""
            if agent is not None:
                today = read_days(plane.deps.table, [agent], plane.deps.clock.now_ms())
                base_url = agent.model.base_url
                refusal = None if base_url is None else plane.judge(base_url, ())
                found += check_agent(agent, kinds, today.get(agent.agent_id, Day()), refusal)
                found += check_web(plane.web_access.shelf(agent), agent.slug)
        if agent is None:  # it was deleted meanwhile
            after = ""
            continue
        install_ids, more = plane.installs.of_agent(agent.agent_id, left, after or None)
        found += _connectors(plane, agent, install_ids, key)
        left -= len(install_ids)
        if more is not None:
            return found, [_AGENTS, slug, more]
        after = ""
        if left <= 0:
            break
    return found, [_AGENTS, slug, ""]


def _connectors(
    plane: ControlPlane, agent: Agent, install_ids: list[str], key: InstanceKey | None
) -> Iterator[FindingShown]:
    counted = counts(plane, agent, install_ids) if install_ids else {}
    for install_id in install_ids:
        whole = plane.installs.find_whole(install_id)
        if whole is not None:
            yield from check_connector(plane, whole, key, counted[install_id].dead)


def _instance_key(plane: ControlPlane) -> InstanceKey | None:
    """None where it does not open: that is a finding of the instance's, and not of each install."""
    try:
        return plane.deps.instance_keys.current()
    except Failed:
        return None


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/instance/doctor",
        operation="consultDoctor",
        summary="What of the instance is not as it should be, a part at a time, and what mends it",
        needs=Needs.ADMIN,
        find=nothing,
        takes=DoctorAsked,
        act=_get,
        answers=FindingList,
    ),
)
