"""Owns the transaction that ends a run: the reply is in the outbox, or the run has not ended.

Refuses to send: whatever crashes after this transaction, the entry is there and its mark is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mesh.control.notices import notice_write
from mesh.kernel.clock import DAY_MS, Clock
from mesh.kernel.errors import Failed, Phase
from mesh.kernel.ids import Ids, Random
from mesh.kernel.limits import DUE_AFTER_MS, ENTRY_KEPT_DAYS_MIN, TRANSACTION_TRIES
from mesh.records.conversation import Conversation, Merged, Outbox, Pending, Role
from mesh.records.notice import NoticeKind
from mesh.records.outbox import EntryState
from mesh.records.run import RunStatus
from mesh.storage import keys
from mesh.storage.conversations import Head, read_head
from mesh.storage.items import Item
from mesh.storage.table import Cancelled, Table, Why
from mesh.storage.writes import Write, delete, put, update

CONVERSATION_DELETED: Final = "conversation_deleted"
"""Why a run ends as cancelled whose conversation was deleted with its message in it."""

_STORY: Final = 2
"""Where the story's write stands among those that end a run, after the run's and the order's."""


class LostLease(Exception):
    """Another worker has the run, or ended it: whoever holds this leaves it alone."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends. `render` makes the reply's bytes of its sequence and time; None makes no
    entry."""

    status: RunStatus
    reason: str | None
    render: Callable[[int, int], bytes] | None
    sources: tuple[Mapping[str, str], ...] = ()
    """Where what the run was told came from; kept with the reply."""


@dataclass(frozen=True, slots=True)
class _Picture:
    """What one try believes of the rows that it changes."""

    last_order: int
    waiting: int
    outbox: tuple[int, bool] | None
    """The last sequence, and whether the outbox has a mark; None when there is no outbox yet."""
    merged: tuple[Merged, ...] = ()
    """The waiting runs that end with this one, less those that were cancelled meanwhile."""
    untold: frozenset[str] = frozenset()
    """Those of them whose story is not told any more."""
    story: bool = True
    """Whether the story is still told: a run may wait for longer than its message is kept."""


