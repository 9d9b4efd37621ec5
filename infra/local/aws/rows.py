"""Owns the rows of the embedded table: their recent past, and every index as a sorted view.

Refuses to forget too early: an image stays for as long as an eventual read may still see it.

A view is kept sorted and is a superset of the truth (entries of recent images stay); a reader
takes from it what the row's image at the reader's moment confirms. Nothing is ever copied or
sorted whole, so the work of a read is what it passes over, however large the table.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Final

from infra.local.aws.values import Item, Value
from mesh.kernel.clock import Clock

LAG_MS_MAX: Final = 3_000
"""How far behind an eventual read or an index may be."""

Key = tuple[str, str]
"""A row's partition key and sort key."""
Place = str | Decimal
"""What an entry sorts by within its hash value."""
Entry = tuple[Place, str, str]
"""Where it sorts, and whose row it is."""


def place_of(value: Value) -> Place:
    """What a key attribute (a string or a number, as its schema says) sorts by."""
    return Decimal(value["N"]) if "N" in value else str(value["S"])


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """A KEYS_ONLY index. A row without both attributes is not in it."""

    name: str
    hash_key: str
    range_key: str
    range_is_number: bool = False

    def of(self, item: Item | None) -> tuple[str, Place] | None:
        """The item's hash value and place in this index, or None."""
        if item is None or self.hash_key not in item or self.range_key not in item:
            return None
        return item[self.hash_key]["S"], place_of(item[self.range_key])


TABLE: Final = ""
"""The name of the view that is the table itself."""


@dataclass(slots=True)
class _Cell:
    """One row: its images with the moment of each, oldest first, and its entries in the views."""

    images: list[tuple[int, Item | None]] = field(default_factory=list)
    entries: set[tuple[str, str, Place]] = field(default_factory=set)

    def at(self, moment: int | None) -> Item | None:
        if moment is None:
            return self.images[-1][1] if self.images else None
        for since, image in reversed(self.images):
            if since <= moment:
                return image
        return None


@dataclass(frozen=True, slots=True)
class Span:
    """Part of one hash value of a view: `low` and `high` are predicates over an entry's place.

    `low` is false before the span and true from its start; `high` is false up to its end.
    """

    low: Callable[[Place], bool]
    high: Callable[[Place], bool]


class Rows:
    """All rows of one table. Not safe under threads: its owner holds a lock."""

    listeners: ClassVar[list[Callable[[Item], None]]] = []
    """Who is shown every image of every row of every table, as it is written."""

    def __init__(self, clock: Clock, indexes: tuple[IndexKeys, ...]) -> None:
        self.indexes = {index.name: index for index in indexes}
        self.passed = 0
        """Rows that reads have passed over so far: what a read costs, whatever the machine."""
        self._table = IndexKeys(TABLE, "pk", "sk")
        self._clock = clock
        self._cells: dict[Key, _Cell] = {}
        self._views: dict[tuple[str, str], list[Entry]] = {}
        self._aging: deque[tuple[int, Key]] = deque()

    def get(self, key: Key, moment: int | None = None) -> Item | None:
        """The row now, or as it was at `moment` (Unix ms)."""
        cell = self._cells.get(key)
        self.passed += 1
        return None if cell is None else cell.at(moment)

    def put(self, key: Key, image: Item | None) -> None:
        """Makes `image` the row's newest; None deletes it."""
        if image is not None:
            for listen in self.listeners:
                listen(image)
        now = self._clock.now_ms()
        self._forget(now)
        cell = self._cells.setdefault(key, _Cell())
        if cell.images and cell.images[-1][0] >= now:
            cell.images[-1] = (cell.images[-1][0], image)
            self._drop_entries(key, cell)
        else:
            cell.images.append((now, image))
            self._aging.append((now, key))
        for view, hash_value, place in self._entries_of(image):
            if (view, hash_value, place) not in cell.entries:
                cell.entries.add((view, hash_value, place))
                insort(self._views.setdefault((view, hash_value), []), (place, *key))

    def walk(
        self,
        view: str,
        hash_value: str,
        span: Span | None,
        *,
        forward: bool,
        after: Entry | None,
        moment: int | None,
    ) -> Iterator[tuple[Entry, Item]]:
        """The entries of one hash value in order, with their rows as they were at `moment`."""
        entries = self._views.get((view, hash_value), [])
        first = 0 if span is None else bisect_left(entries, True, key=lambda e: span.low(e[0]))
        last = (
            len(entries)
            if span is None
            else bisect_left(entries, True, key=lambda e: span.high(e[0]))
        )
        if after is not None and forward:
            first = max(first, bisect_right(entries, after))
        elif after is not None:
            last = min(last, bisect_left(entries, after))
        index = self._index(view)
        chosen = range(first, last) if forward else range(last - 1, first - 1, -1)
        for position in chosen:
            entry = entries[position]
            item = self._cells[entry[1:]].at(moment)
            self.passed += 1
            if item is not None and index.of(item) == (hash_value, entry[0]):
                yield entry, item

    def all(self) -> Iterator[Item]:
        """Every row as it is now, in no order."""
        for cell in self._cells.values():
            image = cell.at(None)
            if image is not None:
                yield image

    def entry(self, view: str, item: Item) -> tuple[str, Entry] | None:
        """The hash value and the entry that `item` has in `view`, or None."""
        keys = self._index(view).of(item)
        if keys is None:
            return None
        return keys[0], (keys[1], item["pk"]["S"], item["sk"]["S"])

    def _index(self, view: str) -> IndexKeys:
        return self._table if view == TABLE else self.indexes[view]

    def _entries_of(self, image: Item | None) -> Iterator[tuple[str, str, Place]]:
        if image is None:
            return
        yield TABLE, image["pk"]["S"], image["sk"]["S"]
        for index in self.indexes.values():
            keys = index.of(image)
            if keys is not None:
                yield index.name, *keys

    def _forget(self, now: int) -> None:
        """Drops the images that no reader can reach any more."""
        while self._aging and self._aging[0][0] < now - LAG_MS_MAX:
            _, key = self._aging.popleft()
            cell = self._cells.get(key)
            if cell is None:
                continue
            while len(cell.images) > 1 and cell.images[1][0] < now - LAG_MS_MAX:
                del cell.images[0]
            if len(cell.images) == 1 and cell.images[0][1] is None:
                cell.images.clear()
                del self._cells[key]
            self._drop_entries(key, cell)

    def _drop_entries(self, key: Key, cell: _Cell) -> None:
        """Takes out of the views what no image of the row confirms any more."""
        kept = {entry for _, image in cell.images for entry in self._entries_of(image)}
        for view, hash_value, place in cell.entries - kept:
            entries = self._views[view, hash_value]
            del entries[bisect_left(entries, (place, *key))]
            if not entries:
                del self._views[view, hash_value]
        cell.entries &= kept
