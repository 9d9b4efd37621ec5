"""Owns the shapes of connectors.

Refuses a secret but where it is shown once, and a delivery URL but as host and hash.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mesh.kernel.limits import (
    ACTOR_LIST_MAX,
    ALLOW_HOSTS_MAX,
    CAP_ACTORS,
    CAP_CONVERSATIONS,
    CAP_MAX,
    CAP_MESSAGES_PER_MINUTE,
    CAP_WAITING,
    OVERLAP_S_DEFAULT,
    OVERLAP_S_MAX,
)
from mesh.operator.shapes.base import ActorId, Host, Name, Shown, Taken, Time, Url, Version
from mesh.records.install import Busy, EndpointState, InstallState, Policy


class EngagementBoth(Taken):
    """What the engagement gate goes by."""

    policy: Policy = Policy.ADDRESSED
    allow_actors: Annotated[tuple[ActorId, ...], Field(max_length=ACTOR_LIST_MAX)] = ()
    deny_actors: Annotated[tuple[ActorId, ...], Field(max_length=ACTOR_LIST_MAX)] = ()
    busy: Busy = Busy.QUEUE


class CapsBoth(Taken):
    """What a caller can make Mesh hold and do."""

    conversations: Annotated[int, Field(ge=1, le=CAP_MAX)] = CAP_CONVERSATIONS
    actors: Annotated[int, Field(ge=1, le=CAP_MAX)] = CAP_ACTORS
    messages_per_minute: Annotated[int, Field(ge=1, le=CAP_MAX)] = CAP_MESSAGES_PER_MINUTE
    waiting: Annotated[int, Field(ge=1, le=10_000)] = CAP_WAITING


Hosts = Annotated[tuple[Host, ...], Field(max_length=ALLOW_HOSTS_MAX)]


class ConnectorNew(Taken):
    """A new install."""

    kind: Literal["generic"]
    name: Name = "generic"
    delivery_url: Url | None = None
    allow_hosts: Hosts = ()
    engagement: EngagementBoth = EngagementBoth()
    caps: CapsBoth = CapsBoth()
    failure_replies: bool = True
    enable: bool = False
    skip_ping: bool = False
    roster: Version | None = None
    """The agent's `roster` as it was seen: where another connector came or went since, none is
    made."""


class ConnectorPut(Taken):
    """All settings of an install. `delivery_url` left out keeps the saved one, null removes it."""

    name: Name = "generic"
    delivery_url: Url | None = None
    allow_hosts: Hosts = ()
    engagement: EngagementBoth = EngagementBoth()
    caps: CapsBoth = CapsBoth()
    failure_replies: bool = True
    pending: Literal["send", "discard"] | None = None
    version: Version


class EnableTaken(Taken):
    """How to enable."""

    skip_ping: bool = False


class RotateTaken(Taken):
    """How to rotate: for how long the previous secret goes on, 0 for not at all."""

    overlap_seconds: Annotated[int, Field(ge=0, le=OVERLAP_S_MAX)] = OVERLAP_S_DEFAULT
    force: bool = False


class DeliveryShown(Shown):
    """How delivery does. The counts are of the newest entries of the agent and may lag."""

    state: EndpointState
    reason: str | None
    failing_since: Time | None
    oldest_pending_at: Time | None
    pending: int
    dead: int


class SecretShown(Shown):
    """Version and age of the signing secret, never itself."""

    version: int
    created_at: Time
    previous_valid_until: Time | None
    previous_last_used_at: Time | None


class ConnectorShown(Shown):
    """An install."""

    install_id: str
    kind: str
    name: str
    agent: str
    ingress_url: str
    state: InstallState
    state_reason: str | None
    delivery_url: str | None
    """Scheme, host and a hash: the URL itself may be a secret."""
    allow_hosts: tuple[str, ...]
    engagement: EngagementBoth
    caps: CapsBoth
    failure_replies: bool
    delivery: DeliveryShown
    secret: SecretShown
    version: int
    created_at: Time


class ConnectorList(Shown):
    """A page of installs, oldest first."""

    items: list[ConnectorShown]
    next_cursor: str | None


class ConnectorCreated(Shown):
    """A new install, with its secret: shown now and never again."""

    install_id: str
    kind: str
    name: str
    agent: str
    ingress_url: str
    state: InstallState
    state_reason: str | None
    secret: str | None
    secret_version: int
    delivery_url: str | None
    version: int
    replayed: bool = False


class Rotation(Shown):
    """A fresh secret: shown now and never again."""

    install_id: str
    secret: str | None
    version: int
    previous_valid_until: Time | None
    replayed: bool = False


class PingShown(Shown):
    """How the receiver answered a ping."""

    delivered: bool
    outbound_id: str | None
    http_status: int | None
    duration_ms: int | None
    reason: str | None


class RefusalShown(Shown):
    """Refusals of one reason to a proven caller within one minute."""

    reason: str
    minute: Time
    count: int
    first_at: Time
    last_at: Time
    last_request_ids: list[str]
    clock_skew_s: int


class RefusalList(Shown):
    """A page of refusals, newest first."""

    items: list[RefusalShown]
    next_cursor: str | None
