"""The epoch: what it ends, what it is a condition of, and that none is used twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mesh.control.audit import Cause
from mesh.control.epochs import check_epoch, current_epoch, next_epoch
from mesh.control.idempotency import Minting
from mesh.control.jobs import Jobs
from mesh.control.operators import MintedToken, bootstrap
from mesh.control.restore import Restoring
from mesh.kernel.errors import Conflict, Failed, Refused
from mesh.records.epoch import Epoch
from mesh.records.job import Job, JobKind
from mesh.storage.writes import Write
from tests.unit.control.world import World


class Restored:
    """An instance in whose place a backup was put."""

    def __init__(self) -> None:
        self.world = World()
        world = self.world
        self.jobs = Jobs(world.table, world.clock, world.ids)
        self.restoring = Restoring(world.table, world.clock, world.audit, world.installs)

    def token(self) -> MintedToken:
        return bootstrap(self.world.operators, "req_x")

    def finish(self, by: MintedToken) -> Job:
        cause = Cause(by.record.operator_id, "req_y")
        return self.restoring.order(self.jobs, self.world.operators, cause)

    def counts(self, made: MintedToken) -> bool:
        return self.world.operators.authenticate(f"Bearer {made.token}") is not None


def test_one_transaction_ends_every_token_but_the_callers() -> None:
    restored = Restored()
    others, mine = [restored.token() for _ in range(3)], restored.token()
    job = restored.finish(mine)
    assert [restored.counts(each) for each in others] == [False] * 3
    assert restored.counts(mine)
    assert restored.counts(restored.token()), "what is minted afterwards is of the new epoch"
    epoch = current_epoch(restored.world.table)
    assert (job.kind, job.wanted) == (JobKind.FINISH_RESTORE, {"epoch": epoch.epoch})
    assert epoch.job_id == job.job_id


def test_a_caller_who_was_ended_meanwhile_ends_nobody() -> None:
    restored = Restored()
    first, second = restored.token(), restored.token()
    restored.finish(first)
    before = current_epoch(restored.world.table)
    with pytest.raises(Refused):
        restored.finish(second)
    assert current_epoch(restored.world.table) == before
    assert restored.counts(first)


@pytest.mark.parametrize(
    ("last", "now_ms", "fresh"),
    [(1, 1_796_000_000_999, 1_796_000_000), (1_796_000_000, 1_796_000_000_999, 1_796_000_001)],
)
def test_an_epoch_is_the_second_in_which_it_began_or_one_more(
    last: int, now_ms: int, fresh: int
) -> None:
    assert next_epoch(Epoch(epoch=last), now_ms) == fresh


class Racing(Minting):
    """A minting beside which a restore is finished, just before the transaction."""

    restored: Restored
    by: MintedToken

    def write(self, answer: Mapping[str, Any], now_ms: int) -> Write:
        Racing.restored.finish(Racing.by)
        return super().write(answer, now_ms)


def test_an_agent_that_is_made_beside_a_restore_is_of_the_new_epoch_or_is_not_made() -> None:
    restored = Restored()
    Racing.restored, Racing.by = restored, restored.token()
    racing = Racing("opr_alice", "POST", "/api/agents", "key", "digest")
    with pytest.raises(Failed, match="just being restored"):
        restored.world.agent_with(racing)
    assert restored.world.agents.by_slug("ada") is None
    made = restored.world.agent()
    assert made.epoch == current_epoch(restored.world.table).epoch > 1


def test_connectors_open_once_their_agent_was_taken_over() -> None:
    restored = Restored()
    agent = restored.world.agent()
    check_epoch(restored.world.table, agent.agent_id)
    job = restored.finish(restored.token())
    with pytest.raises(Conflict, match=f"mesh job wait {job.job_id}"):
        check_epoch(restored.world.table, agent.agent_id)
    restored.restoring.take_over(agent.agent_id, job.wanted["epoch"])
    restored.restoring.take_over(agent.agent_id, job.wanted["epoch"])
    check_epoch(restored.world.table, agent.agent_id)
    restored.restoring.take_over(agent.agent_id, job.wanted["epoch"] - 1)
    found = restored.world.agents.by_id(agent.agent_id)
    assert found is not None
    assert found.epoch == job.wanted["epoch"], "an older job takes nothing back"
