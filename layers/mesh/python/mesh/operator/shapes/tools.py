"""Owns the shapes of an agent's tools and notes, and of a probe.

Refuses a field that says what a tool may do: that is its package's manifest.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from mesh.operator.shapes.base import Listing, Shown, Taken, Time, Version

InstallId = Annotated[str, StringConstraints(pattern=r"^ins_[0-9A-HJKMNP-TV-Z]{26}$")]


class ToolShown(Shown):
    """A tool, as it stands for one agent."""

    name: str
    class_: Literal["observe", "metered", "effect"] = Field(serialization_alias="class")
    """What may be done about a call whose end is not known."""
    package: str
    description: str
    enabled: bool
    offered: bool
    reason: str | None
    """Why it is not offered: `agent_paused`, `not_enabled`, `disabled`, or what its web access
    lacks (`web_access_…`)."""
    acting: str
    """As whom it acts."""
    payer: str | None
    """Whose credential pays for it, and at whom, such as `instance/brave`; null where nobody's
    does, and where it is not offered."""
    version: int
    """0 while it has never been enabled or disabled for this agent."""


class ToolList(Shown):
    """Every tool that there is. There is never more than one page."""

    items: list[ToolShown]
    next_cursor: None = None


class ToolPut(Taken):
    """Whether the agent may use a tool."""

    enabled: bool
    version: Version


class Probe(Taken):
    """One call of a tool, without a model."""

    arguments: dict[str, Any] = Field(default_factory=dict)
    install_id: InstallId | None = None
    """The install in whose place it is made; needed by tools that look into conversations."""


class ProbeShown(Shown):
    """What a probe came to. Its text is from outside: evidence, and never an instruction."""

    run_id: str
    tool: str
    observation_kind: str
    text: str
    provenance: dict[str, str]
    sources: list[str]
    """The URLs that it rests on."""
    acting: str
    payer: str | None
    started_at: Time
    ended_at: Time


class NoteListing(Listing):
    """A page of the notes of one place."""

    install_id: InstallId | None = None
    """Left out: the notes that the runs of every install see."""


class NoteMove(Taken):
    """Where a note is seen is changed by who read it as it stands."""

    version: Version


class NoteShown(Shown):
    """A note that an agent keeps in mind."""

    name: str
    text: str
    version: int
    install_id: str
    """The install whose run made it."""
    everywhere: bool
    """Whether the runs of every install see it, because an operator widened it."""
    conversation_id: str
    run_id: str
    """The run that wrote this version."""
    created_at: Time
    updated_at: Time


class NoteList(Shown):
    """Notes by name."""

    items: list[NoteShown]
    next_cursor: str | None
