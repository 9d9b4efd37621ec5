"""Owns the places under caps that come back: of actors and conversations idle for thirty days.

Refuses to take a place from who became active again: a condition on the period decides.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mesh.kernel.clock import Clock
from mesh.kernel.limits import SWEEP_PAGE_ITEMS
from mesh.storage import keys
from mesh.storage.keys import Key
from mesh.storage.table import Cancelled, Table
from mesh.storage.writes import delete, update


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """A row of who was active: its place under a cap is given back when it was idle for thirty
    days."""

    kind: str
    period: int
    shard: int
    due_at: int


class IdlePlaces:
    """Gives places back."""

    def __init__(self, table: Table, clock: Clock, new_token: Callable[[], str]) -> None:
        self._table = table
        self._clock = clock
        self._token = new_token

    def give_back(self, shard: int, stop_at: int) -> None:
        """Gives back the places of actors and conversations that were idle for thirty days."""
        page = self._table.query_due(
            keys.idle_shard(shard), until_ms=self._clock.now_ms(), limit=SWEEP_PAGE_ITEMS
        )
        for found in page.items:
            if self._clock.now_ms() >= stop_at:
                return
            key = Key(found["pk"], found["sk"])
            item = self._table.get(key)
            if item is None:
                continue
            activity = msgspec.convert(item, Activity)
            if activity.due_at > self._clock.now_ms():
                continue
            install_id = key.pk.removeprefix("CAPS#")
            writes = [
                delete(key, "#period = :period", period=activity.period),
                update(
                    keys.cap_count(install_id, activity.kind, activity.shard),
                    "SET #n = #n - :one",
                    "#n >= :one",
                    one=1,
                ),
            ]
            try:
                self._table.transact(writes, self._token())
            except Cancelled:
                continue  # it became active again, or the next pass finds it
