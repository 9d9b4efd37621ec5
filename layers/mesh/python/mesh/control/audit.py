"""Owns the audit trail: who changed what, in which request, in the very transaction of the change.

Refuses to be changed: a row is put once, no function may update or delete one, and it holds neither
a secret nor a delivery URL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mesh.control.rows import item_of, record_of
from mesh.kernel.clock import DAY_MS, Clock
from mesh.kernel.errors import Failed
from mesh.kernel.ids import Ids, ulid_ms
from mesh.kernel.limits import (
    AUDIT_DAYS_PER_REQUEST,
    AUDIT_ROWS_PER_REQUEST,
    AUDIT_SHARD_ROWS_FIRST,
    COMMIT_TRIES,
    LIST_LIMIT_MAX,
    TRANSACTION_TRIES,
)
from mesh.records.operator import Audit
from mesh.storage import keys
from mesh.storage.table import Cancelled, Table, Why
from mesh.storage.writes import Write, put


@dataclass(frozen=True, slots=True)
class Cause:
    """Who asked for a change, and in which request."""

    actor: str
    """An operator's id, or the name of the part of Mesh that acted for itself."""
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What a change did, as its audit row tells it."""

    action: str
    target: str
    agent_id: str | None = None
    version_before: int | None = None
    version_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Which rows are wanted; None leaves a field open. Times in Unix ms, `until` exclusive."""

    target: str | None = None
    actor: str | None = None
    action: str | None = None
    since: int | None = None
    until: int | None = None

    def matches(self, row: Audit) -> bool:
        """Whether `row` is wanted."""
        return (
            self.target in (None, row.target)
            and self.actor in (None, row.actor)
            and self.action in (None, row.action)
            and (self.since is None or row.at >= self.since)
            and (self.until is None or row.at < self.until)
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a listing goes on: a day (its number since 1970), and the last ULID told of it."""

    day: int
    before: str


_LAST: Final = "~"


class AuditTrail:
    """Writes and lists audit rows, and commits changes together with theirs."""

    def __init__(self, table: Table, clock: Clock, ids: Ids, kept_days: int) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids
        self._kept_days = kept_days

    def write(self, cause: Cause, deed: Deed) -> Write:
        """The row of one deed, for the transaction that does it."""
        now = self._clock.now_ms()
        ulid = self._ids.ulid()
        row = Audit(
            id=f"aud_{ulid}",
            at=now,
            actor=cause.actor,
            action=deed.action,
            target=deed.target,
            agent_id=deed.agent_id,
            version_before=deed.version_before,
            version_after=deed.version_after,
            request_id=cause.request_id,
        )
        return put(
            keys.audit(now, ulid),
            {**item_of(row), "ttl": (now + self._kept_days * DAY_MS) // 1000},
            "attribute_not_exists(#pk)",
        )

    def commit(self, writes: Sequence[Write], cause: Cause, deed: Deed) -> None:
        """Applies `writes` and the deed's audit row, or nothing.

        An outcome that was lost is settled by trying the same again: where the audit row of this
        very deed stands already, it was done. Raises Cancelled with the reasons of `writes` in
        their order, and Failed.
        """
        everything = (self.write(cause, deed), *writes)
        for attempt in range(COMMIT_TRIES):
            try:
                self._table.transact_settled(lambda: everything, TRANSACTION_TRIES)
            except Cancelled as cancelled:
                if cancelled.reasons and cancelled.reasons[0].why is Why.CONDITION:
                    return
                raise Cancelled(cancelled.reasons[1:]) from None
            except Failed:
                if attempt == COMMIT_TRIES - 1:
                    raise
                self._table.back_off()
            else:
                return

    def page(
        self, search: Search, limit: int, place: Place | None
    ) -> tuple[list[Audit], Place | None]:
        """Up to `limit` rows, newest first, and where the next page goes on (None at the end).

        A page may hold fewer rows than `limit`, or none, and yet have a next one: a request reads a
        bounded number of days. Raises Failed.
        """
        now = self._clock.now_ms()
        newest = min(now, search.until - 1) if search.until is not None else now
        oldest = max(self._first_day_ms(now), search.since or 0, now - self._kept_days * DAY_MS)
        place = place or Place(newest // DAY_MS, _LAST)
        day, before = place.day, place.before
        found: list[Audit] = []
        read = 0
        for _ in range(AUDIT_DAYS_PER_REQUEST):
            if day < oldest // DAY_MS:
                return found, None
            for row in self._day(day * DAY_MS, before):
                if len(found) == limit or read == AUDIT_ROWS_PER_REQUEST:
                    return found, Place(day, before)
                read, before = read + 1, row.id[4:]
                if search.matches(row):
                    found.append(row)
            day, before = day - 1, _LAST
        return found, Place(day, _LAST)

    def _day(self, at_ms: int, before: str) -> Iterator[Audit]:
        """The rows of one day from all shards, newest first, strictly before the ULID `before`."""
        shards = [_Shard(self._table, pk, before) for pk in keys.audit_shards(at_ms)]
        while waiting := [shard for shard in shards if shard.head() is not None]:
            newest = max(waiting, key=lambda shard: shard.head() or "")
            yield record_of(newest.take(), Audit)

    def _first_day_ms(self, now: int) -> int:
        """When the oldest operator was made: nothing was audited before (its ULID tells)."""
        first = self._table.query("OPERATORS", limit=1).items
        return now if not first else ulid_ms(first[0]["sk"][4:]) - DAY_MS


class _Shard:
    """One shard of one day, read lazily from its end, and twice as much each time.

    A page takes its rows from all shards: were each read by the longest page, most of what is read
    would be thrown away. Who searches for something rare is soon at the longest.
    """

    def __init__(self, table: Table, pk: str, before: str) -> None:
        self._table = table
        self._pk = pk
        self._before = before
        self._limit = AUDIT_SHARD_ROWS_FIRST
        self._items: list[dict[str, object]] = []
        self._more = True

    def head(self) -> str | None:
        """The ULID of the newest row that is left; None when there is none."""
        while not self._items and self._more:
            page = self._table.query(
                self._pk, between=("0", self._before), forward=False, limit=self._limit
            )
            self._limit = min(2 * self._limit, LIST_LIMIT_MAX)
            self._items = [item for item in page.items if item["sk"] != self._before]
            self._more = page.last is not None
            if page.items:
                self._before = page.items[-1]["sk"]
        return str(self._items[0]["sk"]) if self._items else None

    def take(self) -> dict[str, object]:
        """The newest row that is left."""
        return self._items.pop(0)
