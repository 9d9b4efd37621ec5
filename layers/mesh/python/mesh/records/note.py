"""Owns the noun note: something that an agent keeps in memory."""

from __future__ import annotations

import msgspec


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """A run that wrote a version of a note."""

    conversation_id: str
    run_id: str
    order: int
    """The order of the message that it answered."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """One note, in the partition of the install that it was made in; an operator may move it to
    where the runs of every install of the agent see it."""

    name: str
    text: str
    version: int
    agent_id: str
    install_id: str
    """The install whose run made it."""
    conversation_id: str
    run_id: str
    """The run that wrote this version."""
    created_at: int
    updated_at: int
    origins: tuple[Origin, ...] = ()
    """The runs that wrote this version and those before it, newest first, at most so many: a note
    goes with any of them, because what one wrote the next may have kept."""
