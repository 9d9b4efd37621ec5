"""Owns the changes of an agent's tool bindings, each with its version and its audit row.

Refuses to know what a tool does, and to change a binding that somebody else changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

from mesh.control.agents import not_found, version_conflict
from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.bindings import read_bindings
from mesh.control.rows import item_of, record_of
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed
from mesh.records.agent import Agent
from mesh.records.tool import ToolBinding
from mesh.storage import keys
from mesh.storage.table import Cancelled, Table, Why
from mesh.storage.writes import check, put


class ToolBindings:
    """Changes bindings."""

    def __init__(self, table: Table, clock: Clock, audit: AuditTrail) -> None:
        self._table = table
        self._clock = clock
        self._audit = audit

    def of(self, agent_id: str) -> Mapping[str, ToolBinding]:
        """An agent's bindings by the tool's name. Raises Failed."""
        return read_bindings(self._table, agent_id)

    def put(
        self, agent: Agent, name: str, *, enabled: bool, version: int, cause: Cause
    ) -> ToolBinding:
        """Lets the agent use the tool, or not, from the next admission on. `version` is the one
        that was read, 0 where there is no row yet.

        Raises Conflict `version_conflict`, Refused `not_found` when the agent is gone, Failed.
        """
        key = keys.tool(agent.agent_id, name)
        binding = ToolBinding(
            name=name, enabled=enabled, version=version + 1, updated_at=self._clock.now_ms()
        )
        if version == 0:
            write = put(key, item_of(binding), "attribute_not_exists(#pk)")
        else:
            write = put(key, item_of(binding), "#version = :version", version=version)
        deed = Deed(
            action="tool.put",
            target=f"{agent.slug}/tools/{name}",
            agent_id=agent.agent_id,
            version_before=version or None,
            version_after=version + 1,
        )
        alive = check(keys.agent(agent.agent_id), "attribute_exists(#pk)")
        try:
            self._audit.commit([alive, write], cause, deed)
        except Cancelled as cancelled:
            if all(reason.why is not Why.CONDITION for reason in cancelled.reasons):
                raise Failed("unavailable", "the rows are contended; try again") from None
            if cancelled.reasons[0].why is Why.CONDITION:
                raise not_found() from None
            stands = self._table.get(key)
            raise version_conflict(
                0 if stands is None else record_of(stands, ToolBinding).version
            ) from None
        return binding
