"""Owns offers: which tools a model is shown, on what each rests, and why others are not among them.

Refuses to keep one: offers are made anew for each model call, from rows read consistently, and a
call is judged by the very offer that it was made on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mesh.control.bindings import read_bindings
from mesh.control.connections import read_grants
from mesh.records.agent import Agent
from mesh.records.connection import Grant, Missing
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


Why = Absence | Missing


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool, as one model call was shown it, and the versions that it rests on."""

    definition: Definition
    agent_version: int
    binding_version: int
    grant: Grant | None = None
    """Of a tool of a capability: what it may be used by."""

    @property
    def payer(self) -> str | None:
        """Whose credential pays, and at whom, such as `instance/brave`; None where nobody does."""
        return None if self.grant is None else self.grant.payer


@dataclass(frozen=True, slots=True)
class Offering:
    """What stands for every tool that there is."""

    offers: Mapping[str, Offer]
    absent: Mapping[str, Why]
    bindings: Mapping[str, ToolBinding]


def offering_of(table: Table, agent: Agent, definitions: Mapping[str, Definition]) -> Offering:
    """What `agent`, as it was read, may be offered now. Raises Failed."""
    bindings = read_bindings(table, agent.agent_id)
    offers: dict[str, Offer] = {}
    absent: dict[str, Why] = {}
    asked = {
        name: definition.capability
        for name, definition in definitions.items()
        if definition.capability is not None and _absence(agent, definition, bindings) is None
    }
    granted = read_grants(table, agent.agent_id, asked.values()) if asked else {}
    for name, definition in definitions.items():
        binding, grant = bindings.get(name), None
        why: Why | None = _absence(agent, definition, bindings)
        if why is None and definition.capability is not None:
            found = granted[definition.capability]
            if isinstance(found, Missing):
                why = found
            else:
                grant = found
        if why is not None:
            absent[name] = why
        else:
            version = 0 if binding is None else binding.version
            offers[name] = Offer(definition, agent.version, version, grant)
    return Offering(offers, absent, bindings)


def _absence(
    agent: Agent, definition: Definition, bindings: Mapping[str, ToolBinding]
) -> Absence | None:
    """Why a tool is not offered that is granted what it needs. One of a capability needs no
    binding: its connection decides, and agents follow the instance's without a row."""
    binding = bindings.get(definition.name)
    if agent.status is not AgentStatus.ACTIVE:
        return Absence.AGENT_PAUSED
    if binding is None:
        return Absence.NOT_ENABLED if definition.capability is None else None
    return None if binding.enabled else Absence.DISABLED
