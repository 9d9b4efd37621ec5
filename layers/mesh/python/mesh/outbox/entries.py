"""Owns the writes to an entry: an attempt opened before its request, closed after it, and the
entry's end.

Refuses a second attempt while one is open, and a change by whoever does not hold what it changes.
Closed attempts stand on the entry; when they become many, the older ones move to pages of their
own, so that no write grows with the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mesh.control.notices import notice_write
from mesh.control.rows import assign
from mesh.kernel.clock import DAY_MS, Clock
from mesh.kernel.errors import Conflict
from mesh.kernel.ids import Ids
from mesh.kernel.limits import (
    ATTEMPTS_KEPT_DAYS,
    ATTEMPTS_ON_ENTRY_MAX,
    DUE_AFTER_MS,
    TRANSACTION_TRIES,
)
from mesh.outbox.schedule import Next, Outcome
from mesh.records.notice import NoticeKind
from mesh.records.outbox import Attempt, AttemptEnd, Entry, EntryState, Open
from mesh.records.run import Story
from mesh.storage import keys
from mesh.storage.table import Cancelled, ConditionFailed, Table, Why
from mesh.storage.writes import Write, put, update

REPLY_DELETED: Final = "reply_deleted"
DEATHS_BY_ORDER: Final = frozenset({"install_deleted", REPLY_DELETED})
"""Why entries die that an operator took the ground away from: he knows, and is not told of each."""


class LostEntry(Exception):
    """Another worker holds the entry, or ended it."""


class Entries:
    """Changes outbox entries."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def find(self, story: Story) -> Entry | None:
        """The entry of a story's reply; None when the run made none. Raises Failed."""
        if story.sequence is None:
            return None
        item = self._table.get(keys.entry(story.conversation_id, story.sequence))
        return None if item is None else msgspec.convert(item, Entry)

    def attempts(self, entry: Entry) -> list[Attempt]:
        """All closed attempts, oldest first. Raises Failed."""
        found: list[Attempt] = []
        if entry.pages:
            page = self._table.query(keys.story_partition(entry.story), prefix="ATTEMPTS#")
            for item in page.items:
                found += msgspec.convert(item["attempts"], list[Attempt])
        return found + list(entry.recent)

    def open(
        self, conversation_id: str, entry: Entry, lease_ms: int, *, probe: bool, replay: bool
    ) -> Entry:
        """Writes that an attempt begins. Raises LostEntry when one is open or the entry moved on,
        Failed."""
        now = self._clock.now_ms()
        opening = Open(
            number=entry.attempts + 1,
            token=self._ids.token(),
            at=now,
            until=now + lease_ms,
            probe=probe,
            replay=replay,
        )
        write = update(
            keys.entry(conversation_id, entry.sequence),
            "SET #open = :open, #attempts = :number, #token = :token",
            "#state = :state AND #attempts = :seen AND attribute_not_exists(#open)"
            if entry.attempts
            else "#state = :state AND attribute_not_exists(#attempts)",
            open=msgspec.to_builtins(opening),
            number=opening.number,
            token=opening.token,
            state=entry.state.value,
            **({"seen": entry.attempts} if entry.attempts else {}),
        )
        try:
            item = self._table.write(write, opening.token)
        except ConditionFailed:
            raise LostEntry from None
        return msgspec.convert(item, Entry)

    def close(self, conversation_id: str, entry: Entry, outcome: Outcome, then: Next) -> Entry:
        """Writes how the open attempt of `entry` ended, and what becomes of the entry.

        An entry that was terminal before (a replay) only ever becomes `delivered`. Raises LostEntry
        when somebody else closed it, Failed.
        """
        opening = entry.open
        assert opening is not None, "only an open attempt is closed"
        now = self._clock.now_ms()
        attempt = Attempt(
            number=opening.number,
            at=opening.at,
            ended_at=now,
            end=outcome.end,
            http_status=outcome.http_status,
            detail=outcome.detail,
            probe=opening.probe,
            replay=opening.replay,
        )
        recent = [*entry.recent, attempt]
        changes: dict[str, Any] = {"last_ended_at": now, "token": self._ids.token()}
        if entry.state is EntryState.PENDING:
            changes |= {
                "state": then.state.value,
                "due_time": then.due_time,
                "not_before": then.not_before,
                "counted": then.counted,
                "refused_in_row": then.refused_in_row,
                "client_errors": then.client_errors,
            }
            if then.reason is not None:
                changes["state_reason"] = then.reason
            if then.state is not EntryState.PENDING:
                changes |= _kept(entry, now)
        elif outcome.end is AttemptEnd.DELIVERED:
            changes |= {"state": EntryState.DELIVERED.value, "state_reason": "replayed"}
        more: list[Write] = []
        if entry.state is EntryState.PENDING and then.state is EntryState.DEAD:
            more.append(self._death(entry, then.reason, now, changes))
        if len(recent) > ATTEMPTS_ON_ENTRY_MAX:
            more.append(self._page(entry, recent[:-1], now))
            recent, changes["pages"] = recent[-1:], entry.pages + 1
        changes["recent"] = [msgspec.to_builtins(each) for each in recent]
        write = update(
            keys.entry(conversation_id, entry.sequence),
            "SET " + ", ".join(f"#{name} = :{name}" for name in changes) + " REMOVE #open",
            "#open.#token = :opened",
            opened=opening.token,
            **changes,
        )
        return self._apply(conversation_id, entry, write, more, changes["token"])

    def end(self, conversation_id: str, entry: Entry, state: EntryState, reason: str) -> Entry:
        """Ends a pending entry that has no open attempt. Raises LostEntry, Failed."""
        now = self._clock.now_ms()
        changes: dict[str, Any] = {
            "state": state.value,
            "state_reason": reason,
            "token": self._ids.token(),
            **_kept(entry, now),
        }
        more: list[Write] = []
        if state is EntryState.DEAD and reason not in DEATHS_BY_ORDER:
            more.append(self._death(entry, reason, now, changes))
        write = assign(
            keys.entry(conversation_id, entry.sequence),
            changes,
            "#state = :pending AND attribute_not_exists(#open)",
            pending=EntryState.PENDING.value,
        )
        return self._apply(conversation_id, entry, write, more, changes["token"])

    def _death(self, entry: Entry, reason: str | None, now: int, changes: dict[str, Any]) -> Write:
        """The notice of the entry's death; the entry keeps its id, by which it is explained."""
        ulid = self._ids.ulid()
        changes["notice_id"] = f"ntc_{ulid}"
        return notice_write(
            ulid,
            NoticeKind.ENTRY_DEAD,
            now,
            agent_id=entry.agent_id,
            install_id=entry.install_id,
            subject=entry.outbound_id,
            reason=reason,
            figures={"attempts": entry.attempts, "age_s": (now - entry.created_at) // 1000},
        )

    def _page(self, entry: Entry, attempts: list[Attempt], now: int) -> Write:
        return put(
            keys.attempts_page(entry.story, entry.pages + 1),
            {
                "attempts": [msgspec.to_builtins(each) for each in attempts],
                "ttl": (now + ATTEMPTS_KEPT_DAYS * DAY_MS) // 1000,
            },
        )

    def _apply(
        self, conversation_id: str, entry: Entry, write: Write, more: Sequence[Write], token: str
    ) -> Entry:
        """Applies `write`, alone or in one transaction with `more`. Raises LostEntry, Failed."""
        if not more:
            try:
                return msgspec.convert(self._table.write(write, token), Entry)
            except ConditionFailed:
                raise LostEntry from None
        try:
            self._table.transact_settled(lambda: [write, *more], TRANSACTION_TRIES)
        except Cancelled as cancelled:
            if any(reason.why is Why.CONDITION for reason in cancelled.reasons):
                raise LostEntry from None
            raise
        item = self._table.get(keys.entry(conversation_id, entry.sequence))
        if item is None:  # it was erased since
            raise LostEntry
        return msgspec.convert(item, Entry)


def _kept(entry: Entry, now_ms: int) -> dict[str, Any]:
    """The attribute that says until when an entry which ends now is kept."""
    if entry.kept_days is None:
        return {}
    return {"ttl": (now_ms + entry.kept_days * DAY_MS) // 1000}


def discard_write(conversation_id: str, entry: Entry, now_ms: int) -> Write:
    """Discards a pending entry; goes into the transaction of the operator's act.

    Raises Conflict (`state_conflict`) where the entry is terminal or an attempt is in flight.
    """
    if entry.state is not EntryState.PENDING:
        raise Conflict("state_conflict", f"the entry is {entry.state.value} already")
    if entry.open is not None:
        raise Conflict("state_conflict", "an attempt is in flight; try again in a minute")
    return assign(
        keys.entry(conversation_id, entry.sequence),
        {
            "state": EntryState.DISCARDED.value,
            "state_reason": "operator",
            **_kept(entry, now_ms),
        },
        "#state = :pending AND attribute_not_exists(#open)",
        pending=EntryState.PENDING.value,
    )


def replay_write(conversation_id: str, entry: Entry, now_ms: int, *, anew: bool = True) -> Write:
    """Orders the replay of a terminal entry beside the order.

    One that stands already begins its tries anew, or, where `anew` is false, is left as it is and
    the write's condition fails. Raises Conflict (`state_conflict`) where the entry is still
    pending.
    """
    if entry.state is EntryState.PENDING:
        raise Conflict("state_conflict", "the entry is pending: it is sent without a replay")
    return put(
        keys.replay(entry.story),
        {
            "story": entry.story,
            "conversation_id": conversation_id,
            "sequence": entry.sequence,
            "requested_at": now_ms,
            "tries": 0,
            "due_pk": keys.due(entry.story),
            "due_at": now_ms + DUE_AFTER_MS,
        },
        "" if anew else "attribute_not_exists(#pk)",
    )
