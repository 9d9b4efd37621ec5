"""Owns the noun install: one agent's installation of a message surface, and its sealed secrets.

Refuses open secrets: what is sealed stays bytes here, and has no representation in text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from mesh.kernel.limits import (
    CAP_ACTORS,
    CAP_CONVERSATIONS,
    CAP_MESSAGES_PER_MINUTE,
    CAP_WAITING,
    SLOTS_PER_INSTALL,
)


class InstallState(StrEnum):
    """Enablement (seed 000, "What they do share"), and the tombstone of a deleted install."""

    DISABLED = "disabled"
    ENABLING = "enabling"
    ENABLED = "enabled"
    ERROR = "error"
    DELETED = "deleted"


class AgentStatus(StrEnum):
    """Whether an agent works, and the tombstone of one that was deleted."""

    ACTIVE = "active"
    PAUSED = "paused"
    DELETING = "deleting"
    """It is gone for everybody but the job that erases what it had."""
    DELETED = "deleted"

    @property
    def stands(self) -> bool:
        """Whether the agent is there, for whoever asks."""
        return self in (AgentStatus.ACTIVE, AgentStatus.PAUSED)


class Policy(StrEnum):
    """Whom an install's messages engage when no list decides."""

    ADDRESSED = "addressed"
    ALWAYS = "always"
    NEVER = "never"


class Busy(StrEnum):
    """What happens to a message whose conversation has work already."""

    QUEUE = "queue"
    MERGE = "merge"
    REJECT = "reject"


class Engagement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """What the engagement gate goes by."""

    policy: Policy = Policy.ADDRESSED
    allow_actors: tuple[str, ...] = ()
    deny_actors: tuple[str, ...] = ()
    busy: Busy = Busy.QUEUE


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller can make Mesh hold and do."""

    conversations: int = CAP_CONVERSATIONS
    actors: int = CAP_ACTORS
    messages_per_minute: int = CAP_MESSAGES_PER_MINUTE
    waiting: int = CAP_WAITING


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """A sealed value and the version that its context names."""

    version: int
    blob: bytes

    def __repr__(self) -> str:
        return f"Sealed(version={self.version})"


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """The settings row. It copies what ingress must know of the agent, so that one read
    suffices."""

    install_id: str
    kind: str
    name: str
    agent_id: str
    agent_slug: str
    agent_name: str
    agent_handle: str
    agent_status: AgentStatus
    state: InstallState
    state_reason: str | None = None
    delivery_url: Sealed | None = None
    delivery_shown: str | None = None
    """Scheme, host and a hash of the delivery URL: what may be shown of it."""
    delivery_host: str | None = None
    allow_hosts: tuple[str, ...] = ()
    engagement: Engagement = Engagement()
    caps: Caps = Caps()
    failure_replies: bool = True
    retention_days: int | None = None
    """The agent's own number of days, a copy; None where the instance's counts."""
    discard_before: int = 0
    """Waiting replies that were made earlier (Unix ms) are not sent any more, but discarded: they
    were for another host."""
    secret_version: int
    version: int
    created_at: int


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an install's signing secret, sealed."""

    version: int
    blob: bytes
    created_at: int
    valid_until: int | None = None
    """When the overlap ends (Unix ms); None for the current one."""
    last_used_at: int | None = None

    def __repr__(self) -> str:
        return f"Secret(version={self.version})"


class EndpointState(StrEnum):
    """How a delivery endpoint does. Never a reason to close ingress."""

    OK = "ok"
    DEGRADED = "degraded"
    PAUSED = "paused"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A span in which nothing of an install was sent, on purpose; it counts to no entry's age."""

    since: int
    until: int


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The row `DELIVERY` of an install: health, and the requests in flight."""

    state: EndpointState = EndpointState.OK
    reason: str | None = None
    failures: int = 0
    failing_since: int | None = None
    told: int = 0
    """The largest part (per cent) of the time before it is paused that the operator was told of."""
    last_probe_at: int = 0
    recovered_at: int = 0
    """When the endpoint last came back, or was resumed: what failed before is due at once."""
    held_since: int | None = None
    holds: tuple[Hold, ...] = ()
    slot_0: int = 0
    slot_1: int = 0
    slot_2: int = 0
    slot_3: int = 0
    slot_4: int = 0
    slot_5: int = 0
    slot_6: int = 0
    slot_7: int = 0

    @property
    def slots(self) -> dict[str, int]:
        """Slot → when its lease ends (Unix ms). A slot whose lease is over is free."""
        return {name: getattr(self, name) for name in SLOTS}

    def in_flight(self, now_ms: int) -> int:
        """How many requests are under way."""
        return sum(until > now_ms for until in self.slots.values())

    def held_ms(self, since_ms: int, now_ms: int) -> int:
        """How much of the time since `since_ms` was held on purpose."""
        spans = [(hold.since, hold.until) for hold in self.holds]
        if self.held_since is not None:
            spans.append((self.held_since, now_ms))
        return sum(max(0, until - max(since, since_ms)) for since, until in spans)


SLOTS: Final = tuple(f"slot_{number}" for number in range(SLOTS_PER_INSTALL))
"""The attributes that hold the eight requests which an install may have in flight."""
