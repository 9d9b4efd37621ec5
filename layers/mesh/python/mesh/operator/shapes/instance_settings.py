"""Owns the shapes of the instance's settings and of its model keys.

Refuses to show the webhook's URL whole, its secret but once, and a model's key at all.
"""

from __future__ import annotations

from mesh.operator.shapes.base import RetentionDays, Shown, Taken, Time, Url, Version
from mesh.operator.shapes.connectors import Hosts
from mesh.records.agent import ModelKind


class InstancePut(Taken):
    """All settings of the instance. `operator_webhook_url` left out keeps the saved one, null
    removes it; another one gets a signing secret of its own."""

    allow_hosts: Hosts = ()
    operator_webhook_url: Url | None = None
    retention_days: RetentionDays | None = None
    version: Version


class ModelKeyAge(Shown):
    """A model key of the instance: that there is one, and how old it is."""

    kind: ModelKind
    version: int
    updated_at: Time


class InstanceShown(Shown):
    """The instance's settings."""

    allow_hosts: list[str]
    operator_webhook_url: str | None
    """Scheme, host and a hash."""
    retention_days: int | None
    """Null: the environment's, as `retention_days_default` says."""
    retention_days_default: int
    version: int
    webhook_secret: str | None
    """Shown once, in the answer to the change that set the URL."""
    model_keys: list[ModelKeyAge]