class Commit:
    """Ends runs. One per function."""

    def __init__(self, table: Table, clock: Clock, random: Random, kept_days: int) -> None:
        self._table = table
        self._clock = clock
        self._random = random
        self._ids = Ids(clock, random)
        self._kept_days = kept_days

    def end(self, head: Head, pending: Pending, ending: Ending) -> int:
        """Ends the run of `pending`, whose lease the caller holds; answers how many runs wait
        behind it.

        Raises LostLease when the run is not the caller's any more, Failed when the table is
        unreachable.
        """
        assert head.conversation is not None, "a pending run has a conversation"
        conversation_id = head.conversation.conversation_id
        # What a cancelled run was to answer beside its own waits on, for runs of its own.
        merged = () if ending.status is RunStatus.CANCELLED else pending.merged
        picture = _picture(head.conversation, head.outbox, merged)
        for attempt in range(TRANSACTION_TRIES):
            if attempt:
                self._table.back_off()
            writes = self._writes(conversation_id, head.conversation, pending, ending, picture)
            try:
                self._table.transact(writes, self._random.bytes(16).hex())
            except Cancelled as cancelled:
                first = cancelled.reasons[0]
                if first.why is Why.CONDITION:
                    raise LostLease from None
                olds = [
                    reason.old if reason.why is Why.CONDITION else None
                    for reason in cancelled.reasons
                ]
                if ending.render is not None and _forgets(olds, pending.order):
                    raise LostLease from None  # what it answers was deleted meanwhile
                picture = _still_merged(_learn(picture, olds), cancelled)
                if picture.story and cancelled.reasons[_STORY].why is Why.CONDITION:
                    picture = replace(picture, story=False)
            except Failed:
                # Whatever it says, it says of the SDK's last attempt; an earlier one may have been
                # applied. That is read, not guessed: the pending row is gone if it was.
                seen = read_head(self._table, conversation_id)
                if seen.pending is None or seen.pending.story != pending.story:
                    return seen.conversation.pending if seen.conversation else 0
                if seen.conversation is not None:
                    picture = _picture(seen.conversation, seen.outbox, picture.merged)
            else:
                return picture.waiting - 1 - len(picture.merged)
        raise Failed("unavailable", "the conversation is contended; try again", Phase.BEFORE)

    def cancel_writes(
        self, conversation: Conversation, pending: Pending, reason: str, *, has_story: bool = True
    ) -> list[Write]:
        """The writes that end a run as cancelled, whoever works on it, with no entry.

        The first deletes the row `PEND#…` as it was read; a worker that holds its lease loses it.
        They go into one transaction, with the audit row of whoever asked for it. `has_story` is
        False where the story's row was kept no longer than the run waited.
        """
        ending = Ending(RunStatus.CANCELLED, reason, None)
        picture = replace(_picture(conversation, None), story=has_story)
        return self._writes(conversation.conversation_id, conversation, pending, ending, picture)

    def _writes(
        self,
        conversation_id: str,
        conversation: Conversation,
        pending: Pending,
        ending: Ending,
        picture: _Picture,
    ) -> list[Write]:
        now = self._clock.now_ms()
        order = max(now * 1000, picture.last_order + 1)
        sequence = None if ending.render is None else (picture.outbox or (0, False))[0] + 1
        writes = [
            delete(
                keys.pending(conversation_id, pending.order),
                "#lease_no = :lease_no AND #story = :story",
                lease_no=pending.lease_no,
                story=pending.story,
            ),
            self._conversation(
                conversation_id, picture, (order, pending.order) if sequence else None, now
            ),
            *self._told(pending, ending, now),
        ]
        if picture.story:
            writes.insert(_STORY, self._story(pending, ending, sequence, order, now))
        if ending.render is not None and sequence is not None:
            kept_days = pending.kept_days or self._kept_days
            entry_days = max(kept_days, ENTRY_KEPT_DAYS_MIN)
            sent = ending.render(sequence, now)
            writes += [
                self._outbox(conversation_id, conversation, picture, sequence, now),
                put(
                    keys.entry(conversation_id, sequence),
                    {
                        "story": pending.story,
                        "sequence": sequence,
                        "reply_order": order,
                        "install_id": pending.install_id,
                        "agent_id": pending.agent_id,
                        "created_at": now,
                        "state": EntryState.PENDING.value,
                        "due_time": now,
                        "list_pk": keys.outbox_list(pending.agent_id, now, pending.story),
                        "list_sk": pending.story,
                        "kept_days": entry_days,
                    },
                    "attribute_not_exists(#pk)",
                ),
                put(
                    keys.message(conversation_id, order),
                    {
                        "story": pending.story,
                        "order": order,
                        "role": Role.REPLY.value,
                        "at": now,
                        "sent": sent,
                        **(
                            {"sources": [dict(s) for s in ending.sources]} if ending.sources else {}
                        ),
                        "ttl": (now + kept_days * DAY_MS) // 1000,
                    },
                ),
            ]
        return [*writes, *_merging(conversation_id, picture, pending, now)]

    def _conversation(
        self, conversation_id: str, picture: _Picture, reply: tuple[int, int] | None, now: int
    ) -> Write:
        """So many fewer wait. The mark goes with the last, by a condition on their number.

        `reply` is the order of a reply and of the message that it answers. That one must not have
        been deleted: what an agent says of it would be kept where nobody looks for it any more.
        """
        waiting = picture.waiting - 1 - len(picture.merged)
        sets = ["#pending = :waiting"]
        values: dict[str, Any] = {"waiting": waiting, "seen": picture.waiting}
        condition = "#pending = :seen"
        if reply is not None:
            sets.append("#last_order = :order")
            condition += (
                " AND #last_order < :order"
                " AND (attribute_not_exists(#forget_to) OR #forget_to < :answered)"
            )
            values["order"], values["answered"] = reply
        remove = ""
        if waiting > 0:
            sets += ["#due_pk = :due_pk", "#due_at = :due_at"]
            values |= {"due_pk": keys.due(conversation_id), "due_at": now + DUE_AFTER_MS}
        else:
            remove = " REMOVE #due_pk, #due_at, #rings, #seen"
        return update(
            keys.order(conversation_id), "SET " + ", ".join(sets) + remove, condition, **values
        )

    def _story(
        self, pending: Pending, ending: Ending, sequence: int | None, order: int, now: int
    ) -> Write:
        values: dict[str, Any] = {
            "status": ending.status.value,
            "ended_at": now,
            "leases": pending.lease_no,
        }
        if pending.first_leased_at is not None:  # one that is cancelled may never have begun
            values["started_at"] = pending.first_leased_at
        if ending.reason is not None:
            values["run_reason"] = ending.reason
        if sequence is not None:
            values |= {"sequence": sequence, "reply_order": order}
        sets = ", ".join(f"#{name} = :{name}" for name in values)
        stands = "attribute_exists(#pk)"
        return update(keys.story(pending.story), f"SET {sets}", stands, **values)

    def _told(self, pending: Pending, ending: Ending, now: int) -> list[Write]:
        """The notice of a run that failed.

        A cancelled one is somebody's own doing, and one that expired waited for as long as its
        agent's settings let it, with the alarm on the oldest run: neither is news.
        """
        if ending.status is not RunStatus.FAILED:
            return []
        return [
            notice_write(
                self._ids.ulid(),
                NoticeKind.RUN_FAILED,
                now,
                agent_id=pending.agent_id,
                install_id=pending.install_id,
                subject=f"run_{pending.story}",
                reason=ending.reason,
            )
        ]

    def _outbox(
        self,
        conversation_id: str,
        conversation: Conversation,
        picture: _Picture,
        sequence: int,
        now: int,
    ) -> Write:
        """The next sequence. A mark that is there speaks of an earlier entry, and stays."""
        marks = {"due_pk": keys.due(conversation_id), "due_at": now + DUE_AFTER_MS}
        if picture.outbox is None:
            return put(
                keys.outbox(conversation_id),
                {
                    "conversation_id": conversation_id,
                    "install_id": conversation.install_id,
                    "agent_id": conversation.agent_id,
                    "seq": sequence,
                    "head": sequence,
                    **marks,
                },
                "attribute_not_exists(#pk)",
            )
        if picture.outbox[1]:
            # Only a mark that is still there may be relied on: delivery drops it with the last
            # entry.
            return update(
                keys.outbox(conversation_id),
                "SET #seq = :sequence",
                "#seq = :last AND attribute_exists(#due_pk)",
                sequence=sequence,
                last=picture.outbox[0],
            )
        return update(
            keys.outbox(conversation_id),
            "SET #seq = :sequence, #due_pk = :due_pk, #due_at = :due_at",
            "#seq = :last AND attribute_not_exists(#due_pk)",
            sequence=sequence,
            last=picture.outbox[0],
            **marks,
        )


