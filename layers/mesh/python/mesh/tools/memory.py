"""Owns what a run is shown of its agent's notes.

Refuses another install's notes, unless an operator moved them to where every run sees them.
"""

from __future__ import annotations

from mesh.control.rows import record_of
from mesh.kernel.limits import NOTES_SHOWN_MAX
from mesh.records.note import Note
from mesh.storage import keys
from mesh.storage.table import Table


def shown_to(table: Table, agent_id: str, install_id: str) -> tuple[Note, ...]:
    """The notes that runs of the install see, its own first, by name; of two of one name its own,
    which is the one that a run can write. Raises Failed."""
    found: dict[str, Note] = {}
    for place in (install_id, keys.EVERYWHERE):
        page = table.query(keys.notes(agent_id, place), prefix=keys.NOTE, limit=NOTES_SHOWN_MAX)
        for note in (record_of(item, Note) for item in page.items):
            found.setdefault(note.name, note)
    return tuple(found.values())[:NOTES_SHOWN_MAX]
