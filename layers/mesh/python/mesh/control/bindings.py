"""Owns the rows of an agent's tools: which it may use, and since which change.

Refuses to know what a tool does. A binding's version is what an offer rests on: after any change
every earlier offer is void.
"""

from __future__ import annotations

from collections.abc import Iterable

from mesh.control.rows import item_of, record_of
from mesh.records.tool import ToolBinding
from mesh.storage import keys
from mesh.storage.table import Table
from mesh.storage.writes import Write, put


def enabled_writes(agent_id: str, names: Iterable[str], now_ms: int) -> list[Write]:
    """The bindings of a new agent, for the transaction that makes it: every tool that ships."""
    return [
        put(
            keys.tool(agent_id, name),
            item_of(ToolBinding(name=name, enabled=True, version=1, updated_at=now_ms)),
            "attribute_not_exists(#pk)",
        )
        for name in names
    ]


def read_bindings(table: Table, agent_id: str) -> dict[str, ToolBinding]:
    """An agent's bindings by the tool's name, read consistently. Raises Failed."""
    page = table.query(keys.agent(agent_id).pk, prefix=keys.TOOL)
    bindings = (record_of(item, ToolBinding) for item in page.items)
    return {binding.name: binding for binding in bindings}