def _picture(
    conversation: Conversation, outbox: Outbox | None, merged: tuple[Merged, ...] = ()
) -> _Picture:
    return _Picture(
        last_order=conversation.last_order,
        waiting=conversation.pending,
        outbox=None if outbox is None else (outbox.seq, outbox.due_pk is not None),
        merged=merged,
    )


def _merging(
    conversation_id: str, picture: _Picture, pending: Pending, now: int
) -> Iterator[Write]:
    """The writes that end the waiting runs whose messages `pending` answered with its own: all
    their rows, then their stories."""
    for merged in picture.merged:
        yield delete(
            keys.pending(conversation_id, merged.order),
            "#lease_no = :none AND #story = :story",
            none=0,
            story=merged.story,
        )
    for merged in picture.merged:
        if merged.story not in picture.untold:
            yield update(
                keys.story(merged.story),
                "SET #status = :completed, #run_reason = :merged, #merged_into = :into,"
                " #ended_at = :now",
                "attribute_exists(#pk)",
                completed=RunStatus.COMPLETED.value,
                merged="merged",
                into=pending.story,
                now=now,
            )


def _still_merged(picture: _Picture, cancelled: Cancelled) -> _Picture:
    """The picture without the merged runs that somebody ended meanwhile, and without the stories
    that are not told any more. Their writes stand last, as `_merging` makes them."""
    if not picture.merged:
        return picture
    told = [merged for merged in picture.merged if merged.story not in picture.untold]
    mine = cancelled.reasons[len(cancelled.reasons) - len(picture.merged) - len(told) :]
    rows, stories = mine[: len(picture.merged)], mine[len(picture.merged) :]
    left = tuple(
        merged
        for merged, reason in zip(picture.merged, rows, strict=True)
        if reason.why is not Why.CONDITION
    )
    gone = {
        merged.story
        for merged, reason in zip(told, stories, strict=True)
        if reason.why is Why.CONDITION
    }
    return replace(picture, merged=left, untold=picture.untold | gone)


def _forgets(olds: list[Item | None], order: int) -> bool:
    """Whether the conversation, where it stood in the way, was deleted up to `order` or beyond."""
    return any(
        old is not None and old["sk"] == keys.ORDER and old.get("forget_to", 0) >= order
        for old in olds
    )


def _learn(picture: _Picture, olds: list[Item | None]) -> _Picture:
    """The next picture, from the old items of the writes that failed."""
    for old in olds:
        if old is None:
            continue
        if old["sk"] == keys.ORDER:
            picture = replace(picture, last_order=old["last_order"], waiting=old["pending"])
        elif old["sk"] == keys.OUTBOX:
            picture = replace(picture, outbox=(old["seq"], "due_pk" in old))
    return picture
