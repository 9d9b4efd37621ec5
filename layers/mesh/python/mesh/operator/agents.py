"""Owns the routes of agents.

Refuses a model's `base_url` from anyone but an admin, and one that the egress guard would refuse.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from mesh.control.agents import not_found
from mesh.control.idempotency import Minted
from mesh.control.instance_model_keys import credential_source, may_use_instance_key
from mesh.engine.budgets import read_days
from mesh.kernel.clock import rfc3339
from mesh.kernel.errors import FieldProblem, Invalid, Refused
from mesh.operator.jobs import ordered
from mesh.operator.route import Answer, Call, Needs, Route, nothing
from mesh.operator.shapes.agents import (
    AgentList,
    AgentNew,
    AgentPut,
    AgentShown,
    LimitsShown,
    LimitsTaken,
    ModelShown,
    ModelTaken,
    TodayShown,
)
from mesh.operator.shapes.base import Listing, Nothing
from mesh.operator.shapes.jobs import JobShown
from mesh.operator.waking import wake_agent
from mesh.records.agent import Agent, Limits, Model, ModelKind
from mesh.records.operator import OperatorRole
from mesh.records.running import Day
from mesh.records.value import CredentialSource
from mesh.tools import packages


def agent_of(call: Call) -> Agent:
    """The agent of the path's slug. Raises `not_found`, the same where it is not the caller's:
    after the same one read, so that not even the time it takes tells which."""
    agent_id = call.plane.agents.id_of(call.path["slug"])
    if agent_id is None or not call.principal.reaches(agent_id):
        raise not_found()
    agent = call.plane.agents.by_id(agent_id)
    if agent is None:
        raise not_found()
    return agent


def _list(call: Call, _: None, query: Listing) -> Answer:
    place = call.place(query.cursor)
    after = str(place[0]) if place is not None else None
    reach = call.principal.agents
    if reach is None:
        agents, last = call.plane.agents.page(query.limit, after)
    else:
        found = [a for a in call.plane.agents.many(reach) if after is None or a.slug > after]
        agents = found[: query.limit]
        last = agents[-1].slug if len(found) > query.limit else None
    cursor = call.cursor(None if last is None else [last])
    return Answer(AgentList(items=shown(call, agents), next_cursor=cursor))


def _create(call: Call, _: None, body: AgentNew) -> Answer:
    model = _model(call, body.model, None)
    try:
        agent = call.plane.agents.create(
            slug=body.slug,
            name=body.name or body.slug,
            handle=body.handle or body.slug,
            instructions=body.instructions,
            model=model,
            limits=_limits(body.limits),
            tools=packages.tool_names(),
            retention_days=body.retention_days,
            cause=call.cause,
            minting=call.mint,
        )
    except Minted as minted:
        made = call.plane.agents.by_id(str(minted.answer["agent_id"]))
        if made is None:
            raise not_found() from None
        agent = made
    return Answer(_one(call, agent), 201)


def _get(call: Call, agent: Agent, _: Nothing) -> Answer:
    return Answer(_one(call, agent))


def _put(call: Call, agent: Agent, body: AgentPut) -> Answer:
    changed = call.plane.agents.update(
        agent,
        version=body.version,
        name=body.name or agent.slug,
        handle=body.handle or agent.slug,
        instructions=body.instructions,
        model=_model(call, body.model, agent.model),
        limits=_limits(body.limits),
        retention_days=body.retention_days,
        cause=call.cause,
    )
    return Answer(_one(call, changed))


def _pause(call: Call, agent: Agent, _: Nothing) -> Answer:
    return Answer(_one(call, call.plane.agents.pause(agent, call.cause)))


def _resume(call: Call, agent: Agent, _: Nothing) -> Answer:
    resumed = call.plane.agents.resume(agent, call.cause)
    wake_agent(call, resumed)
    return Answer(_one(call, resumed))


def _one(call: Call, agent: Agent) -> AgentShown:
    return shown(call, [agent])[0]


def shown(call: Call, agents: Sequence[Agent]) -> list[AgentShown]:
    """Agents as they are shown. The instance's keys are looked at where one may count."""
    kept: Collection[ModelKind] = ()
    if any(may_use_instance_key(agent) for agent in agents):
        kept = call.plane.instance_model_keys.kept().keys()
    now = call.plane.deps.clock.now_ms()
    days = read_days(call.plane.deps.table, agents, now)
    return [_shown(agent, credential_source(agent, kept), _today(agent, days)) for agent in agents]


