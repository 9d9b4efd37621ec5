"""Owns a turn: the head of a conversation, from its lease to its reply in the outbox.

Refuses to work on anything but the head, and to answer before its turn. A worker that meets a live
lease lets go at once: the holder is bound to look for more work in the very transaction that ends
its run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from mesh.connectors.contract import Outbound, Reply
from mesh.engine import lease
from mesh.engine.budgets import TOKENS, TURNS, Budgets
from mesh.engine.context import read_context
from mesh.engine.ledger import Ledger, progress
from mesh.engine.slots import NoSlot, Place, Slots
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed, Refused
from mesh.kernel.ids import Ids
from mesh.kernel.limits import (
    LEASE_RENEW_MS,
    LEASES_WITHOUT_PROGRESS_MAX,
    MODEL_CALL_S_MAX,
    MODEL_TEXT_BYTES_MAX,
    PARK_LOOKS_MAX,
    RUNS_PER_INVOCATION_MAX,
    TURN_RETRY_S,
)
from mesh.kernel.log import Log
from mesh.models.contract import ModelConnector, ModelRequest
from mesh.outbox.commit import CONVERSATION_DELETED, Commit, Ending, LostLease
from mesh.records.agent import Agent, ModelKind
from mesh.records.conversation import Conversation, Pending
from mesh.records.install import AgentStatus, Install
from mesh.records.run import RunStatus, StepKind, StepStatus
from mesh.storage import keys
from mesh.storage.conversations import Head, read_head
from mesh.storage.queues import Bell
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import update

_MODEL_CALL_MS_MAX: Final = int(MODEL_CALL_S_MAX * 1000)
_FAILURE_TEXT: Mapping[str, str] = {
    "poisoned": "I could not finish answering this message: every try was cut short.",
    "deadline": "I ran out of the time that I have for an answer.",
    "model_failed": "I could not reach the language model that I think with.",
    "model_unavailable": "The language model that I am set up with is not available here.",
    "queue_expired": "This message waited too long for its turn, so I did not answer it.",
    "message_deleted": "",  # nobody is reminded of what was to be forgotten
    TURNS: "I have answered as much as I may for one day. Please try again tomorrow.",
    TOKENS: "I have thought as much as I may for one day. Please try again tomorrow.",
}
_EXPIRED: Final = frozenset({"queue_expired", "message_deleted"})


@dataclass(frozen=True, slots=True)
class _Said:
    """What the model said, or why it said nothing."""

    text: str
    failure: str | None = None


class TurnWorker:
    """Works conversations down. One per function."""

    def __init__(
        self,
        *,
        table: Table,
        bell: Bell,
        commit: Commit,
        models: Mapping[ModelKind, ModelConnector],
        outbound: Mapping[str, Outbound],
        clock: Clock,
        ids: Ids,
        log: Log,
        kept_days: int,
    ) -> None:
        self._table = table
        self._bell = bell
        self._commit = commit
        self._models = models
        self._outbound = outbound
        self._clock = clock
        self._ids = ids
        self._log = log
        self._kept_days = kept_days
        self._slots = Slots(table, clock, ids, bell)
        self._budgets = Budgets(table, clock, ids)

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
                if self._run(head, head.pending, agent, place, until) == 0:
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

    def _run(self, head: Head, pending: Pending, agent: Agent, place: Place, until: int) -> int:
        """Leases, thinks and commits one run; answers how many wait behind it."""
        conversation = head.conversation
        assert conversation is not None
        pending, refused = self._lease(conversation.conversation_id, pending, agent, until)
        try:
            said = (
                self._think(conversation, pending, agent, place)
                if refused is None
                else _Said("", refused)
            )
            ending = self._ending(conversation, pending, agent, said)
            waiting = self._commit.end(head, pending, ending)
        except Failed:
            self._excuse(conversation, pending)
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
        self, conversation_id: str, pending: Pending, agent: Agent, until: int
    ) -> tuple[Pending, str | None]:
        """Takes the run's lease; and why it is to end unanswered, if it is. Its first lease counts
        it among the turns of the day, whatever becomes of it then."""
        limits = agent.limits
        refused = None
        if pending.lease_no == 0 and self._queued_ms(pending, agent) > limits.queue_seconds * 1000:
            refused = "queue_expired"
        elif limits.turns_per_day is not None and not pending.counted:
            counted = lease.taken(self._ids, self._clock, pending, until, counted=True)
            write = lease.taking(conversation_id, pending, counted)
            if self._budgets.take_turn(agent, limits.turns_per_day, write):
                return counted, None
            refused = TURNS
        after = lease.taken(self._ids, self._clock, pending, until)
        return lease.take(self._table, conversation_id, pending, after), refused

    def _think(
        self, conversation: Conversation, pending: Pending, agent: Agent, place: Place
    ) -> _Said:
        """The run's steps. One that has a result is not made again, whoever made it."""
        now = self._clock.now_ms()
        limits = agent.limits
        keep = None
        if limits.tokens_per_day is not None:
            keep = partial(self._budgets.keep_answer, agent, limits.tokens_per_day)
        ledger = Ledger(self._table, pending, self._kept_days, keep)
        steps = ledger.steps()
        lost = pending.lease_no - 1 - pending.excused - progress(steps)
        if lost >= LEASES_WITHOUT_PROGRESS_MAX:
            return _Said("", "poisoned")
        done = next((s for s in steps if s.status is StepStatus.COMPLETED), None)
        if done is not None:
            return _Said(done.text or "")
        started_at = pending.first_leased_at or now
        left_s = (started_at + limits.seconds * 1000 - now) / 1000
        if left_s <= 0:
            return _Said("", "deadline")
        model = self._models.get(agent.model.kind)
        if model is None:
            return _Said("", "model_unavailable")
        if self._budgets.tokens_reached(agent):
            return _Said("", TOKENS)
        lines = read_context(self._table, conversation, pending)
        if not lines:
            return _Said("", "message_deleted")
        step = ledger.begin(1, StepKind.MODEL, now)
        try:
            answer = model.answer(
                ModelRequest(agent.instructions, lines), min(left_s, MODEL_CALL_S_MAX)
            )
        except (Failed, Refused) as error:
            ledger.finish(step, StepStatus.FAILED, self._clock.now_ms(), error=error.code)
            return _Said("", "model_failed")
        if self._clock.now_ms() - now > LEASE_RENEW_MS:
            until = place.renew()
            if until is not None:  # without a slot the lease ends when it ends
                lease.renew(self._table, conversation.conversation_id, pending, until)
        text = _bounded(answer.text)
        ledger.finish(
            step, StepStatus.COMPLETED, self._clock.now_ms(), text=text, usage=answer.usage
        )
        return _Said(text)

    def _queued_ms(self, pending: Pending, agent: Agent) -> int:
        """How long the run waited; a pause does not count, so the wait begins anew with a
        resume."""
        return self._clock.now_ms() - max(pending.created_at, agent.resumed_at or 0)

    def _ending(
        self, conversation: Conversation, pending: Pending, agent: Agent, said: _Said
    ) -> Ending:
        if said.failure is None:
            text, outcome, status = said.text, "reply", RunStatus.COMPLETED
        else:
            text, outcome = _FAILURE_TEXT[said.failure], "failure"
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
                    in_reply_to=pending.message_id,
                    run_id=f"run_{pending.story}",
                    outcome=outcome,
                    agent_slug=agent.slug,
                    agent_name=agent.name,
                    agent_handle=agent.handle,
                    body=text,
                    created_at=now_ms,
                )
            )

        return Ending(status, said.failure, render)

    def _failure_replies(self, install_id: str) -> bool:
        item = self._table.get(keys.settings(install_id))
        return item is not None and msgspec.convert(item, Install).failure_replies

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

    def _excuse(self, conversation: Conversation, pending: Pending) -> None:
        """Gives the lease back after a dependency failed, so that the next ring need not wait for
        its end."""
        try:
            lease.give_back(self._table, conversation.conversation_id, pending)
        except (Failed, LostLease):
            return
        self._bell.turn(conversation.conversation_id, pending.agent_id, delay_s=TURN_RETRY_S)


def _bounded(text: str) -> str:
    """A model's text, cut before it is kept, with a mark that says so."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MODEL_TEXT_BYTES_MAX:
        return data.decode()
    mark = " […]"
    return data[: MODEL_TEXT_BYTES_MAX - len(mark.encode())].decode(errors="ignore") + mark
