"""The authorizer: proves or does not, and never denies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.operator.authorizer import proven_by
from tests.fakes.operators import admin
from tests.fakes.system import System


@pytest.fixture(scope="module")
def system() -> System:
    return System()


def ask(system: System, headers: dict[str, str]) -> Any:
    return system.stack.runtime.invoke("operator_authorizer", {"headers": headers})


def test_it_hands_on_who_asks(system: System) -> None:
    token = admin(system).token
    answer = ask(system, {"authorization": f"Bearer {token}"})
    assert answer["isAuthorized"] is True
    assert json.loads(answer["context"]["principal"])["role"] == "admin"
    assert str(token) not in json.dumps(answer)
    proven = proven_by({"requestContext": {"authorizer": {"lambda": answer["context"]}}})
    assert proven is not None
    assert len(proven.cursor_key) == 32


@pytest.mark.parametrize("headers", [{}, {"authorization": ""}, {"authorization": "Bearer x"}])
def test_nobody_is_let_through_as_nobody(system: System, headers: dict[str, str]) -> None:
    assert ask(system, headers) == {"isAuthorized": True, "context": {"principal": "none"}}


@pytest.mark.parametrize(
    "context", [{}, {"authorizer": {}}, {"authorizer": {"lambda": {}}}, {"authorizer": None}]
)
def test_where_the_authorizer_said_nothing_there_is_nobody(context: dict[str, Any]) -> None:
    assert proven_by({"requestContext": context}) is None
    assert proven_by({}) is None
