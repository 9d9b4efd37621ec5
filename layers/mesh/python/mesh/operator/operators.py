"""Owns the routes of operators: admins alone reach them.

Refuses a reach that does not fit the role, and to show a token again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mesh.control.agents import not_found
from mesh.control.idempotency import Minted
from mesh.kernel.clock import rfc3339
from mesh.kernel.errors import FieldProblem, Invalid
from mesh.operator.route import Answer, Call, Needs, Route, nothing
from mesh.operator.shapes.base import Listing, Nothing
from mesh.operator.shapes.people import (
    OperatorCreated,
    OperatorList,
    OperatorNew,
    OperatorPut,
    OperatorShown,
)
from mesh.records.operator import OperatorRole, Token


def operator_of(call: Call) -> Token:
    """The operator of the path's id. Raises `not_found`, also once it is revoked."""
    operator = call.plane.operators.by_id(call.path["id"])
    if operator is None:
        raise not_found()
    return operator


def _list(call: Call, _: None, query: Listing) -> Answer:
    place = call.place(query.cursor)
    after = None if place is None else str(place[0])
    tokens, last = call.plane.operators.page(query.limit, after)
    ids = {agent_id for token in tokens for agent_id in token.agents or ()}
    slugs = _slugs(call, sorted(ids))
    items = [OperatorShown.model_validate(_fields(token, slugs)) for token in tokens]
    cursor = call.cursor(None if last is None else [last])
    return Answer(OperatorList(items=items, next_cursor=cursor))


def _create(call: Call, _: None, body: OperatorNew) -> Answer:
    agents = _reach(call, body.role, body.agents)
    token: str | None = None
    try:
        minted = call.plane.operators.create(
            name=body.name,
            role=body.role,
            agents=agents,
            days=body.expires_in_days,
            cause=call.cause,
            minting=call.mint,
        )
        record, token = minted.record, minted.token
    except Minted as again:
        found = call.plane.operators.by_id(str(again.answer["operator_id"]))
        if found is None:
            raise not_found() from None
        record = found
    slugs = _slugs(call, record.agents or ())
    fields = {**_fields(record, slugs), "token": token, "replayed": token is None}
    return Answer(OperatorCreated.model_validate(fields), 201)


def _put(call: Call, operator: Token, body: OperatorPut) -> Answer:
    changed = call.plane.operators.update(
        operator,
        version=body.version,
        name=body.name,
        role=body.role,
        agents=_reach(call, body.role, body.agents),
        cause=call.cause,
    )
    slugs = _slugs(call, changed.agents or ())
    return Answer(OperatorShown.model_validate(_fields(changed, slugs)))


def _delete(call: Call, operator: Token, _: Nothing) -> Answer:
    call.plane.operators.revoke(operator, call.cause)
    return Answer(None, 204)


def _reach(call: Call, role: OperatorRole, slugs: Sequence[str] | None) -> tuple[str, ...] | None:
    """Ids of the agents that were named by slug; None for all. Raises Invalid."""
    if role is OperatorRole.ADMIN and slugs is not None:
        raise _invalid([FieldProblem("agents", "an admin reaches every agent; leave it out")])
    if role is OperatorRole.OPERATOR and not slugs:
        raise _invalid([FieldProblem("agents", "is required for the role operator")])
    if slugs is None:
        return None
    found, problems = [], []
    for index, slug in enumerate(dict.fromkeys(slugs)):
        agent = call.plane.agents.by_slug(slug)
        if agent is None:
            problems.append(FieldProblem(f"agents.{index}", "there is no such agent"))
        else:
            found.append(agent.agent_id)
    if problems:
        raise _invalid(problems)
    return tuple(found)


def _invalid(problems: Sequence[FieldProblem]) -> Invalid:
    return Invalid("invalid_request", "the request is not valid", tuple(problems))


def _slugs(call: Call, agent_ids: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for start in range(0, len(agent_ids), 100):
        agents = call.plane.agents.many(agent_ids[start : start + 100])
        found |= {agent.agent_id: agent.slug for agent in agents}
    return found


def _fields(token: Token, slugs: dict[str, str]) -> dict[str, object]:
    agents = token.agents
    return {
        "id": token.operator_id,
        "name": token.name,
        "role": token.role,
        "agents": None if agents is None else [slugs[a] for a in agents if a in slugs],
        "created_at": rfc3339(token.created_at),
        "expires_at": rfc3339(token.expires_at),
        "revoked_at": None if token.revoked_at is None else rfc3339(token.revoked_at),
        "version": token.version,
    }


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/operators",
        operation="listOperators",
        summary="All operators, revoked ones among them",
        needs=Needs.ADMIN,
        find=nothing,
        takes=Listing,
        act=_list,
        answers=OperatorList,
    ),
    Route(
        method="POST",
        path="/api/operators",
        operation="createOperator",
        summary="Mint a token; it is shown in this answer and never again",
        needs=Needs.ADMIN,
        find=nothing,
        takes=OperatorNew,
        act=_create,
        answers=OperatorCreated,
        status=201,
        mints=True,
    ),
    Route(
        method="PUT",
        path="/api/operators/{id}",
        operation="putOperator",
        summary="Replace an operator's name, role and reach",
        needs=Needs.ADMIN,
        find=operator_of,
        takes=OperatorPut,
        act=_put,
        answers=OperatorShown,
    ),
    Route(
        method="DELETE",
        path="/api/operators/{id}",
        operation="revokeOperator",
        summary="Revoke a token for every request that begins after the answer",
        needs=Needs.ADMIN,
        find=operator_of,
        takes=Nothing,
        act=_delete,
        answers=None,
        status=204,
    ),
)
