"""Owns what a run is shown of its agent's notes, and how an operator moves or drops one.

Refuses another install's notes, unless an operator moved them to where every run sees them.
"""

from __future__ import annotations

from mesh.control.rows import record_of
from mesh.kernel.limits import NOTES_SHOWN_MAX
from mesh.records.note import Note
from mesh.storage import keys
from mesh.storage.table import Table


def shown_to(table: Table, agent_id: str, install_id: str) -> tuple[Note, ...]:
    """The notes that runs of the install see, its own first, by name. Raises Failed."""
    found: list[Note] = []
    for place in (install_id, keys.EVERYWHERE):
        page = table.query(
            keys.notes(agent_id, place), prefix=keys.NOTE, limit=NOTES_SHOWN_MAX - len(found)
        )
        found += [record_of(item, Note) for item in page.items]
        if len(found) >= NOTES_SHOWN_MAX:
            break
    return tuple(found)
