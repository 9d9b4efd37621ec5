"""Agents: made once, changed by version, and copied to where ingress looks."""

from __future__ import annotations

import pytest

from mesh.control.agents import Agents
from mesh.control.audit import Cause
from mesh.control.idempotency import Minted
from mesh.kernel.errors import Conflict
from mesh.kernel.limits import INSTALLS_PER_AGENT_MAX
from mesh.records.agent import Agent
from mesh.records.install import AgentStatus
from tests.unit.control.world import ALICE, World


def change(world: World, agent: Agent, version: int, **fields: str) -> Agent:
    return world.agents.update(
        agent,
        version=version,
        name=fields.get("name", agent.name),
        handle=fields.get("handle", agent.handle),
        instructions=fields.get("instructions", agent.instructions),
        model=agent.model,
        limits=agent.limits,
        cause=ALICE,
    )


def test_an_agent_is_found_by_its_slug_as_it_was_made() -> None:
    world = World()
    made = world.agent()
    assert world.agents.by_slug("ada") == made
    assert world.agents.by_id(made.agent_id) == made
    assert world.agents.by_slug("eve") is None


def test_a_slug_is_taken_once() -> None:
    world = World()
    world.agent()
    with pytest.raises(Conflict) as caught:
        world.agent()
    assert caught.value.code == "already_exists"
    assert world.actions() == ["agent.create"]


def test_the_same_idempotency_key_makes_no_second_agent() -> None:
    world = World()
    minting = world.minting("key")

    made = world.agent_with(minting)
    with pytest.raises(Minted) as caught:
        world.agent_with(minting)
    assert caught.value.answer == {"agent_id": made.agent_id}
    assert world.actions() == ["agent.create"]


def test_agents_are_listed_by_slug_page_by_page_and_inserts_move_no_place() -> None:
    world = World()
    for slug in ("c", "a", "e"):
        world.agent(slug)
    page, after = world.agents.page(2, None)
    assert [agent.slug for agent in page] == ["a", "c"]
    world.agent("b")
    page, after = world.agents.page(2, after)
    assert [agent.slug for agent in page] == ["e"]
    assert after is None


@pytest.mark.behaviour("operator:stale-409")
def test_an_edit_of_an_outdated_version_is_a_conflict_that_names_the_current_one() -> None:
    world = World()
    agent = world.agent()
    changed = change(world, agent, 1, name="Ada L.")
    assert changed.version == 2
    with pytest.raises(Conflict) as caught:
        change(world, changed, 1, name="Other")
    assert (caught.value.code, caught.value.current_version) == ("version_conflict", 2)


@pytest.mark.behaviour("operator:stale-409")
def test_of_two_edits_of_one_version_one_wins() -> None:
    world = World()
    read = world.agent()
    change(world, read, 1, name="First")
    with pytest.raises(Conflict) as caught:
        change(world, read, 1, name="Second")
    assert caught.value.current_version == 2
    found = world.agents.by_slug("ada")
    assert found is not None
    assert found.name == "First"


def test_a_pause_and_a_name_reach_every_install_in_the_same_transaction() -> None:
    world = World()
    agent = world.agent()
    installs = [world.install(agent)[0].install_id for _ in range(3)]
    seen: set[tuple[str, ...]] = set()
    world.aws.on_write(
        lambda aws: seen.add(
            tuple(item["agent_status"] for item in aws.items() if "agent_status" in item)
        )
    )
    world.agents.pause(agent, ALICE)
    world.aws.on_write(None)
    assert seen == {("paused",) * 3}, "no state in between was ever there"
    current = world.agents.by_slug("ada")
    assert current is not None
    change(world, current, 1, handle="lovelace")
    for install_id in installs:
        install = world.installs.by_id(install_id)
        assert install is not None
        assert (install.agent_handle, install.agent_status) == ("lovelace", AgentStatus.PAUSED)


def test_a_pause_misses_no_install_that_is_made_while_it_is_being_written() -> None:
    world = World()
    agent = world.agent()
    world.install(agent)

    class Between(Agents):
        """Another operator makes an install after the set of installs was read."""

        made = False

        def _roster(self, agent_id: str) -> tuple[int, list[str]]:
            roster = super()._roster(agent_id)
            if not self.made:
                self.made = True
                world.install(agent)
            return roster

    Between(world.table, world.clock, world.ids, world.audit).pause(agent, ALICE)
    statuses = [item["agent_status"] for item in world.aws.items() if "agent_status" in item]
    assert statuses == ["paused", "paused"]


def test_pausing_twice_changes_nothing_and_audits_once() -> None:
    world = World()
    paused = world.agents.pause(world.agent(), ALICE)
    assert world.agents.pause(paused, ALICE) == paused
    assert sorted(world.actions()) == ["agent.create", "agent.pause"]


def test_resuming_orders_the_release_of_held_work_with_it() -> None:
    world = World()
    agent = world.agents.pause(world.agent(), ALICE)
    world.clock.forward(60)
    resumed = world.agents.resume(agent, ALICE)
    assert resumed.resumed_at == world.clock.now_ms()
    (release,) = [item for item in world.aws.items() if item["sk"].startswith("RELEASE")]
    assert release["source"] == f"HELD#{agent.agent_id}"


def test_an_agent_has_so_many_connectors_that_one_transaction_can_change_them() -> None:
    world = World()
    agent = world.agent()
    for _ in range(INSTALLS_PER_AGENT_MAX):
        last, _ = world.install(agent)
    with pytest.raises(Conflict) as caught:
        world.install(agent)
    assert caught.value.code == "state_conflict"
    assert world.agents.pause(agent, ALICE).status is AgentStatus.PAUSED
    world.enablement.remove(last, Cause("opr_alice", "req_2"))
    resumed = world.agents.resume(world.agents.by_slug("ada") or agent, ALICE)
    world.install(resumed)
