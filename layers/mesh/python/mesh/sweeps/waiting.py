"""Owns the sweep's look at an agent whose conversations wait for one of its running slots.

Refuses to believe the index that nobody waits: it lags, so the mark stands for ten minutes after
the last worker said that it would let a conversation wait.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from mesh.engine.slots import free_slots, release_oldest
from mesh.kernel.clock import MINUTE_MS, Clock
from mesh.kernel.limits import TICK_SLACK_MS, WAITING_WATCHED_MS
from mesh.records.agent import Agent
from mesh.records.install import AgentStatus
from mesh.records.running import Running
from mesh.storage import keys
from mesh.storage.keys import Key
from mesh.storage.table import Table
from mesh.sweeps.marks import Marks


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a look found: since when (Unix ms) the oldest waits, and whom to ring for."""

    since: int | None = None
    conversation_ids: tuple[str, ...] = ()


class WaitingRuns:
    """Looks at rows `RUNNING` whose mark is due."""

    def __init__(self, table: Table, marks: Marks, clock: Clock) -> None:
        self._table = table
        self._marks = marks
        self._clock = clock

    def look_at(self, key: Key, running: Running) -> Waiting:
        """Gives as many waiting conversations back to the due index as slots are free.

        Those of an agent that does not work (it is paused) stay where they are. Raises Failed.
        """
        now = self._clock.now_ms()
        agent_id = keys.agent_of(key)
        oldest = self._table.query_due(keys.waiting(agent_id), until_ms=None, limit=1).items
        if not oldest and running.parked_at <= now - WAITING_WATCHED_MS:
            self._marks.drop(key, running, "#parked_at = :seen_at", seen_at=running.parked_at)
            return Waiting()
        if not self._marks.move(key, running, now + MINUTE_MS - TICK_SLACK_MS) or not oldest:
            return Waiting()
        item = self._table.get(keys.agent(agent_id))
        agent = None if item is None else msgspec.convert(item, Agent)
        if agent is None or agent.status is not AgentStatus.ACTIVE:
            return Waiting()
        free = free_slots(running, agent, now)
        released = release_oldest(self._table, agent_id, free, now)
        return Waiting(oldest[0]["due_at"], tuple(released))
