"""Owns the routes of what an agent keeps: its vault, and its model's key.

Refuses to answer with a value, whoever asks: a value is put, listed by its name, and deleted.
"""

from __future__ import annotations

from typing import Final

from mesh.control.accounts import account_of
from mesh.control.agents import not_found
from mesh.control.vault import is_name
from mesh.kernel.clock import rfc3339
from mesh.kernel.errors import FieldProblem, Invalid
from mesh.kernel.limits import VAULT_NAME_CHARS_MAX
from mesh.operator.agents import agent_of
from mesh.operator.route import Answer, Call, Needs, Route
from mesh.operator.shapes.base import Listing, Nothing
from mesh.operator.shapes.vault import (
    AccountShown,
    ModelKeyShown,
    ModelKeyTaken,
    ValueList,
    ValueShown,
    ValueTaken,
)
from mesh.records.agent import Agent
from mesh.records.value import SealedValue


def _list(call: Call, agent: Agent, query: Listing) -> Answer:
    place = call.place(query.cursor)
    after = str(place[0]) if place is not None else None
    values, last = call.plane.vault.page(agent.agent_id, query.limit, after)
    cursor = call.cursor(None if last is None else [last])
    return Answer(ValueList(items=[_shown(value) for value in values], next_cursor=cursor))


def _put(call: Call, agent: Agent, body: ValueTaken) -> Answer:
    name = call.path["name"]
    if not is_name(name):
        problem = FieldProblem(
            "name",
            f"1 to {VAULT_NAME_CHARS_MAX} letters, digits, dots, underscores and hyphens,"
            " a letter or digit first",
        )
        raise Invalid("invalid_request", "the name is not valid", (problem,))
    account = None
    if body.account is not None:
        account = account_of(body.account.origin, body.account.name)
    return Answer(_shown(call.plane.vault.set(agent, name, body.value, call.cause, account)))


def _delete(call: Call, agent: Agent, _: Nothing) -> Answer:
    name = call.path["name"]
    if not is_name(name):
        raise not_found()
    call.plane.vault.delete(agent, name, call.cause)
    return Answer(None, 204)


def _put_model_key(call: Call, agent: Agent, body: ModelKeyTaken) -> Answer:
    kept = call.plane.vault.set_model_key(agent, body.value, call.cause)
    return Answer(
        ModelKeyShown(
            credential_present=True,
            kept_for=kept.kept_for,
            version=kept.version,
            updated_at=rfc3339(kept.updated_at),
        )
    )


def _delete_model_key(call: Call, agent: Agent, _: Nothing) -> Answer:
    call.plane.vault.delete_model_key(agent, call.cause)
    return Answer(None, 204)


def _shown(value: SealedValue) -> ValueShown:
    return ValueShown(
        name=value.name,
        version=value.version,
        created_at=rfc3339(value.created_at),
        updated_at=rfc3339(value.updated_at),
        account=None
        if value.account is None
        else AccountShown(origin=value.account.origin, name=value.account.name),
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/agents/{slug}/vault",
        operation="listVault",
        summary="The values in an agent's vault: names, versions and ages",
        needs=Needs.VIEWER,
        find=agent_of,
        takes=Listing,
        act=_list,
        answers=ValueList,
    ),
    Route(
        method="PUT",
        path="/api/agents/{slug}/vault/{name}",
        operation="putVaultValue",
        summary="Keep a value in an agent's vault; it is never shown again",
        needs=Needs.OPERATOR,
        find=agent_of,
        takes=ValueTaken,
        act=_put,
        answers=ValueShown,
    ),
    Route(
        method="DELETE",
        path="/api/agents/{slug}/vault/{name}",
        operation="deleteVaultValue",
        summary="Forget a value of an agent's vault",
        needs=Needs.OPERATOR,
        find=agent_of,
        takes=Nothing,
        act=_delete,
        answers=None,
        status=204,
    ),
    Route(
        method="PUT",
        path="/api/agents/{slug}/model-key",
        operation="putModelKey",
        summary="Keep the key of an agent's model, for its kind and origin alone",
        needs=Needs.OPERATOR,
        find=agent_of,
        takes=ModelKeyTaken,
        act=_put_model_key,
        answers=ModelKeyShown,
    ),
    Route(
        method="DELETE",
        path="/api/agents/{slug}/model-key",
        operation="deleteModelKey",
        summary="Forget the key of an agent's model",
        needs=Needs.OPERATOR,
        find=agent_of,
        takes=Nothing,
        act=_delete_model_key,
        answers=None,
        status=204,
    ),
)
