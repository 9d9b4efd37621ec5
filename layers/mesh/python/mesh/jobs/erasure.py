"""Owns the erasing of what was said: a whole conversation up to a point, or one message with all
that came of it.

Refuses to leave a word behind, whoever is at work on it: a run is cancelled before its story goes,
a reply's bytes go before its entry, and a worker that was overtaken finds its steps barred. Every
act may be made again, by this worker or another, from any line: what leads to a row goes after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mesh.control.notes import NoteErasure
from mesh.control.rows import record_of
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed, Phase
from mesh.kernel.ids import Random
from mesh.kernel.limits import (
    CLAIM_LEFT_MS,
    JOB_PAGE_ROWS,
    LEASE_GRACE_MS,
    STEP_BARRIER_KEPT_MS,
    TRANSACTION_TRIES,
    WORKER_LIFE_MS_MAX,
)
from mesh.outbox.commit import Commit
from mesh.records.conversation import Conversation, Heard, Outbox, Pending
from mesh.records.outbox import Entry
from mesh.records.run import StepKind, StepStatus, Story
from mesh.storage import keys
from mesh.storage.conversations import find_outbox_head
from mesh.storage.items import Item
from mesh.storage.keys import Key
from mesh.storage.queues import Bell
from mesh.storage.table import Cancelled, ConditionFailed, Table
from mesh.storage.writes import Write, delete, put, update

_BARRIER: Final = 2**31
"""The number of a lease that nobody ever has: no step yields to a lower one."""
_SOON_S: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What a part of an erasing came to."""

    over: bool
    done: int = 0
    """How many messages went."""
    wait_s: int = 0
    """How long an attempt in flight keeps the rest; 0 where it can go on at once."""


