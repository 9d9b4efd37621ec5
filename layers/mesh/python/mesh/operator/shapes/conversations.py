"""Owns the shapes of conversations: the perspective that an agent has of each.

Refuses what the agent never saw: a message that the gate refused is not among them.
"""

from __future__ import annotations

from mesh.operator.shapes.base import Listing, Shown, Time
from mesh.records.conversation import Role
from mesh.records.message import BodyFormat, Topology


class ConversationListing(Listing):
    """Which conversations are wanted."""

    install_id: str | None = None


class ConversationShown(Shown):
    """One conversation. `conversation_key` is the caller's."""

    conversation_id: str
    install_id: str
    kind: str
    conversation_key: str
    created_at: Time
    last_at: Time
    """When its newest message came, or its newest reply was made."""
    waiting: int
    """How many runs wait or run."""


class ConversationList(Shown):
    """A page of conversations, those that began last first."""

    items: list[ConversationShown]
    next_cursor: str | None


class MessageShown(Shown):
    """A message that the agent heard, or a reply of its own."""

    id: str
    """`msg_…` of what was heard, `out_…` of a reply."""
    role: Role
    at: Time
    observed: bool
    """Whether it was only heard: context for later turns, and no turn of its own."""
    run_id: str | None
    """The run that it started, or that made it."""
    message_id: str | None
    """The caller's id of what was heard."""
    actor_id: str | None
    """The caller's id of who spoke."""
    actor: str | None
    """Mesh's own: `act_…`, by which what an actor said is deleted."""
    display_name: str | None
    body: str
    body_format: BodyFormat
    topology: Topology | None
    parent_id: str | None
    sent_at: str | None
    """When the caller says that it was sent."""
    sources: list[dict[str, str]]
    """Of a reply: where what its run's tools brought back came from, each once."""


class MessageList(Shown):
    """A page of a conversation's messages, newest first."""

    items: list[MessageShown]
    next_cursor: str | None
