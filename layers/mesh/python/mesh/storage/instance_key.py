"""Owns the instance key: one KMS-wrapped data key, from which connectors' secrets are sealed.

Refuses to keep it open for longer than five minutes, and to cost a call while it is kept: so a
hit, a miss and a mismatch at ingress make the same calls, warm or cold.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from botocore.client import BaseClient
from botocore.exceptions import BotoCoreError, ClientError

from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed, Phase
from mesh.kernel.ids import Random
from mesh.kernel.limits import INSTANCE_KEY_KEPT_MS
from mesh.security.sealing import InstanceKey
from mesh.storage import keys
from mesh.storage.table import ConditionFailed, Table, put

CONTEXT: Final = {"mesh": "instance-key"}
"""KMS encryption context. A wrapped key of anything else does not open as this."""


class InstanceKeys:
    """Opens the instance key, and makes it once."""

    def __init__(
        self, kms: BaseClient | Any, key: str, table: Table, clock: Clock, random: Random
    ) -> None:
        self._kms: Any = kms  # botocore makes its methods at run time
        self._key = key
        self._table = table
        self._clock = clock
        self._random = random
        self._lock = threading.Lock()
        self._kept: tuple[int, InstanceKey] | None = None

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
            item = self._table.get(keys.instance_key())
            if item is None:
                return InstanceKey(self._random.bytes(32))
            key = InstanceKey(self._unwrap(item["wrapped"]))
            self._kept = (now, key)
            return key

    def ensure(self) -> InstanceKey:
        """The key, made where there is none yet. One of any number of makers wins. Raises Failed."""
        if self._table.get(keys.instance_key()) is None:
            try:
                answer = self._kms.generate_data_key(
                    KeyId=self._key, KeySpec="AES_256", EncryptionContext=CONTEXT
                )
            except (ClientError, BotoCoreError):
                raise _unavailable() from None
            write = put(
                keys.instance_key(),
                {"wrapped": answer["CiphertextBlob"], "created_at": self._clock.now_ms()},
                "attribute_not_exists(#pk)",
            )
            try:
                self._table.write(write)
            except ConditionFailed:
                pass  # another maker was first; its key is the key
        return self.current()

    def _unwrap(self, wrapped: bytes) -> bytes:
        try:
            answer = self._kms.decrypt(
                KeyId=self._key, CiphertextBlob=wrapped, EncryptionContext=CONTEXT
            )
        except (ClientError, BotoCoreError):
            raise _unavailable() from None
        plaintext: bytes = answer["Plaintext"]
        return plaintext


def _unavailable() -> Failed:
    return Failed(
        "unavailable", "the key that opens secrets cannot be used; see the alarms", Phase.BEFORE
    )
