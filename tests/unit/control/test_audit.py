"""The audit trail: in the change's own transaction, listed newest first, never changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.local.aws import Faults, Kind
from mesh.control.audit import Cause, Deed, Place, Search
from mesh.kernel.clock import DAY_MS
from mesh.kernel.errors import Failed
from mesh.kernel.limits import AUDIT_SHARD_ROWS_FIRST, AUDIT_SHARDS
from mesh.records.operator import Audit
from mesh.storage.keys import Key
from mesh.storage.table import Cancelled
from mesh.storage.writes import put
from tests.unit.control.world import ALICE, World


def deed(world: World, action: str = "agent.update", target: str = "ada") -> None:
    world.clock.forward(0.01)
    world.audit.commit((), ALICE, Deed(action=action, target=target))


def told(world: World, search: Search, limit: int = 50) -> list[Audit]:
    found: list[Audit] = []
    place: Place | None = None
    while True:
        page, place = world.audit.page(search, limit, place)
        assert len(page) <= limit
        found += page
        if place is None:
            return found


def started() -> World:
    """A world in which an operator exists, before whom nothing was audited."""
    world = World()
    world.operators.create(name="x", role="admin", agents=None, cause=ALICE, minting=None)  # type: ignore[arg-type]
    return world


@pytest.mark.behaviour("audit:settings-write")
def test_a_change_that_fails_leaves_no_audit_row_and_no_row_without_its_change() -> None:
    world = World()
    key = Key("X", "1")
    world.audit.commit(
        [put(key, {}, "attribute_not_exists(#pk)")], ALICE, Deed(action="a.b", target="x")
    )
    with pytest.raises(Cancelled):
        world.audit.commit(
            [put(key, {}, "attribute_not_exists(#pk)")], ALICE, Deed(action="a.b", target="x")
        )
    assert world.actions() == ["a.b"]


def test_rows_are_listed_newest_first_over_days_and_shards_in_pages() -> None:
    world = started()
    for day in range(4):
        for number in range(12):
            deed(world, target=f"{day}-{number}")
        world.clock.ms += DAY_MS
    rows = told(world, Search(action="agent.update"), limit=7)
    assert [row.target for row in rows] == [
        f"{day}-{number}" for day in reversed(range(4)) for number in reversed(range(12))
    ]


def test_a_page_reads_little_of_a_day_of_many_rows_and_a_search_finds_the_oldest() -> None:
    world = started()
    deed(world, target="oldest")
    for number in range(AUDIT_SHARDS * 20):
        deed(world, target=str(number))
    before = world.aws.dynamo.passed
    page, _ = world.audit.page(Search(action="agent.update"), 10, None)
    assert [row.target for row in page] == [str(AUDIT_SHARDS * 20 - n) for n in range(1, 11)]
    assert world.aws.dynamo.passed - before <= AUDIT_SHARDS * (AUDIT_SHARD_ROWS_FIRST + 1)
    assert len(told(world, Search(target="oldest"))) == 1
    assert len(told(world, Search(action="agent.update"), limit=200)) == AUDIT_SHARDS * 20 + 1


def test_pages_keep_their_place_while_new_rows_come() -> None:
    world = started()
    for number in range(6):
        deed(world, target=str(number))
    page, place = world.audit.page(Search(action="agent.update"), 3, None)
    deed(world, target="new")
    rest, _ = world.audit.page(Search(action="agent.update"), 3, place)
    assert [row.target for row in (*page, *rest)] == ["5", "4", "3", "2", "1", "0"]


def test_filters_are_by_target_actor_action_and_time() -> None:
    world = started()
    deed(world, "agent.pause", "ada")
    at = world.clock.now_ms()
    deed(world, "agent.resume", "ada")
    deed(world, "agent.pause", "bob")
    everything = Search()
    assert [r.target for r in told(world, replace(everything, action="agent.pause"))] == [
        "bob",
        "ada",
    ]
    assert len(told(world, replace(everything, target="ada"))) == 2
    assert len(told(world, replace(everything, actor="opr_alice"))) == 4
    assert told(world, replace(everything, actor="opr_bob")) == []
    assert [r.action for r in told(world, Search(target="ada", since=at + 1))] == ["agent.resume"]
    assert [r.action for r in told(world, Search(target="ada", until=at + 1))] == ["agent.pause"]


def test_a_request_reads_a_bounded_number_of_days() -> None:
    world = started()
    world.clock.ms += 60 * DAY_MS
    with world.aws.recording() as calls:
        page, place = world.audit.page(Search(), 50, None)
    assert page == []
    assert place is not None, "the rest is the next page's"
    assert len(calls) <= 8 * 16 + 1


def test_an_outcome_that_was_lost_is_settled_and_the_deed_done_once() -> None:
    for seed in range(12):
        world = World(Faults(seed, rates={Kind.LOST: 0.3, Kind.CONFLICT: 0.2, Kind.THROTTLE: 0.1}))
        done = 0
        for number in range(8):
            write = put(Key("X", str(number)), {}, "attribute_not_exists(#pk)")
            try:
                world.audit.commit([write], Cause("opr", "req"), Deed(action="a.b", target="x"))
                done += 1
            except Failed:
                pass
        rows = [item for item in world.aws.items() if item["pk"] == "X"]
        assert len(rows) == len(world.actions()) >= done
