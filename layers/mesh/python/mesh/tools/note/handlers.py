"""Owns the writing of notes: compare and set, within the install of the run.

Refuses to overwrite what the agent did not see, and to keep more than an install's share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mesh.control.rows import item_of, record_of
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed, Refused
from mesh.kernel.limits import NOTES_PER_INSTALL_MAX, TRANSACTION_TRIES
from mesh.records.note import Note
from mesh.storage import keys
from mesh.storage.keys import Key
from mesh.storage.table import Cancelled, Table, Why
from mesh.storage.writes import Write, delete, put, update
from mesh.tools.contract import Call, Handler, Observation, ObservationKind

HANDLERS: Final = ("write",)


def handlers(*, table: Table, clock: Clock) -> Mapping[str, Handler]:
    """The handlers, by the names that the manifest gives them."""
    return {"write": _Write(table, clock)}


class _Write:
    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    def __call__(self, arguments: Mapping[str, Any], call: Call) -> Observation:
        """Raises Refused with nothing written, Failed."""
        if call.install_id is None or call.conversation_id is None:
            raise Refused("no_install", "a note is made in a conversation of an install")
        name, text = str(arguments["name"]), str(arguments["text"]).strip()
        seen = int(arguments["version"])
        key, old = self._find(call.agent_id, call.install_id, name)
        if (old.version if old is not None else 0) != seen:
            return _changed(old)
        partition = keys.note_place(key)
        if text:
            now = self._clock.now_ms()
            note = Note(
                name=name,
                text=text,
                version=seen + 1,
                agent_id=call.agent_id,
                install_id=call.install_id if old is None else old.install_id,
                conversation_id=call.conversation_id,
                run_id=call.run_id,
                created_at=now if old is None else old.created_at,
                updated_at=now,
            )
            writes = [_put(key, note, old)]
            if old is None:
                writes.append(counted(call.agent_id, partition, 1))
            told = f"The note {name} is kept at version {seen + 1}."
        elif old is None:
            raise Refused("no_note", "there is no note of that name")
        else:
            writes = [
                delete(key, "#version = :seen", seen=seen),
                counted(call.agent_id, partition, -1),
            ]
            told = f"The note {name} is dropped."
        try:
            self._table.transact_settled(lambda: writes, TRANSACTION_TRIES)
        except Cancelled as cancelled:
            if all(reason.why is not Why.CONDITION for reason in cancelled.reasons):
                raise Failed("unavailable", "the notes are contended; try again") from None
            if cancelled.reasons[0].why is Why.CONDITION:
                return _changed(self._find(call.agent_id, call.install_id, name)[1])
            raise Refused(
                "too_many_notes",
                f"there are {NOTES_PER_INSTALL_MAX} notes here; drop one, or add to one",
            ) from None
        return Observation(kind=ObservationKind.RESULT, text=told)

    def _find(self, agent_id: str, install_id: str, name: str) -> tuple[Key, Note | None]:
        """The note of that name that a run of the install sees, and where it lies or would lie."""
        own, wide = (
            keys.note(agent_id, install_id, name),
            keys.note(agent_id, keys.EVERYWHERE, name),
        )
        found = self._table.get_many((own, wide))
        for key in (own, wide):
            if key in found:
                return key, record_of(found[key], Note)
        return own, None


def _put(key: Key, note: Note, old: Note | None) -> Write:
    if old is None:
        return put(key, item_of(note), "attribute_not_exists(#pk)")
    return put(key, item_of(note), "#version = :seen", seen=old.version)


def counted(agent_id: str, place: str, by: int) -> Write:
    """The count of a place's notes, as it moves with one of them; at most so many."""
    key = keys.note_count(agent_id, place)
    if by > 0:
        return update(
            key,
            "SET #n = if_not_exists(#n, :zero) + :one",
            "attribute_not_exists(#n) OR #n < :most",
            zero=0,
            one=1,
            most=NOTES_PER_INSTALL_MAX,
        )
    return update(key, "SET #n = #n - :one", "#n >= :one", one=1)


def _changed(stands: Note | None) -> Observation:
    """What the agent is told that acted on an outdated picture: how the note stands."""
    if stands is None:
        told = "Nothing was written: there is no such note now; version 0 makes one."
    else:
        told = (
            f"Nothing was written: the note is at version {stands.version} now, and reads:\n"
            f"{stands.text}"
        )
    return Observation(kind=ObservationKind.FAILED, text=told)
