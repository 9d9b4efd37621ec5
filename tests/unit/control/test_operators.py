"""Operators: a token proves one of them, and nothing else does."""

from __future__ import annotations

import pytest

from mesh.control.operators import MintedToken, bootstrap
from mesh.kernel.clock import DAY_MS
from mesh.kernel.errors import Conflict, Refused
from mesh.records.operator import OperatorRole
from tests.unit.control.world import ALICE, World


def minted(world: World, days: int = 90) -> MintedToken:
    return world.operators.create(
        name="Grace",
        role=OperatorRole.OPERATOR,
        agents=("agt_1", "agt_2"),
        days=days,
        cause=ALICE,
        minting=world.minting(),
    )


def test_a_token_proves_its_operator() -> None:
    world = World()
    made = minted(world)
    proven = world.operators.authenticate(f"Bearer {made.token}")
    assert proven is not None
    assert proven.principal.operator_id == made.record.operator_id
    assert proven.principal.reaches("agt_2")
    assert not proven.principal.reaches("agt_3")


def test_a_token_is_stored_as_its_hash_and_shows_in_no_repr() -> None:
    world = World()
    made = minted(world)
    assert made.token not in repr(list(world.aws.items()))
    assert made.token[17:] not in repr(list(world.aws.items()))
    assert made.token not in repr(made)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: None,
        lambda token: "",
        lambda token: "Bearer ",
        lambda token: token,
        lambda token: f"Basic {token}",
        lambda token: f"Bearer {token}x",
        lambda token: f"Bearer {token[:-1]}",
        lambda token: f"Bearer {token[:17]}{'A' * 43}",
        lambda token: f"Bearer mop_{'0' * 12}_{token[17:]}",
        lambda token: f"Bearer {token.lower()}",
        lambda token: f"Bearer {token}, Bearer {token}",
        lambda token: f"Bearer {token}\n",
    ],
)
def test_every_other_header_proves_nobody(spoil: object) -> None:
    world = World()
    token = minted(world).token
    assert callable(spoil)
    assert world.operators.authenticate(spoil(token)) is None


def test_a_token_that_is_over_or_revoked_proves_nobody() -> None:
    world = World()
    made = minted(world, days=1)
    header = f"Bearer {made.token}"
    world.clock.ms += DAY_MS - 1
    assert world.operators.authenticate(header) is not None
    world.clock.ms += 1
    assert world.operators.authenticate(header) is None
    other = minted(world)
    world.operators.revoke(other.record, ALICE)
    assert world.operators.authenticate(f"Bearer {other.token}") is None


def test_a_revoked_operator_is_listed_and_otherwise_not_there() -> None:
    world = World()
    made = minted(world)
    world.operators.revoke(made.record, ALICE)
    (listed,) = world.operators.page(50, None)[0]
    assert listed.revoked_at == world.clock.now_ms()
    assert world.operators.by_id(made.record.operator_id) is None
    with pytest.raises(Refused):
        world.operators.revoke(made.record, ALICE)


def test_a_change_of_reach_holds_for_the_next_request() -> None:
    world = World()
    made = minted(world)
    world.operators.update(
        made.record,
        version=1,
        name="Grace H.",
        role=OperatorRole.VIEWER,
        agents=None,
        cause=ALICE,
    )
    proven = world.operators.authenticate(f"Bearer {made.token}")
    assert proven is not None
    assert (proven.principal.role, proven.principal.agents) == (OperatorRole.VIEWER, None)
    with pytest.raises(Conflict):
        world.operators.update(
            made.record, version=1, name="x", role=OperatorRole.VIEWER, agents=None, cause=ALICE
        )


def test_operators_are_listed_page_by_page_oldest_first() -> None:
    world = World()
    made = []
    for _ in range(5):
        world.clock.forward(1)
        made.append(minted(world).record.operator_id)
    first, after = world.operators.page(2, None)
    second, after = world.operators.page(2, after)
    third, after = world.operators.page(2, after)
    assert [t.operator_id for t in (*first, *second, *third)] == made
    assert after is None


def test_bootstrap_mints_an_admin_and_says_so_in_the_audit() -> None:
    world = World()
    made = bootstrap(world.operators, "req_boot")
    assert made.record.role is OperatorRole.ADMIN
    (row,) = [item for item in world.aws.items() if item["pk"].startswith("AUDIT#")]
    assert (row["actor"], row["action"]) == ("bootstrap", "operator.create")
