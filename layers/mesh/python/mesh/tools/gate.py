"""Owns the gate before each call of a tool: one check under the writer's own conditions before it,
a look each second while it runs, and a second check behind it.

Refuses a call on an offer that does not stand any more, and a result that raced a revocation. No
person approves single calls: the binding and the account's permissions decide (seed 000, "Design
guardrails"), and every verdict is a row of the run's ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mesh.kernel.clock import Clock
from mesh.kernel.errors import Conflict, Failed, Refused
from mesh.records.install import AgentStatus
from mesh.storage import keys
from mesh.storage.table import Table
from mesh.storage.writes import Write, check
from mesh.tools import packages
from mesh.tools.contract import Call, Definition, Handler, Observation, ObservationKind
from mesh.tools.offers import Offer


class Gate:
    """Admits and makes calls. One per function; holds no state between calls."""

    def __init__(
        self,
        table: Table,
        definitions: Mapping[str, Definition],
        handlers: Mapping[str, Handler],
    ) -> None:
        self._table = table
        self.definitions = definitions
        self.handlers = handlers

    def conditions(self, agent_id: str, offer: Offer) -> list[Write]:
        """What must hold for a call on `offer`: the first of the writes that admit it, in the one
        transaction that reserves its place in the ledger."""
        return [
            check(
                keys.agent(agent_id),
                "#version = :version AND #status = :active",
                version=offer.agent_version,
                active=AgentStatus.ACTIVE.value,
            ),
            check(
                keys.tool(agent_id, offer.definition.name),
                "#version = :version AND #enabled = :yes",
                version=offer.binding_version,
                yes=True,
            ),
        ]

    def stands(self, agent_id: str, offer: Offer) -> bool:
        """Whether what the offer rests on is as it was, read consistently. Raises Failed."""
        agent, tool = keys.agent(agent_id), keys.tool(agent_id, offer.definition.name)
        rows = self._table.get_many((agent, tool))
        if agent not in rows or tool not in rows:
            return False
        return (
            rows[agent]["version"] == offer.agent_version
            and rows[agent]["status"] == AgentStatus.ACTIVE
            and rows[tool]["version"] == offer.binding_version
            and bool(rows[tool]["enabled"])
        )

    def make(self, offer: Offer, arguments: Mapping[str, Any], call: Call) -> Observation:
        """Makes an admitted call. A refusal and a failure of the tool's own are observations.

        Raises Failed (`unavailable`) where Mesh's own table is unreachable: that is the run's
        failure, and not the tool's.
        """
        try:
            return self.handlers[offer.definition.name](arguments, call)
        except (Refused, Conflict) as error:
            return Observation(kind=ObservationKind.FAILED, text=f"{error.code}: {error.message}")
        except Failed as failed:
            if failed.code == "unavailable":
                raise
            return Observation(kind=ObservationKind.FAILED, text=f"{failed.code}: {failed.message}")


def gate_of(table: Table, clock: Clock) -> Gate:
    """The gate over every package that ships."""
    definitions: dict[str, Definition] = {}
    handlers: dict[str, Handler] = {}
    for name in packages.names():
        package = packages.load(name)
        made = package.make(table=table, clock=clock)
        for definition in package.definitions:
            definitions[definition.name] = definition
            handlers[definition.name] = made[package.handler_of[definition.name]]
    return Gate(table, definitions, handlers)
