"""Owns a turn: the head of a conversation, from its lease to its reply in the outbox.

Refuses to work on anything but the head, and to answer before its turn. A worker that meets a live
lease lets go at once: the holder is bound to look for more work in the very transaction that ends
its run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from mesh.connectors.contract import Outbound, Reply
from mesh.engine import lease
from mesh.engine.budgets import TOKENS, TURNS, Budgets
from mesh.engine.contract import HandOver, Said
from mesh.engine.slots import NoSlot, Place, Slots
from mesh.engine.thinking import Thinking
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed
from mesh.kernel.ids import Ids
from mesh.kernel.limits import (
    MERGED_MAX,
    MODEL_CALL_S_MAX,
    PARK_LOOKS_MAX,
    RUNS_PER_INVOCATION_MAX,
    TURN_RETRY_S,
)
from mesh.kernel.log import Log
from mesh.outbox.commit import CONVERSATION_DELETED, Commit, Ending, LostLease
from mesh.records.agent import Agent
from mesh.records.conversation import Conversation, Merged, Pending
from mesh.records.install import AgentStatus, Busy, Install
from mesh.records.run import RunStatus
from mesh.storage import keys
from mesh.storage.conversations import Head, read_behind, read_head
from mesh.storage.queues import Bell
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import update

_MODEL_CALL_MS_MAX: Final = int(MODEL_CALL_S_MAX * 1000)
_FAILURE_TEXT: Mapping[str, str] = {
    "poisoned": "I could not finish answering this message: every try was cut short.",
    "deadline": "I ran out of the time that I have for an answer.",
    "budget_spent": "I used up what I may spend on one answer before I had one.",
    "model_unavailable": "The language model that I am set up with is not available here.",
    "model_refused": "The language model that I think with would not answer this message.",
    "queue_expired": "This message waited too long for its turn, so I did not answer it.",
    "message_deleted": "",  # nobody is reminded of what was to be forgotten
    TURNS: "I have answered as much as I may for one day. Please try again tomorrow.",
    TOKENS: "I have thought as much as I may for one day. Please try again tomorrow.",
}
_MODEL_FAILED: Final = "I could not get an answer from the language model that I think with."
_EXPIRED: Final = frozenset({"queue_expired", "message_deleted"})


class TurnWorker:
    """Works conversations down. One per function."""

    def __init__(
        self,
        *,
        table: Table,
        bell: Bell,
        commit: Commit,
        thinking: Thinking,
        slots: Slots,
        budgets: Budgets,
        outbound: Mapping[str, Outbound],
        clock: Clock,
        ids: Ids,
        log: Log,
    ) -> None:
        self._table = table
        self._bell = bell
        self._commit = commit
        self._thinking = thinking
        self._outbound = outbound
        self._clock = clock
        self._ids = ids
        self._log = log
        self._slots = slots
        self._budgets = budgets

    def work(self, conversation_id: str, stop_at_ms: int) -> None:
        """Ends runs from the head on until none is left, another worker holds one, the agent has no
        running slot free, or time is up.

        Raises Failed when the table is unreachable; rows are whole at any line.
        """
        place = Place(self._slots, self._clock, conversation_id)
        try:
            tenant = self._work_down(conversation_id, stop_at_ms, place)
        except Exception:  # whatever it is, others need not wait for the slot's lease to end
            place.free()
            raise
        place.free()
        if tenant is not None:
            self._bell.turn(conversation_id, tenant)

    def _work_down(self, conversation_id: str, stop_at_ms: int, place: Place) -> str | None:
        """Ends runs; answers the agent to ring for where time is up and work is left."""
        tenant = conversation_id
        parked = 0
        for _ in range(RUNS_PER_INVOCATION_MAX):
            head = read_head(self._table, conversation_id)
            if head.pending is None or head.conversation is None:
                return None
            tenant = head.pending.agent_id
            if self._clock.now_ms() + _MODEL_CALL_MS_MAX > stop_at_ms:
                break  # a call that began now could outlast the function
            if head.conversation.forgets(head.pending.order):
                self._forget(head, head.pending)
                continue
            if lease.is_live(head.pending, self._clock.now_ms()):
                return None
            agent = self._agent(head.pending.agent_id)
            if agent is None or agent.status is not AgentStatus.ACTIVE:
                self._hold(head.conversation)
                return None
            try:
                until = place.ready(agent)
            except NoSlot as full:
                parked += 1
                freed = self._slots.park(head.conversation, head.pending, agent, full.running)
                if freed and parked < PARK_LOOKS_MAX:
                    continue
                return None
            try:
                left = self._run(
                    head, head.pending, agent, place=place, until=until, stop_at_ms=stop_at_ms
                )
                if not left:
                    return None
            except LostLease:
                self._log("turn.lease_lost", conversation_id=conversation_id)
        return tenant

    def _forget(self, head: Head, pending: Pending) -> None:
        """Ends a run whose message was deleted, whoever works on it: the next need not wait for
        the job that erases it."""
        try:
            self._commit.end(head, pending, Ending(RunStatus.CANCELLED, CONVERSATION_DELETED, None))
        except LostLease:
            return

    def _agent(self, agent_id: str) -> Agent | None:
        item = self._table.get(keys.agent(agent_id))
        return None if item is None else msgspec.convert(item, Agent)

    def _run(
        self,
        head: Head,
        pending: Pending,
        agent: Agent,
        *,
        place: Place,
        until: int,
        stop_at_ms: int,
    ) -> int | None:
        """Leases, thinks and commits one run; answers how many wait behind it, None where another
        invocation goes on with it."""
        conversation = head.conversation
        assert conversation is not None
        pending, refused = self._lease(conversation, pending, agent, until)
        try:
            said = (
                self._thinking.think(conversation, pending, agent, place, stop_at_ms)
                if refused is None
                else Said("", refused)
            )
            ending = self._ending(conversation, pending, agent, said)
            waiting = self._commit.end(head, pending, ending)
        except HandOver as over:
            self._give_back(conversation, pending, over.delay_s)
            return None
        except Failed:
            self._give_back(conversation, pending, TURN_RETRY_S)
            raise
        if ending.render is not None:
            self._bell.delivery(conversation.conversation_id)
        self._log(
            "turn.ended",
            run_id=f"run_{pending.story}",
            conversation_id=conversation.conversation_id,
            agent_id=agent.agent_id,
            status=ending.status.value,
            reason=ending.reason,
            lease=pending.lease_no,
        )
        return waiting

    def _lease(
        self, conversation: Conversation, pending: Pending, agent: Agent, until: int
    ) -> tuple[Pending, str | None]:
        """Takes the run's lease; and why it is to end unanswered, if it is. Its first lease settles
        what it answers, and counts it among the turns of the day, whatever becomes of it then."""
        conversation_id, limits = conversation.conversation_id, agent.limits
        refused = None
        merged: tuple[Merged, ...] = ()
        if pending.lease_no == 0:
            if self._queued_ms(pending, agent) > limits.queue_seconds * 1000:
                refused = "queue_expired"
            elif conversation.pending > 1:
                merged = self._merged(conversation_id, pending)
        if refused is None and limits.turns_per_day is not None and not pending.counted:
            after = lease.taken(self._ids, self._clock, pending, until, counted=True, merged=merged)
            write = lease.taking(conversation_id, pending, after)
            if self._budgets.take_turn(agent, limits.turns_per_day, write):
                return after, None
            refused, merged = TURNS, ()
        after = lease.taken(self._ids, self._clock, pending, until, merged=merged)
        return lease.take(self._table, conversation_id, pending, after), refused

    def _merged(self, conversation_id: str, pending: Pending) -> tuple[Merged, ...]:
        """The messages that wait behind the run, where its install wants them answered with it."""
        install = self._install(pending.install_id)
        if install is None or install.engagement.busy is not Busy.MERGE:
            return ()
        behind = read_behind(self._table, pending, conversation_id, MERGED_MAX)
        return tuple(
            Merged(story=each.story, order=each.order, message_id=each.message_id)
            for each in behind
        )

    def _queued_ms(self, pending: Pending, agent: Agent) -> int:
        """How long the run waited; a pause does not count, so the wait begins anew with a
        resume."""
        return self._clock.now_ms() - max(pending.created_at, agent.resumed_at or 0)

    def _ending(
        self, conversation: Conversation, pending: Pending, agent: Agent, said: Said
    ) -> Ending:
        if said.failure is None:
            text, outcome, status = said.text, "reply", RunStatus.COMPLETED
        else:
            text, outcome = _failure_text(said.failure), "failure"
            expired = said.failure in _EXPIRED
            status = RunStatus.EXPIRED if expired else RunStatus.FAILED
            if not self._failure_replies(pending.install_id):
                text = ""
        if not text.strip():
            return Ending(status, said.failure or "empty", None)

        outbound = self._outbound[conversation.kind]

        def render(sequence: int, now_ms: int) -> bytes:
            return outbound.render(
                Reply(
                    outbound_id=f"out_{pending.story}",
                    install_id=pending.install_id,
                    conversation_key=conversation.conversation_key,
                    epoch=agent.epoch,
                    sequence=sequence,
                    in_reply_to=pending.answered_id,
                    run_id=f"run_{pending.story}",
                    outcome=outcome,
                    agent_slug=agent.slug,
                    agent_name=agent.name,
                    agent_handle=agent.handle,
                    body=text,
                    created_at=now_ms,
                )
            )

        return Ending(status, said.failure, render, said.sources)

    def _failure_replies(self, install_id: str) -> bool:
        install = self._install(install_id)
        return install is not None and install.failure_replies

    def _install(self, install_id: str) -> Install | None:
        item = self._table.get(keys.settings(install_id))
        return None if item is None else msgspec.convert(item, Install)

    def _hold(self, conversation: Conversation) -> None:
        """Takes a paused agent's work out of the sweep's way; resuming the agent gives it back."""
        try:
            self._table.write(
                update(
                    keys.order(conversation.conversation_id),
                    "SET #due_pk = :held, #due_at = :now",
                    "#pending > :none",
                    held=keys.held(conversation.agent_id),
                    now=self._clock.now_ms(),
                    none=0,
                )
            )
        except ConditionFailed:
            return

    def _give_back(self, conversation: Conversation, pending: Pending, delay_s: float) -> None:
        """Gives the lease back, through no fault of the run's, so that the ring after `delay_s`
        need not wait for its end."""
        try:
            lease.give_back(self._table, conversation.conversation_id, pending)
        except (Failed, LostLease):
            return
        self._bell.turn(
            conversation.conversation_id, pending.agent_id, delay_s=min(900, math.ceil(delay_s))
        )


def _failure_text(failure: str) -> str:
    """What a third party is told of a run that failed: honest, and nothing of the inside."""
    return _FAILURE_TEXT.get(failure, _MODEL_FAILED)
