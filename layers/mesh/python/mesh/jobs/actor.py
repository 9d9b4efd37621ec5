"""Owns the job that erases what one actor said to an agent, and all that came of it.

Refuses to judge by a name: an actor is the hash of its id within its install, which no other has.
What the agent said to others stays, also where it speaks of this one.
"""

from __future__ import annotations

from mesh.control.rows import record_of
from mesh.jobs.contract import Progress
from mesh.jobs.erasure import Erased, Erasure
from mesh.jobs.rounds import Rounds
from mesh.kernel.clock import Clock
from mesh.kernel.limits import JOB_PAGE_ROWS, LISTS_LAG_MS
from mesh.records.conversation import Conversation, Heard
from mesh.records.job import Job
from mesh.storage import keys
from mesh.storage.table import Table

ACTOR_DELETED = "actor_deleted"
"""Why a run ends as cancelled whose message's actor was deleted."""


class DeleteActor:
    """Implements `Kind`."""

    ended = "actor.deleted"

    def __init__(self, table: Table, clock: Clock, erasure: Erasure, rounds: Rounds) -> None:
        self._table = table
        self._clock = clock
        self._erasure = erasure
        self._rounds = rounds

    def step(self, job: Job, stop_at_ms: int) -> Progress:
        """Looks through a page of a conversation's messages. Raises Failed."""

        def erase(conversation_id: str, after: int) -> tuple[Erased, int]:
            conversation = self._erasure.find(conversation_id)
            if conversation is None:
                return Erased(over=True), 0
            return self._page(job, conversation, after, stop_at_ms)

        return self._rounds.step(job, erase)

    def _page(
        self, job: Job, conversation: Conversation, after: int, stop_at_ms: int
    ) -> tuple[Erased, int]:
        here = conversation.conversation_id
        last = (job.started_at + LISTS_LAG_MS) * 1000  # no order of before is further ahead
        page = self._table.query(
            keys.conversation(here),
            between=(keys.message(here, after + 1).sk, keys.message(here, last).sk),
            limit=JOB_PAGE_ROWS,
        )
        done = 0
        for item in page.items:
            heard = record_of(item, Heard)
            if done and self._clock.now_ms() >= stop_at_ms:
                return Erased(over=False, done=done), after
            if self._is_theirs(job, conversation, heard):
                wait_s = self._erasure.message(conversation, heard, ACTOR_DELETED)
                if wait_s:
                    return Erased(over=False, done=done, wait_s=wait_s), after
                done += 1
            after = heard.order
        return Erased(over=page.last is None, done=done), after

    @staticmethod
    def _is_theirs(job: Job, conversation: Conversation, heard: Heard) -> bool:
        return (
            heard.actor_id is not None
            and heard.at <= job.started_at
            and keys.actor_id(conversation.install_id, heard.actor_id) == job.target
        )
