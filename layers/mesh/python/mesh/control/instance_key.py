"""Owns the instance key: one KMS-wrapped data key, from which connectors' secrets are sealed; and
the retention that stands beside it.

Refuses to keep it open for longer than five minutes, and to cost a call while it is kept: so a hit,
a miss and a mismatch at ingress make the same calls, warm or cold.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed, Phase
from mesh.kernel.ids import Random
from mesh.kernel.limits import INSTANCE_KEY_KEPT_MS
from mesh.security.sealing import InstanceKey, KeyWrapper
from mesh.storage import keys
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import put

CONTEXT: Final = {"mesh": "instance-key"}
"""KMS encryption context. A wrapped key of anything else does not open as this."""


class InstanceKeys:
    """Opens the instance key, and makes it once."""

    def __init__(self, wrapper: KeyWrapper, table: Table, clock: Clock, random: Random) -> None:
        self._wrapper = wrapper
        self._table = table
        self._clock = clock
        self._random = random
        self._lock = threading.Lock()
        self._kept: tuple[int, InstanceKey] | None = None
        self._retention_days: int | None = None

    def current(self) -> InstanceKey:
        """The key; one table read and one KMS call when it is not kept. Raises Failed.

        Where no install was ever made there is no key: a random one then stands in for one request,
        so that an unknown install is refused with the same work as ever.
        """
        with self._lock:
            now = self._clock.now_ms()
            if self._kept is not None and now - self._kept[0] < INSTANCE_KEY_KEPT_MS:
                return self._kept[1]
            self._kept = None
            rows = self._table.query(keys.INSTANCE, between=(keys.KEY, keys.SETTINGS)).items
            by_sk = {row["sk"]: row for row in rows}
            self._retention_days = by_sk.get(keys.SETTINGS, {}).get("retention_days")
            item = by_sk.get(keys.KEY)
            if item is None:
                return InstanceKey(self._random.bytes(32))
            key = InstanceKey(self._opened(item["wrapped"]))
            self._kept = (now, key)
            return key

    def _opened(self, wrapped: bytes) -> bytes:
        """The key in the clear. One that does not open is the instance's trouble and no caller's:
        it is told as unavailable, so that whoever asks comes again."""
        try:
            return self._wrapper.unwrap(wrapped, CONTEXT)
        except Failed as failed:
            if failed.code != "secret_unopenable":
                raise
            raise Failed(
                "unavailable", "the instance's key does not open; see the alarms", Phase.BEFORE
            ) from None

    @property
    def retention_days(self) -> int | None:
        """The instance's own number of days, as it stood when the key was last read; never a call.

        None where none is set, and before the first read.
        """
        return self._retention_days

    def ensure(self) -> InstanceKey:
        """The key, made where there is none yet. One of any number of makers wins. Raises
        Failed."""
        if self._table.get(keys.instance_key()) is None:
            _, wrapped = self._wrapper.generate(CONTEXT)
            write = put(
                keys.instance_key(),
                {"wrapped": wrapped, "created_at": self._clock.now_ms()},
                "attribute_not_exists(#pk)",
            )
            with suppress(ConditionFailed):  # another maker was first; its key is the key
                self._table.write(write)
        return self.current()