def _delete(call: Call, agent: Agent, _: Nothing) -> Answer:
    return ordered(call, call.plane.deletions.agent(agent, call.cause))


def _today(agent: Agent, days: Mapping[str, Day]) -> TodayShown:
    """What is counted, and it alone: a budget that was set today counts from then on."""
    day, limits = days.get(agent.agent_id, Day()), agent.limits
    return TodayShown(
        turns=None if limits.turns_per_day is None else day.turns,
        tokens=None if limits.tokens_per_day is None else day.tokens,
    )


def _shown(agent: Agent, source: CredentialSource | None, today: TodayShown) -> AgentShown:
    return AgentShown(
        agent_id=agent.agent_id,
        slug=agent.slug,
        name=agent.name,
        handle=agent.handle,
        instructions=agent.instructions,
        model=ModelShown(
            kind=agent.model.kind,
            name=agent.model.name,
            base_url=agent.model.base_url,
            credential_present=source is not None,
            credential_source=source,
        ),
        limits=LimitsShown(
            **{name: getattr(agent.limits, name) for name in LimitsShown.model_fields}
        ),
        today=today,
        retention_days=agent.retention_days,
        status=agent.status,
        roster=agent.roster,
        version=agent.version,
        created_at=rfc3339(agent.created_at),
    )


def _limits(taken: LimitsTaken) -> Limits:
    return Limits(**taken.model_dump())


def _model(call: Call, taken: ModelTaken, stands: Model | None) -> Model:
    """The model that was asked for. A base URL that is saved (`stands`) is not judged again: the
    instance's list may have changed since, and must not bar a change of something else."""
    saved = (None, None) if stands is None else (stands.kind, stands.base_url)
    if taken.base_url is not None and (taken.kind, taken.base_url) != saved:
        _check_base_url(call, taken)
    if taken.base_url != saved[1] and call.principal.role is not OperatorRole.ADMIN:
        raise Refused("forbidden", "only an admin sets a model's base_url")
    return Model(kind=taken.kind, name=taken.name, base_url=taken.base_url)


def _check_base_url(call: Call, taken: ModelTaken) -> None:
    if taken.kind not in (ModelKind.OPENAI, ModelKind.ANTHROPIC):
        problem = f"is not for the kind {taken.kind}"
    else:
        refusal = call.plane.judge(taken.base_url or "", ())
        if refusal is None:
            return
        problem = f"refused: {refusal.reason}: {refusal.detail}"
    raise Invalid(
        "invalid_request", "the model is not valid", (FieldProblem("model.base_url", problem),)
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/agents",
        operation="listAgents",
        summary="The agents that the token reaches, by slug",
        needs=Needs.VIEWER,
        find=nothing,
        takes=Listing,
        act=_list,
        answers=AgentList,
    ),
    Route(
        method="POST",
        path="/api/agents",
        operation="createAgent",
        summary="Make an agent",
        needs=Needs.ADMIN,
        find=nothing,
        takes=AgentNew,
        act=_create,
        answers=AgentShown,
        status=201,
        mints=True,
    ),
    Route(
        method="GET",
        path="/api/agents/{slug}",
        operation="getAgent",
        summary="One agent",
        needs=Needs.VIEWER,
        find=agent_of,
        takes=Nothing,
        act=_get,
        answers=AgentShown,
    ),
    Route(
        method="PUT",
        path="/api/agents/{slug}",
        operation="putAgent",
        summary="Replace an agent's settings",
        needs=Needs.OPERATOR,
        find=agent_of,
        takes=AgentPut,
        act=_put,
        answers=AgentShown,
    ),
    Route(
        method="DELETE",
        path="/api/agents/{slug}",
        operation="deleteAgent",
        summary="Delete a paused agent with all that it has; its slug is given to no other for 90"
        " days",
        needs=Needs.ADMIN,
        find=agent_of,
        takes=Nothing,
        act=_delete,
        answers=JobShown,
        status=202,
    ),
    Route(
        method="POST",
        path="/api/agents/{slug}/pause",
        operation="pauseAgent",
        summary="Stop an agent for every request that begins after the answer",
        needs=Needs.OPERATOR,
        find=agent_of,
        takes=Nothing,
        act=_pause,
        answers=AgentShown,
    ),
    Route(
        method="POST",
        path="/api/agents/{slug}/resume",
        operation="resumeAgent",
        summary="Let an agent work again",
        needs=Needs.OPERATOR,
        find=agent_of,
        takes=Nothing,
        act=_resume,
        answers=AgentShown,
    ),
)
