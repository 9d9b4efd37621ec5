"""Owns the job that erases what a deleted install has: its conversations, its counts, and, when
callers were told for long enough that it is closed, its secrets.

Refuses to open it again: the tombstone was left by the order. What survives for 90 days or more is
named in docs/operating.md: audit rows, and rows of ids and hashes.
"""

from __future__ import annotations

from mesh.control.deletions import forget_write
from mesh.control.notes import NoteErasure
from mesh.control.rows import assign, item_of, record_of
from mesh.jobs.contract import Progress
from mesh.jobs.erasure import Erased, Erasure
from mesh.jobs.rounds import Rounds
from mesh.kernel.limits import JOB_PAGE_ROWS, SECRETS_LEFT_MS
from mesh.records.install import Engagement, InstallState, Secret
from mesh.records.job import Job
from mesh.storage import keys
from mesh.storage.keys import Key
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import Write, delete

INSTALL_DELETED = "install_deleted"
"""Why a run ends as cancelled, or an entry as dead, whose install was deleted."""


class Forgetting:
    """What the deletions of an install and of an agent share."""

    def __init__(self, table: Table, erasure: Erasure) -> None:
        self._table = table
        self._erasure = erasure
        self._notes = NoteErasure(table)

    def conversation(
        self, conversation_id: str, install_id: str | None, reason: str, stop_at_ms: int
    ) -> Erased:
        """Erases a part of a whole conversation, if it is of that install (None: of any)."""
        conversation = self._erasure.find(conversation_id)
        if conversation is None or install_id not in (None, conversation.install_id):
            return Erased(over=True)
        to = conversation.last_order
        if not conversation.forgotten and not self._apply(forget_write(conversation_id, to)):
            return Erased(over=False)  # a reply came between: it is looked at anew
        return self._erasure.conversation(conversation_id, to, reason, stop_at_ms)

    def notes(self, agent_id: str, install_id: str) -> None:
        """Erases what the agent noted there, also where an operator widened it."""
        self._notes.of_install(agent_id, install_id)
        self._table.write(delete(keys.note_count(agent_id, install_id)))

    def counts(self, install_id: str) -> bool:
        """Erases a page of who was active; whether that was the last."""
        page = self._table.query(keys.caps(install_id), limit=JOB_PAGE_ROWS)
        for item in page.items:
            self._table.write(delete(Key(item["pk"], item["sk"])))
        return page.last is None

    def install(self, install_id: str, deleted_at: int) -> None:
        """Takes from a tombstone what it does not need, and gives its partition its last days.

        The secrets count until then, judged by their own time and not by when their rows go:
        whoever proves himself is told that the install is closed.
        """
        until = deleted_at + SECRETS_LEFT_MS
        last = {"ttl": until // 1000}
        for item in self._table.query(keys.install(install_id), prefix="SECRET#").items:
            secret = record_of(item, Secret)
            ends = until if secret.valid_until is None else min(until, secret.valid_until)
            self._apply(
                assign(
                    keys.secret(install_id, secret.version),
                    {"valid_until": ends, **last},
                    "attribute_exists(#pk)",
                )
            )
        self._apply(assign(keys.delivery(install_id), dict(last), "attribute_exists(#pk)"))
        self._apply(
            assign(
                keys.settings(install_id),
                {
                    "name": "",
                    "agent_name": "",
                    "agent_handle": "",
                    "allow_hosts": [],
                    "engagement": item_of(Engagement()),
                    **last,
                },
                "#state = :deleted",
                deleted=InstallState.DELETED.value,
            )
        )

    def _apply(self, write: Write) -> bool:
        """One conditional write; False when its row is otherwise than was read, or gone."""
        try:
            self._table.write(write)
        except ConditionFailed:
            return False
        return True


class DeleteInstall:
    """Implements `Kind`."""

    ended = "connector.deleted"

    def __init__(self, forgetting: Forgetting, rounds: Rounds) -> None:
        self._forgetting = forgetting
        self._rounds = rounds

    def step(self, job: Job, stop_at_ms: int) -> Progress:
        """Erases a page: conversations first, then notes and counts, then what the tombstone held.
        Raises Failed."""
        assert job.agent_id is not None, "it is an agent's"
        if job.place.get("walked"):
            self._forgetting.notes(job.agent_id, job.target)
            if not self._forgetting.counts(job.target):
                return Progress(place=job.place)
            self._forgetting.install(job.target, job.started_at)
            return Progress(place=None)

        def erase(conversation_id: str, _: int) -> tuple[Erased, int]:
            return self._forgetting.conversation(
                conversation_id, job.target, INSTALL_DELETED, stop_at_ms
            ), 0

        walked = self._rounds.step(job, erase)
        if walked.place is None:
            return Progress(place={"walked": True}, done=walked.done)
        return walked
