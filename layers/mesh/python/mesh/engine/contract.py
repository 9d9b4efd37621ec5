"""Owns the words of a run's work: what it is made of, what it comes to, and who goes on with it.

Refuses to do any of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mesh.engine.context import Line
from mesh.records.agent import Agent
from mesh.records.note import Note


@dataclass(frozen=True, slots=True)
class Said:
    """What the run is to answer, or why it has no answer."""

    text: str
    failure: str | None = None
    sources: tuple[Mapping[str, str], ...] = ()
    """Where what the run's tools brought back came from, each once: kept with the reply."""


class HandOver(Exception):
    """What is left does not fit into this invocation: another one goes on, after `delay_s`."""

    def __init__(self, delay_s: float = 0) -> None:
        super().__init__("the run is handed over")
        self.delay_s = delay_s


class Revoked(Exception):
    """What a call under way rests on was changed."""


class Holding(Protocol):
    """The lease under which a run is worked on."""

    def look(self) -> None:
        """Prolongs it where that is due. Raises LostLease where it, or its run, is gone; Failed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """What one run is made of, as its worker read it."""

    agent: Agent
    install_id: str
    conversation_id: str
    run_id: str
    before: int
    """The order key of the message that is answered."""
    order: int
    """The order key under which the run waits; lower where it answers later messages too."""
    lines: Sequence[Line]
    notes: Sequence[Note]
    started_at: int
    """When the run was first leased (Unix ms)."""
    stop_at: int
    """When this invocation must let go (Unix ms)."""
