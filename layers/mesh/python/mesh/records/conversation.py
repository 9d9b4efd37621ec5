"""Owns the nouns of a conversation: its order, its outbox's place, and the work that waits in
it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A due mark, and what the sweep saw when it last rang for it."""

    due_pk: str | None = None
    due_at: int | None = None
    rings: int = 0
    seen: str | None = None


class Conversation(Mark, frozen=True, kw_only=True):
    """The row `ORDER`: written by ingress and by the end of a turn. Its mark is about turns."""

    conversation_id: str
    install_id: str
    agent_id: str
    conversation_key: str
    kind: str = "generic"
    """The kind of the install, which says how replies are made."""
    last_order: int
    pending: int = 0
    actors: frozenset[str] = frozenset()
    list_sk: str | None = None
    """The ULID of its first message, by which it is listed."""
    forget_to: int = 0
    """What was said up to this order was deleted: nobody is shown it, and no run answers it."""

    def forgets(self, order: int) -> bool:
        """Whether what was said at `order` was deleted."""
        return order <= self.forget_to

    @property
    def forgotten(self) -> bool:
        """Whether nothing was said since it was deleted."""
        return self.last_order <= self.forget_to


class Outbox(Mark, frozen=True, kw_only=True):
    """The row `OUTBOX`: written by the end of a turn and by delivery. Its mark is about
    deliveries."""

    conversation_id: str
    install_id: str
    agent_id: str
    seq: int
    """The last sequence that was given out."""
    head: int = 1
    """No entry below it is pending: a lower bound, never the truth itself."""


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """A message that waited behind a run when it began, and is answered by it."""

    story: str
    order: int
    message_id: str


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """The row `PEND#…`: a run that waits or runs. Deleted by the transaction that ends it."""

    story: str
    order: int
    created_at: int
    message_id: str
    """The caller's id of the message that the run answers."""
    install_id: str
    agent_id: str
    kept_days: int | None = None
    """How long what the run writes is kept, as it was settled when its message came; None for a run
    that an earlier release took in: the environment's."""
    lease_no: int = 0
    lease_until: int = 0
    excused: int = 0
    """Leases that were given back because a dependency failed: they do not count as lost."""
    first_leased_at: int | None = None
    merged: tuple[Merged, ...] = ()
    """The messages that it answers beside its own, oldest first; settled by its first lease."""
    counted: bool = False
    """Whether it is counted among its agent's turns of a day."""
    token: str | None = None

    @property
    def last_order(self) -> int:
        """The order key of the newest message that it answers: where its context ends."""
        return self.merged[-1].order if self.merged else self.order

    @property
    def answered_id(self) -> str:
        """The caller's id of the newest message that it answers."""
        return self.merged[-1].message_id if self.merged else self.message_id


class Role(StrEnum):
    """Who spoke."""

    UTTERANCE = "utterance"
    REPLY = "reply"


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """The row `MSG#…`: a message in the agent's perspective, or the agent's own reply as sent."""

    story: str
    order: int
    role: Role
    at: int
    verdict: str | None = None
    message_id: str | None = None
    actor_id: str | None = None
    display_name: str | None = None
    body: str | None = None
    body_format: str | None = None
    topology: str | None = None
    parent_id: str | None = None
    sent_at: str | None = None
    sent: bytes | None = None
    """Of a reply: the exact bytes of every attempt."""
    sources: tuple[dict[str, str], ...] = ()
    """Of a reply: where what its run's tools brought back came from."""
