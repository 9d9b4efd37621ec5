"""Owns the utterance: what every connector's normalizer yields, whatever surface it came from.

Refuses anything but what was said, by whom and where: a message has no place for a tool, a grant or
an instruction to Mesh (seed 000, The payload).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class BodyFormat(StrEnum):
    """How a body is to be read."""

    MARKDOWN = "markdown"
    TEXT = "text"


class Topology(StrEnum):
    """The shape of the place in which a message was said: a hint for the engagement gate."""

    DIRECT = "direct"
    GROUP = "group"
    CHANNEL = "channel"


class NormalizedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One utterance. Ids, keys and names are the caller's, compared exactly, never normalized.

    `parent_id` is a caller's message id or an `out_…` id; `sent_at` is RFC 3339 as it was sent.
    """

    message_id: str
    conversation_key: str
    actor_id: str
    body: str
    body_format: BodyFormat = BodyFormat.MARKDOWN
    parent_id: str | None = None
    display_name: str | None = None
    topology: Topology = Topology.DIRECT
    sent_at: str | None = None
