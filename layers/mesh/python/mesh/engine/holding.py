"""Owns the lease of a run while calls are under way: prolonged in time, and looked at meanwhile.

Refuses to go on for somebody who cancelled the run, or against a worker that took it over: both
delete or raise what is looked at here, at most two seconds later.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mesh.engine import lease
from mesh.engine.slots import Place
from mesh.kernel.clock import Clock
from mesh.kernel.limits import LEASE_RENEW_MS
from mesh.outbox.commit import LostLease
from mesh.records.conversation import Pending
from mesh.storage import keys
from mesh.storage.table import Table

_LOOK_EVERY_MS: Final = 900
"""Less than what its callers wait between two looks, so that no clock's rounding skips one."""


class LeaseHolding:
    """A run's lease, and the slot that it rests on. Not to be shared."""

    def __init__(
        self, table: Table, clock: Clock, place: Place, conversation_id: str, pending: Pending
    ) -> None:
        self._table = table
        self._clock = clock
        self._place = place
        self._conversation_id = conversation_id
        self._pending = pending
        self._looked_at = self._renewed_at = clock.now_ms()

    def look(self) -> None:
        """Prolongs the lease where that is due, and sees once a second whether it stands. Raises
        LostLease, Failed."""
        now = self._clock.now_ms()
        if now - self._renewed_at >= LEASE_RENEW_MS:
            until = self._place.renew()
            self._renewed_at = now
            if until is not None:  # without a slot the lease ends when it ends
                lease.renew(self._table, self._conversation_id, self._pending, until)
                self._looked_at = now
                return
        if now - self._looked_at < _LOOK_EVERY_MS:
            return
        self._looked_at = now
        item = self._table.get(keys.pending(self._conversation_id, self._pending.order))
        if item is None or msgspec.convert(item, Pending).lease_no != self._pending.lease_no:
            raise LostLease
