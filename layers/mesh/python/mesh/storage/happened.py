"""Owns the reading of what happened, newest first: lists kept by owner, day and shard, merged.

Refuses to read without bound: a walk looks at so many days and no more, and says where it stopped.
The lists lag by some seconds, because an index does. The operator API pages through them, and jobs
go through them a step at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from mesh.kernel.clock import DAY_MS
from mesh.kernel.limits import BATCH_KEYS_MAX, LIST_DAYS_PER_REQUEST, LIST_LIMIT_MAX
from mesh.storage.items import Item
from mesh.storage.keys import Key
from mesh.storage.table import Table

_AFTER_ALL = "~"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a walk stands: a day (its number since 1970), and the last sort key told of it."""

    day: int
    before: str = _AFTER_ALL


@dataclass(frozen=True, slots=True)
class Found:
    """One row of a list, by its key, and the place to go on after it."""

    key: Key
    place: Place


class Walk:
    """Goes back through an owner's lists from a place on.

    `place` says where it stands, None at the end.
    """

    def __init__(
        self,
        table: Table,
        partitions: Callable[[int], tuple[str, ...]],
        *,
        newest_ms: int,
        oldest_ms: int,
        place: Place | None = None,
        days: int = LIST_DAYS_PER_REQUEST,
        ahead: int = LIST_LIMIT_MAX,
    ) -> None:
        """`newest_ms` and `oldest_ms` lie in the first and the last day that are looked at.

        `ahead` is how many keys of a shard are read at once: no more than the walk will take.
        """
        self._table = table
        self._partitions = partitions
        self._oldest_day = oldest_ms // DAY_MS
        self._days = days
        self._ahead = ahead
        self.place: Place | None = place or Place(newest_ms // DAY_MS)

    def __iter__(self) -> Iterator[Found]:
        for _ in range(self._days):
            if self.place is None:
                return
            day = self.place.day
            if day < self._oldest_day:
                self.place = None
                return
            shards = [
                _Shard(self._table, pk, self.place.before, self._ahead)
                for pk in self._partitions(day * DAY_MS)
            ]
            while waiting := [shard for shard in shards if shard.head() is not None]:
                newest = max(waiting, key=lambda shard: shard.head() or "")
                sort_key, key = newest.take()
                self.place = Place(day, sort_key)
                yield Found(key, self.place)
            self.place = Place(day - 1)
        if self.place is not None and self.place.day < self._oldest_day:
            self.place = None


def in_batches(table: Table, walk: Iterator[Found]) -> Iterator[tuple[Found, Item]]:
    """The rows of a walk, read consistently a hundred at a time; what is gone is left out.

    Raises Failed.
    """
    while batch := list(islice(walk, BATCH_KEYS_MAX)):
        items = table.get_many(found.key for found in batch)
        for found in batch:
            if found.key in items:
                yield found, items[found.key]


class _Shard:
    """One list partition, read lazily from its end."""

    def __init__(self, table: Table, pk: str, before: str, ahead: int) -> None:
        self._table = table
        self._pk = pk
        self._before = before
        self._ahead = ahead
        self._rows: list[tuple[str, Key]] = []
        self._more = True

    def head(self) -> str | None:
        """The newest sort key that is left; None when there is none."""
        while not self._rows and self._more:
            page = self._table.query_list(self._pk, limit=self._ahead, before=self._before)
            self._rows = [(row["list_sk"], Key(row["pk"], row["sk"])) for row in page.items]
            self._more = page.last is not None
            if self._rows:
                self._before = self._rows[-1][0]
        return self._rows[0][0] if self._rows else None

    def take(self) -> tuple[str, Key]:
        """The newest row that is left."""
        return self._rows.pop(0)
