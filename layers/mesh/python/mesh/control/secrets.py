"""Owns the opening of an install's sealed values: its signing secrets and its delivery URL.

Refuses to open what no longer counts: a previous secret is opened while its overlap lasts, and no
longer. Ingress imports this module, so it imports little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mesh.kernel.ids import Random
from mesh.records.install import Install, Sealed, Secret
from mesh.security.sealing import InstanceKey, SecretContext, open_text, seal

OWNER_TYPE: Final = "agent_connector"
SIGNING: Final = "signing"
DELIVERY_URL: Final = "delivery_url"


def signing_context(install_id: str, version: int) -> SecretContext:
    """The context of a signing secret's version."""
    return SecretContext(OWNER_TYPE, install_id, SIGNING, version)


def url_context(install_id: str, version: int) -> SecretContext:
    """The context of a delivery URL, by the settings version that saved it."""
    return SecretContext(OWNER_TYPE, install_id, DELIVERY_URL, version)


def seal_secret(
    key: InstanceKey, install_id: str, version: int, secret: str, random: Random
) -> bytes:
    """A signing secret, sealed."""
    return seal(key, signing_context(install_id, version), secret.encode(), random)


def seal_url(key: InstanceKey, install_id: str, version: int, url: str, random: Random) -> Sealed:
    """A delivery URL, sealed."""
    blob = seal(key, url_context(install_id, version), url.encode(), random)
    return Sealed(version=version, blob=blob)


def valid_now(rows: Iterable[Secret], now_ms: int) -> list[Secret]:
    """The secrets that count: the current one first, then those whose overlap lasts."""
    counting = [row for row in rows if row.valid_until is None or row.valid_until > now_ms]
    return sorted(counting, key=lambda row: (row.valid_until is not None, -row.version))


def open_secrets(
    key: InstanceKey, install_id: str, rows: Sequence[Secret], now_ms: int
) -> list[tuple[int, str]]:
    """Version and signing secret of what counts now, current first. Raises Failed."""
    return [
        (
            row.version,
            open_text(key, signing_context(install_id, row.version), row.blob),
        )
        for row in valid_now(rows, now_ms)
    ]


def open_delivery_url(key: InstanceKey, install: Install) -> str | None:
    """The delivery URL in the clear; None when there is none. Raises Failed."""
    sealed = install.delivery_url
    if sealed is None:
        return None
    return open_text(key, url_context(install.install_id, sealed.version), sealed.blob)
