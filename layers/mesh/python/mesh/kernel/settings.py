"""Owns what a function is told by its environment, as one typed object.

Refuses to read the environment at import: builders call `Settings.from_environment` once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Self

import msgspec

from mesh.kernel.limits import ATTEMPTS_KEPT_DAYS, AUDIT_KEPT_DAYS, MESSAGES_KEPT_DAYS


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of a deployed function. The CDK app and the local stack write the same
    names."""

    environment: str
    table: str
    queue_urls: dict[str, str]
    secrets_key: str
    """ARN or alias of the KMS key that wraps secrets."""
    ingress_url: str
    """Where third parties post, up to and with `/generic/events`; empty where no function shows
    it."""
    own_hosts: tuple[str, ...] = ()
    """Host names that are Mesh's own: deliveries to them are refused by name."""
    event_bus: str = "default"
    """The bus of EventBridge that notices are put to."""
    messages_kept_days: int = MESSAGES_KEPT_DAYS
    attempts_kept_days: int = ATTEMPTS_KEPT_DAYS
    audit_kept_days: int = AUDIT_KEPT_DAYS

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Reads `MESH_…` variables. msgspec.ValidationError names what is missing or malformed."""
        fields: dict[str, object] = {
            name.removeprefix("MESH_").lower(): value
            for name, value in environ.items()
            if name.startswith("MESH_")
        }
        fields["queue_urls"] = {
            name.removeprefix("queue_url_"): value
            for name, value in fields.items()
            if name.startswith("queue_url_")
        }
        hosts = str(fields.get("own_hosts", ""))
        fields["own_hosts"] = tuple(host for host in hosts.split(",") if host)
        return msgspec.convert(fields, cls, strict=False)
