"""Owns the nouns of the outbox: the entry, its attempts, and how each ended."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class EntryState(StrEnum):
    """The life of an entry. All but `PENDING` let the next one go."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"
    DISCARDED = "discarded"
    UNDELIVERABLE = "undeliverable"


class AttemptEnd(StrEnum):
    """How an attempt ended, as a receiver's operator would say it."""

    DELIVERED = "delivered"
    REDIRECT = "redirect"
    CLIENT_ERROR = "client_error"
    GONE = "gone"
    THROTTLED = "throttled"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    PROTOCOL = "protocol"
    REFUSED_ADDRESS = "refused_address"
    UNKNOWN = "unknown"
    """The worker died while the attempt was open: it may have arrived."""


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that was begun and not closed: the lease of the entry."""

    number: int
    token: str
    at: int
    until: int
    probe: bool = False
    replay: bool = False


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that ended."""

    number: int
    at: int
    ended_at: int
    end: AttemptEnd
    http_status: int | None = None
    detail: str | None = None
    """A stable word of the egress guard, such as the reason of a refused address."""
    probe: bool = False
    replay: bool = False


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The row `ENTRY#<sequence>`. It holds no body: the bytes are the reply row's."""

    story: str
    sequence: int
    reply_order: int
    install_id: str
    agent_id: str
    created_at: int
    state: EntryState = EntryState.PENDING
    state_reason: str | None = None
    due_time: int
    """When the next attempt may begin (Unix ms)."""
    not_before: int = 0
    """What the receiver asked for by `Retry-After`: no probe begins earlier either."""
    last_ended_at: int = 0
    attempts: int = 0
    counted: int = 0
    """Attempts that count towards death: probes of a degraded endpoint do not."""
    refused_in_row: int = 0
    client_errors: int = 0
    open: Open | None = None
    recent: tuple[Attempt, ...] = ()
    notice_id: str | None = None
    """Of a dead one: the notice that tells the operator of it."""
    kept_days: int | None = None
    """How long the row is kept once it has ended: what is pending never goes of itself, however
    long it is held. None where an earlier release settled it when it was made."""
    pages: int = 0
    """How many full pages of older attempts stand in the story's partition."""

    @property
    def outbound_id(self) -> str:
        """The id that receivers dedupe on."""
        return f"out_{self.story}"


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The row `REPLAY` of a story: an operator's order, until it is done."""

    story: str
    conversation_id: str
    sequence: int
    requested_at: int
    tries: int = 0
    due_at: int


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries of an install an order is about: those made within a span of time (Unix ms,
    `until` exclusive) that are in one of some states when the order comes to them."""

    install_id: str
    states: frozenset[EntryState]
    since: int
    until: int

    def takes(self, entry: Entry) -> bool:
        """Whether the order is about `entry` as it now stands."""
        return (
            entry.install_id == self.install_id
            and entry.state in self.states
            and self.since <= entry.created_at < self.until
        )
