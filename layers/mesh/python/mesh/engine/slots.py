"""Owns the running slots of an agent: how many of its conversations are worked on at once, and who
waits for one.

Refuses to count what runs: a slot is an attribute of one row, taken by a condition and free again
when its lease is over, so that a worker that dies gives its own back. What finds none free waits in
a partition of its own; whoever frees a slot rings for the oldest, and the sweep rings each minute
for as many as there are free slots, so that no ring and no index is relied on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed
from mesh.kernel.ids import Ids
from mesh.kernel.limits import (
    DUE_AFTER_MS,
    LEASE_GRACE_MS,
    LEASE_MS,
    PARKED_NOTED_MS,
    RELEASED_PAGE_ITEMS,
    RELEASED_PAGES_MAX,
    SLOT_FRESH_MS,
    SLOT_TAKES_MAX,
)
from mesh.records.agent import Agent
from mesh.records.conversation import Conversation, Pending
from mesh.records.running import Running, slot_names
from mesh.storage import keys
from mesh.storage.keys import Key
from mesh.storage.queues import Bell
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import update

_WIDTH_STANDS: Final = "(attribute_not_exists(#width) OR #width = :width)"


@dataclass(frozen=True, slots=True)
class Slot:
    """One worker's place among an agent's, until a time (Unix ms)."""

    name: str
    until: int


class NoSlot(Exception):
    """All are taken. `running` is the row that says so."""

    def __init__(self, running: Running) -> None:
        super().__init__("all running slots are taken")
        self.running = running


def free_slots(running: Running, agent: Agent, now_ms: int) -> int:
    """How many runs more the agent may have; one whose lease is over, with the grace, counts no
    more."""
    width = len(slot_names(agent.limits.runs_at_once))
    return max(0, width - len(running.taken(now_ms - LEASE_GRACE_MS)))


def release_oldest(table: Table, agent_id: str, count: int, now_ms: int) -> Iterator[str]:
    """Gives up to `count` waiting conversations back to the due index, those that wait longest
    first; yields the id of each, which is then to be rung for.

    They become ordinary due work: should the ring be lost, or the conversation be one that no
    worker can read, it keeps no other from its turn. The index lags: what it still shows of those
    that are gone is passed over by a condition. Raises Failed.
    """
    after = None
    for _ in range(RELEASED_PAGES_MAX):
        page = table.query_due(
            keys.waiting(agent_id), until_ms=None, limit=RELEASED_PAGE_ITEMS, after=after
        )
        for item in page.items:
            if count <= 0:
                return
            key = Key(item["pk"], item["sk"])
            conversation_id = key.pk.removeprefix("CONV#")
            try:
                table.write(
                    update(
                        key,
                        "SET #due_pk = :due, #due_at = :at, #rings = :zero",
                        "#due_pk = :waiting",
                        due=keys.due(conversation_id),
                        at=now_ms + DUE_AFTER_MS,
                        zero=0,
                        waiting=keys.waiting(agent_id),
                    )
                )
            except ConditionFailed:
                continue
            count -= 1
            yield conversation_id
        if page.last is None:
            return
        after = page.last


class Slots:
    """Takes and frees slots, and parks what finds none. One per function."""

    def __init__(self, table: Table, clock: Clock, ids: Ids, bell: Bell) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids
        self._bell = bell

    def take(self, agent: Agent, conversation_id: str) -> Slot:
        """A slot of the agent, for one worker. Raises NoSlot, Failed.

        The first try reads nothing: a condition that fails brings the row. Which slot it reaches
        for is the conversation's own, so that workers do not all reach for the first.
        """
        names = slot_names(agent.limits.runs_at_once)
        key, token = keys.running(agent.agent_id), self._ids.token()
        name = names[keys.shard_of(conversation_id, len(names))]
        held, seen, width = _WIDTH_STANDS, None, len(names)
        for _ in range(SLOT_TAKES_MAX):
            now = self._clock.now_ms()
            try:
                item = self._table.write(
                    update(
                        key,
                        f"SET #{name} = :until, #token = :token, #width = :width, #v = :v",
                        f"{held} AND (attribute_not_exists(#{name}) OR #{name} <= :over)",
                        until=now + LEASE_MS,
                        token=token,
                        width=width,
                        v=keys.ITEM_VERSION,
                        over=now - LEASE_GRACE_MS,
                        **({} if seen is None else {"seen": seen}),
                    ),
                    token,
                )
            except ConditionFailed as failed:
                running = Running.of(failed.old)
            else:
                assert item is not None, "an update answers its row"
                return Slot(name, item[name])
            taken = running.taken(now - LEASE_GRACE_MS)
            if len(taken) >= len(names):
                raise NoSlot(running)
            name = next(each for each in names if each not in taken)
            held, seen, width = _WIDTH_STANDS, None, len(names)
            if running.width is None or running.width == width:
                continue
            # The limit was changed. While slots beyond the new one are taken, those below it are
            # counted with them: by a condition that no take and no renewal came between.
            held, seen = "#token = :seen", running.token
            if not taken <= set(names):
                width = running.width
        raise NoSlot(running)

    def renew(self, agent_id: str, slot: Slot) -> Slot | None:
        """Prolongs a slot; None when its lease ran out and another worker took it. Raises
        Failed."""
        token = self._ids.token()
        try:
            item = self._table.write(
                update(
                    keys.running(agent_id),
                    f"SET #{slot.name} = :until, #token = :token",
                    f"#{slot.name} = :ours",
                    until=self._clock.now_ms() + LEASE_MS,
                    token=token,
                    ours=slot.until,
                ),
                token,
            )
        except ConditionFailed:
            return None
        assert item is not None, "an update answers its row"
        return Slot(slot.name, item[slot.name])

    def free(self, agent_id: str, slot: Slot) -> None:
        """Frees a slot and rings for the conversation that waits longest, if any does.

        Never raises: a slot that stays taken is free when its lease is over, and who waits is the
        sweep's as well.
        """
        try:
            item = self._table.write(
                update(
                    keys.running(agent_id),
                    f"REMOVE #{slot.name}",
                    f"#{slot.name} = :ours",
                    ours=slot.until,
                )
            )
            if Running.of(item).due_pk is None:
                return
            for conversation_id in release_oldest(self._table, agent_id, 1, self._clock.now_ms()):
                self._bell.turn(conversation_id, agent_id)
        except (ConditionFailed, Failed):
            return

    def park(
        self, conversation: Conversation, pending: Pending, agent: Agent, running: Running
    ) -> bool:
        """Lets a conversation wait for a slot; whether one was freed meanwhile, so that it need
        not.

        First the agent's row says that somebody waits, then the conversation waits, then the slots
        are looked at: whoever frees one before that look is seen by it, and whoever frees one after
        it sees the mark. Raises Failed.
        """
        agent_id, now = agent.agent_id, self._clock.now_ms()
        noted = update(
            keys.running(agent_id),
            "SET #parked_at = :now, #due_pk = :due, #due_at = if_not_exists(#due_at, :at)",
            "attribute_exists(#pk)",
            now=now,
            due=keys.due(agent_id),
            at=now + DUE_AFTER_MS,
        )
        waits = update(
            keys.order(conversation.conversation_id),
            "SET #due_pk = :waiting, #due_at = :since",
            "#pending > :none",
            waiting=keys.waiting(agent_id),
            since=pending.created_at,
            none=0,
        )
        try:
            if running.due_pk is None or running.parked_at <= now - PARKED_NOTED_MS:
                self._table.write(noted)
            if conversation.due_pk != keys.waiting(agent_id):
                self._table.write(waits)
        except ConditionFailed:
            return False
        item = self._table.get(keys.running(agent_id))
        return free_slots(Running.of(item), agent, self._clock.now_ms()) > 0


class Place:
    """One worker's slot while it works a conversation down. Not to be shared."""

    def __init__(self, slots: Slots, clock: Clock, conversation_id: str) -> None:
        self._slots = slots
        self._clock = clock
        self._conversation_id = conversation_id
        self._agent_id = ""
        self._slot: Slot | None = None

    def ready(self, agent: Agent) -> int:
        """Sees to it that there is a slot on which a run may begin; answers until when (Unix ms)
        its lease may last.

        A slot that a lowered limit took away is given up. Raises NoSlot, Failed.
        """
        slot = self._slot
        if slot is not None and slot.name not in slot_names(agent.limits.runs_at_once):
            self.free()
            slot = None
        if slot is not None and self._clock.now_ms() > slot.until - LEASE_MS + SLOT_FRESH_MS:
            slot = self._slots.renew(agent.agent_id, slot)
        if slot is None:
            self._slot = None
            slot = self._slots.take(agent, self._conversation_id)
        self._agent_id, self._slot = agent.agent_id, slot
        return slot.until

    def renew(self) -> int | None:
        """Prolongs the slot in the middle of a run; None when it is lost, and the run's lease ends
        when it ends. Raises Failed."""
        if self._slot is not None:
            self._slot = self._slots.renew(self._agent_id, self._slot)
        return None if self._slot is None else self._slot.until

    def free(self) -> None:
        """Gives the slot back, if there is one."""
        if self._slot is not None:
            self._slots.free(self._agent_id, self._slot)
        self._slot = None
