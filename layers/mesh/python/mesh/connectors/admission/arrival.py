"""Owns the nouns of admission: what arrives, what one try believes of the rows, what came of it.

Refuses I/O: the functions here are arithmetic over an arrival.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from mesh.control.engagement import Judgement, Verdict
from mesh.kernel.limits import (
    ACTIVE_PERIOD_MS,
    CAP_SHARD_SIZE,
    CAP_SHARDS_MAX,
    RATE_SHARD_SIZE,
    RATE_SHARDS_MAX,
)
from mesh.records.install import Busy, Install
from mesh.records.message import NormalizedMessage
from mesh.storage import keys


class Arrival(msgspec.Struct, frozen=True):
    """A verified, parsed and judged utterance, ready to be taken in."""

    install: Install
    secret_version: int
    message: NormalizedMessage
    judgement: Judgement
    story: str
    """The ULID of this request, and of all that comes of it."""
    received_at: int
    digest: str
    digest_version: int
    kept_days: int
    """How long what comes of it is kept, settled once for its whole story."""

    @property
    def waiting_max(self) -> int:
        """How many runs may wait in the conversation before it is busy."""
        install = self.install
        return 1 if install.engagement.busy is Busy.REJECT else install.caps.waiting


class Admitted(msgspec.Struct, frozen=True):
    """What was taken in, now or when the message first came."""

    duplicate: bool
    story: str
    verdict: Verdict
    reason: str
    conversation_id: str

    @property
    def engaged(self) -> bool:
        """Whether a run exists for it."""
        return self.verdict is Verdict.ENGAGE


class Role(StrEnum):
    """What a write of the transaction is for, in the order in which reasons are judged."""

    CLAIM = "claim"
    CAP_ACTORS = "cap_actors"
    CAP_CONVERSATIONS = "cap_conversations"
    RATE = "rate"
    ACTOR = "actor"
    ACTIVE_CONVERSATION = "active_conversation"
    CONVERSATION = "conversation"
    OTHER = "other"


class Place(StrEnum):
    """What a try believes of an actor's or a conversation's place under its cap."""

    TAKEN_THIS_PERIOD = "taken_this_period"
    TAKEN = "taken"
    NEW = "new"


class Bet(msgspec.Struct, frozen=True):
    """What one try believes; a failed try's old items make the next bet."""

    order: int
    judgement: Judgement
    conversation_exists: bool = True
    known_actors: frozenset[str] | None = None
    """The actor tags to be kept beside this actor's; None leaves the set alone."""
    actor: Place = Place.TAKEN_THIS_PERIOD
    conversation: Place = Place.TAKEN_THIS_PERIOD
    actor_looked_up: bool = False
    actor_shards: tuple[int, ...] = ()
    conversation_shards: tuple[int, ...] = ()
    rate_shards: tuple[int, ...] = ()


def conversation_id_of(arrival: Arrival) -> str:
    return keys.conversation_id(arrival.install.install_id, arrival.message.conversation_key)


_TAG_CHARACTERS: Final = 14


def actor_tag(arrival: Arrival) -> str:
    """The actor in this ten-day period: a member of the conversation's set of known actors."""
    actor = keys.actor_id(arrival.install.install_id, arrival.message.actor_id)
    return f"{arrival.received_at // ACTIVE_PERIOD_MS}:{actor[-_TAG_CHARACTERS:]}"


def cap_shards(limit: int) -> int:
    return max(1, min(CAP_SHARDS_MAX, limit // CAP_SHARD_SIZE))


def rate_shards_of(limit: int) -> int:
    return max(1, min(RATE_SHARDS_MAX, limit // RATE_SHARD_SIZE))


def share(limit: int, shards: int, shard: int) -> int:
    """The part of a limit that one shard holds; the parts add up to the limit exactly."""
    return limit // shards + (1 if shard < limit % shards else 0)
