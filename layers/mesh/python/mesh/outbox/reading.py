"""Owns how delivery reads an install: settings, secrets and health, as they are at one moment.

Refuses to keep any of it: what was read is worked on at once, or read again.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from mesh.control.secrets import open_delivery_url, open_secrets
from mesh.kernel.clock import Clock
from mesh.records.install import Endpoint, Install, Secret
from mesh.security.sealing import InstanceKey
from mesh.storage import keys
from mesh.storage.table import Table


@dataclass(frozen=True, slots=True)
class InstallRead:
    """An install's settings, secrets and health, and when they were read."""

    settings: Install
    secrets: list[Secret]
    endpoint: Endpoint
    read_at: int

    def opened(self, key: InstanceKey, now_ms: int) -> tuple[str, list[str]]:
        """The delivery URL and the secrets that count now, in the clear, newest first."""
        opened = open_secrets(key, self.settings.install_id, self.secrets, now_ms)
        url = open_delivery_url(key, self.settings)
        assert url is not None, "an install without a delivery URL is not attempted"
        return url, [secret for _, secret in opened]


def read_install(table: Table, clock: Clock, install_id: str) -> InstallRead | None:
    """An install as it is now, in one consistent read; None when there is none. Raises Failed."""
    read_at = clock.now_ms()
    settings: Install | None = None
    secrets: list[Secret] = []
    endpoint = Endpoint()
    everything = (keys.DELIVERY, keys.SETTINGS)
    for row in table.query(keys.install(install_id), between=everything).items:
        match row["sk"].partition("#")[0]:
            case keys.SETTINGS:
                settings = msgspec.convert(row, Install)
            case keys.DELIVERY:
                endpoint = msgspec.convert(row, Endpoint)
            case keys.SECRET:
                secrets.append(msgspec.convert(row, Secret))
    secrets.sort(key=lambda secret: secret.version, reverse=True)
    return None if settings is None else InstallRead(settings, secrets, endpoint, read_at)
