"""Owns the orders to delete: what is gone at once for whoever asks, in the transaction that orders
the job which erases it.

Refuses to erase: rows are many, and `mesh.jobs` takes them page by page. An install's order is
`enablement`'s, because its tombstone is a state.
"""

from __future__ import annotations

from mesh.control.agents import delete_writes, not_found
from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.jobs import Jobs
from mesh.control.rows import record_of
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Conflict, Failed
from mesh.kernel.limits import TRANSACTION_TRIES
from mesh.records.agent import Agent
from mesh.records.conversation import Conversation
from mesh.records.install import Install
from mesh.records.job import Job, JobKind
from mesh.storage import keys
from mesh.storage.table import Cancelled, Reason, Why
from mesh.storage.writes import Write, update


class Deletions:
    """Orders deletions."""

    def __init__(self, clock: Clock, audit: AuditTrail, jobs: Jobs) -> None:
        self._clock = clock
        self._audit = audit
        self._jobs = jobs

    def conversation(self, conversation: Conversation, cause: Cause) -> Job:
        """Deletes what was said in a conversation so far; what comes later is kept.

        Nobody is shown any of it after this. Raises Refused `not_found` when nothing is left to be
        deleted, Failed.
        """
        for _ in range(TRANSACTION_TRIES):
            to = conversation.last_order
            job = self._jobs.new(
                JobKind.DELETE_CONVERSATION,
                conversation.conversation_id,
                cause,
                agent_id=conversation.agent_id,
                wanted={"forget_to": to},
            )
            forgetting = forget_write(conversation.conversation_id, to)
            refused = self._order(job, cause, "conversation.delete", forgetting)
            if not refused:
                return job
            stands = refused[0].old
            if stands is None:
                raise not_found()
            conversation = record_of(stands, Conversation)
            if conversation.forgotten:
                raise not_found()
        raise Failed("unavailable", "much is being said in the conversation; try again")

    def actor(self, agent: Agent, actor_id: str, cause: Cause) -> Job:
        """Has everything erased that an actor began in any conversation of the agent so far.

        Whether there is such an actor is not known before the job has looked. Raises Failed.
        """
        job = self._jobs.new(
            JobKind.DELETE_ACTOR,
            actor_id,
            cause,
            agent_id=agent.agent_id,
            wanted={"since": agent.created_at},
        )
        self._order(job, cause, "actor.delete")
        return job

    def install(self, install: Install, cause: Cause) -> tuple[Job, Write]:
        """The job that erases what an install has, and the write that orders it: it goes into the
        transaction that makes the install a tombstone."""
        job = self._jobs.new(
            JobKind.DELETE_INSTALL,
            install.install_id,
            cause,
            agent_id=install.agent_id,
            wanted={"since": install.created_at},
        )
        return job, self._jobs.order(job)

    def agent(self, agent: Agent, cause: Cause) -> Job:
        """Deletes a paused agent: it is gone after this, and its slug is given to no other for 90
        days.

        Raises Conflict `state_conflict` where it is not paused, Failed.
        """
        job = self._jobs.new(
            JobKind.DELETE_AGENT,
            agent.slug,
            cause,
            agent_id=agent.agent_id,
            wanted={"since": agent.created_at},
        )
        if self._order(job, cause, "agent.delete", *delete_writes(agent, self._clock.now_ms())):
            raise Conflict(
                "state_conflict",
                "only a paused agent is deleted; pause it first: mesh agent pause " + agent.slug,
            )
        return job

    def _order(self, job: Job, cause: Cause, action: str, *writes: Write) -> tuple[Reason, ...]:
        """Applies the writes together with the order; answers the reasons of `writes`, in their
        order, where a condition stood in the way.

        Raises Failed.
        """
        deed = Deed(action=action, target=job.target, agent_id=job.agent_id)
        try:
            self._audit.commit([*writes, self._jobs.order(job)], cause, deed)
        except Cancelled as cancelled:
            if any(reason.why is Why.CONDITION for reason in cancelled.reasons):
                return cancelled.reasons
            raise Failed("unavailable", "the rows are contended; try again") from None
        return ()


def forget_write(conversation_id: str, to: int) -> Write:
    """Raises the mark up to which a conversation is forgotten; it never goes back.

    `to` is the last order that there is: were it an earlier one, a reply that came since to what
    is forgotten would be kept, as if it had been said after the deletion.
    """
    return update(
        keys.order(conversation_id),
        "SET #forget_to = :to",
        "#last_order = :to AND (attribute_not_exists(#forget_to) OR #forget_to < :to)",
        to=to,
    )
