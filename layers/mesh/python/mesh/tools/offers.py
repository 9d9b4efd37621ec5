"""Owns offers: which tools a model is shown, on what each rests, and why others are not among them.

Refuses to keep one: offers are made anew for each model call, from rows read consistently, and a
call is judged by the very offer that it was made on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mesh.control.bindings import read_bindings
from mesh.records.agent import Agent
from mesh.records.install import AgentStatus
from mesh.records.tool import ToolBinding
from mesh.storage.table import Table
from mesh.tools.contract import Definition


class Absence(StrEnum):
    """Why a tool is not offered."""

    AGENT_PAUSED = "agent_paused"
    NOT_ENABLED = "not_enabled"
    """There is no binding: the tool came with a later release than the agent."""
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool, as one model call was shown it, and the versions that it rests on."""

    definition: Definition
    agent_version: int
    binding_version: int


@dataclass(frozen=True, slots=True)
class Offering:
    """What stands for every tool that there is."""

    offers: Mapping[str, Offer]
    absent: Mapping[str, Absence]
    bindings: Mapping[str, ToolBinding]


def offering_of(table: Table, agent: Agent, definitions: Mapping[str, Definition]) -> Offering:
    """What `agent`, as it was read, may be offered now. Raises Failed."""
    bindings = read_bindings(table, agent.agent_id)
    offers: dict[str, Offer] = {}
    absent: dict[str, Absence] = {}
    for name, definition in definitions.items():
        binding = bindings.get(name)
        if agent.status is not AgentStatus.ACTIVE:
            absent[name] = Absence.AGENT_PAUSED
        elif binding is None:
            absent[name] = Absence.NOT_ENABLED
        elif not binding.enabled:
            absent[name] = Absence.DISABLED
        else:
            offers[name] = Offer(definition, agent.version, binding.version)
    return Offering(offers, absent, bindings)