class Erasure:
    """Erases. Holds nothing between two steps."""

    def __init__(
        self, table: Table, bell: Bell, clock: Clock, random: Random, commit: Commit
    ) -> None:
        self._table = table
        self._bell = bell
        self._clock = clock
        self._random = random
        self._commit = commit
        self._notes = NoteErasure(table)

    # ---- a whole conversation

    def conversation(self, conversation_id: str, to: int, reason: str, stop_at_ms: int) -> Erased:
        """Erases a page of what was said up to the order `to`, which the conversation forgets
        already; `reason` is that of the runs which end by it. Raises Failed."""
        conversation = self.find(conversation_id)
        if conversation is None:
            return Erased(over=True)
        here = keys.conversation(conversation_id)
        waiting = (keys.PEND, keys.pending(conversation_id, to).sk)
        runs = self._table.query(here, between=waiting, limit=JOB_PAGE_ROWS)
        for item in runs.items:
            self._cancel(conversation, record_of(item, Pending).order, reason)
        if runs.items:
            self._bell.turn(conversation_id, conversation.agent_id)
        said = (keys.MSG, keys.message(conversation_id, to).sk)
        page = self._table.query(here, between=said, limit=JOB_PAGE_ROWS)
        done = 0
        for item in page.items:
            if done and self._clock.now_ms() >= stop_at_ms:
                return Erased(over=False, done=done)
            self._forget(conversation, record_of(item, Heard))
            done += 1
        if len(page.items) == JOB_PAGE_ROWS or page.last is not None:
            return Erased(over=False, done=done)
        return self._entries(conversation, to, done)

    def _entries(self, conversation: Conversation, to: int, done: int) -> Erased:
        """Erases the notes that came of it, because no run that could write one is left; and a page
        of the outbox, whose bytes are gone: no attempt begins any more."""
        here = conversation.conversation_id
        self._notes.of_conversation(conversation.agent_id, conversation.install_id, here, to)
        page = self._table.query(
            keys.conversation(here),
            between=(keys.ENTRY, keys.ENTRY + keys.AFTER_ALL),
            limit=JOB_PAGE_ROWS,
        )
        entries = [record_of(item, Entry) for item in page.items]
        theirs = [entry for entry in entries if entry.reply_order <= to]
        wait_s = 0
        for entry in theirs:
            if not self._in_flight_s(entry):
                self._story(entry.story)  # attempts were added to it since
            wait_s = max(wait_s, self._entry(here, entry))
        if wait_s:
            return Erased(over=False, done=done, wait_s=wait_s)
        if len(theirs) == len(entries) and page.last is not None:
            return Erased(over=False, done=done)
        self._rest_outbox(here)
        return self._end(here, to, done)

    def _end(self, conversation_id: str, to: int, done: int) -> Erased:
        """The conversation's own row goes when nothing newer came.

        Not before every clock is past the last order: a message that made the row anew might else
        get an order that this erasing, made again by a slower worker, takes for its own.
        """
        conversation = self.find(conversation_id)
        if conversation is None or conversation.last_order > to:
            return Erased(over=True, done=done)
        ahead_ms = to // 1000 + LEASE_GRACE_MS - self._clock.now_ms()
        if ahead_ms >= 0:
            return Erased(over=False, done=done, wait_s=ahead_ms // 1000 + 1)
        self._drop(
            delete(
                keys.order(conversation_id), "#last_order = :to AND #pending = :zero", to=to, zero=0
            )
        )
        return Erased(over=True, done=done)

    # ---- one message, and all that came of it

    def message(self, conversation: Conversation, heard: Heard, reason: str) -> int:
        """Erases an utterance with its run, notes, steps, reply and entry; answers how many seconds
        an attempt in flight keeps its entry, when it has to be erased again. Raises Failed."""
        here = conversation.conversation_id
        if self._cancel(conversation, heard.order, reason):
            self._bell.turn(here, conversation.agent_id)
        item = self._table.get(keys.story(heard.story))
        story = None if item is None else record_of(item, Story)
        into = None if story is None else story.merged_into
        runs = frozenset(f"run_{story}" for story in (heard.story, into) if story is not None)
        self._notes.of_runs(conversation.agent_id, conversation.install_id, runs)
        if story is not None and story.reply_order is not None and story.sequence is not None:
            self._table.write(delete(keys.message(here, story.reply_order)))
            row = self._table.get(keys.entry(here, story.sequence))
            if row is not None:
                wait_s = self._entry(here, record_of(row, Entry))
                if wait_s:
                    return wait_s
                self._rest_outbox(here)
        self._forget(conversation, heard)
        return 0

    def find(self, conversation_id: str) -> Conversation | None:
        """A conversation as it stands; None when its row is gone. Raises Failed."""
        item = self._table.get(keys.order(conversation_id))
        return None if item is None else record_of(item, Conversation)

    # ---- the parts

    def _cancel(self, conversation: Conversation, order: int, reason: str) -> bool:
        """Ends the run that waits at `order`, whoever works on it; False when there is none."""
        here = conversation.conversation_id
        for attempt in range(TRANSACTION_TRIES):
            if attempt:
                self._table.back_off()
            rows = self._table.get_many((keys.order(here), keys.pending(here, order)))
            stands, waits = rows.get(keys.order(here)), rows.get(keys.pending(here, order))
            if stands is None or waits is None:
                return False
            pending = record_of(waits, Pending)
            has_story = self._table.get(keys.story(pending.story)) is not None
            writes = self._commit.cancel_writes(
                record_of(stands, Conversation), pending, reason, has_story=has_story
            )
            try:
                self._table.transact(writes, self._random.bytes(16).hex())
            except Cancelled:
                continue  # a worker or a message came between: what stands now is judged
            return True
        raise Failed("unavailable", "the conversation is contended; try again", Phase.BEFORE)

    def _forget(self, conversation: Conversation, heard: Heard) -> None:
        """Erases one row of what was said or answered, and its story before it."""
        self._story(heard.story)
        if heard.message_id is not None:
            self._shorten_claim(conversation, heard, heard.message_id)
        self._table.write(delete(keys.message(conversation.conversation_id, heard.order)))

    def _story(self, story: str) -> None:
        """Erases a story's whole partition, the row that tells of the run last."""
        rows = self._partition(story)
        own = rows.pop(keys.STORY, None)
        if own is not None and self._may_be_written(record_of(own, Story)):
            self._bar_steps(story, rows)
            rows = self._partition(story)
            rows.pop(keys.STORY, None)
        for sk, row in rows.items():
            if row.get("lease_no") != _BARRIER:
                self._table.write(delete(Key(row["pk"], sk)))
        if own is not None:
            self._table.write(delete(keys.story(story)))

    def _partition(self, story: str) -> dict[str, Item]:
        """The rows of a story by sort key: as many as a run's budget allows."""
        rows: dict[str, Item] = {}
        after: dict[str, Any] | None = None
        while True:
            page = self._table.query(keys.story_partition(story), after=after)
            rows |= {item["sk"]: item for item in page.items}
            after = page.last
            if after is None:
                return rows

    def _may_be_written(self, story: Story) -> bool:
        """Whether a worker that had the run's lease may still be alive, and write a step."""
        ended = story.ended_at
        recent = ended is None or self._clock.now_ms() - ended < WORKER_LIFE_MS_MAX
        return story.leases > 0 and recent

    def _bar_steps(self, story: str, rows: Mapping[str, Item]) -> None:
        """Bars the steps that a worker may still write: those that are there, and the next.

        The next goes first, and the last before the others, so that whatever dies here leaves what
        is to be barred in sight; and it is looked again until no step is left.
        """
        while True:
            steps = [row for sk, row in rows.items() if sk.startswith(keys.STEP)]
            open_to = sorted(row["number"] for row in steps if row["lease_no"] != _BARRIER)
            if steps and not open_to:
                return
            for number in (max(open_to, default=0) + 1, *reversed(open_to)):
                self._bar(story, number)
            rows = self._partition(story)

    def _bar(self, story: str, number: int) -> None:
        """Puts a step without a word in the place of one that a worker may still write: it bears
        the number of a lease that none is above."""
        now = self._clock.now_ms()
        barrier: Item = {
            "number": number,
            "kind": StepKind.MODEL.value,
            "status": StepStatus.UNCERTAIN.value,
            "lease_no": _BARRIER,
            "started_at": now,
            "ttl": (now + STEP_BARRIER_KEPT_MS) // 1000,
        }
        self._table.write(put(keys.step(story, number), barrier))

    def _shorten_claim(self, conversation: Conversation, heard: Heard, message_id: str) -> None:
        """A claim holds hashes and ids; it stays while the caller may send its message again."""
        key = keys.claim(conversation.install_id, conversation.conversation_key, message_id)
        self._drop(
            update(
                key,
                "SET #ttl = :ttl",
                "#story = :story AND #ttl > :ttl",
                ttl=(heard.at + CLAIM_LEFT_MS) // 1000,
                story=heard.story,
            )
        )

    def _entry(self, conversation_id: str, entry: Entry) -> int:
        """Erases an entry whose bytes are gone; answers how many seconds an attempt in flight keeps
        it."""
        if wait_s := self._in_flight_s(entry):
            return wait_s
        condition, values = _as_read(entry)
        key = keys.entry(conversation_id, entry.sequence)
        return 0 if self._drop(delete(key, condition, **values)) else _SOON_S

    def _in_flight_s(self, entry: Entry) -> int:
        """How many seconds the attempt that is under way may still take; 0 when there is none."""
        if entry.open is None:
            return 0
        left_ms = entry.open.until - self._clock.now_ms()
        return left_ms // 1000 + 1 if left_ms > 0 else 0

    def _rest_outbox(self, conversation_id: str) -> None:
        """Moves the outbox's head past what was erased; its mark goes where nothing waits.

        The row stays: a sequence is never given twice.
        """
        item = self._table.get(keys.outbox(conversation_id))
        if item is None:
            return
        outbox = record_of(item, Outbox)
        head = find_outbox_head(self._table, outbox)
        if head.entry is None and head.whole:
            self._drop(
                update(
                    keys.outbox(conversation_id),
                    "SET #head = :head REMOVE #due_pk, #due_at, #rings, #seen",
                    "#seq = :seq",
                    head=outbox.seq + 1,
                    seq=outbox.seq,
                )
            )
            return
        if head.bound > outbox.head:
            self._drop(
                update(
                    keys.outbox(conversation_id),
                    "SET #head = :head",
                    "#head < :head",
                    head=head.bound,
                )
            )
        self._bell.delivery(conversation_id)

    def _drop(self, write: Write) -> bool:
        """One conditional write; False when its row is there and otherwise than was read."""
        try:
            self._table.write(write)
        except ConditionFailed as failed:
            return failed.old is None
        return True


def _as_read(entry: Entry) -> tuple[str, Mapping[str, Any]]:
    """The condition that nothing was attempted since an entry was read."""
    values: dict[str, Any] = {}
    if entry.open is None:
        condition = "attribute_not_exists(#open)"
    else:
        condition, values["token"] = "#open.#token = :token", entry.open.token
    if entry.attempts:
        values["attempts"] = entry.attempts
        return f"{condition} AND #attempts = :attempts", values
    return f"{condition} AND attribute_not_exists(#attempts)", values
