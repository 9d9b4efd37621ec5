"""Owns the writing of notes: compare and set, within the install of the run.

Refuses to overwrite what the agent did not see, to keep more than an install's share, and to write
for a run that is over: what erases words finds every note, or the note is not made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mesh.control.notes import counted, drop_writes, install_stands
from mesh.control.rows import item_of, record_of
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed, Refused
from mesh.kernel.limits import NOTE_ORIGINS_MAX, NOTES_PER_INSTALL_MAX, TRANSACTION_TRIES
from mesh.records.note import Note, Origin
from mesh.storage import keys
from mesh.storage.keys import Key
from mesh.storage.table import Cancelled, Table, Why
from mesh.storage.writes import Write, check, put
from mesh.tools.contract import Call, Handler, Observation, ObservationKind, Parts

HANDLERS: Final = ("write",)


def handlers(parts: Parts) -> Mapping[str, Handler]:
    """The handlers, by the names that the manifest gives them."""
    return {"write": _Write(parts.table, parts.clock)}


class _Write:
    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    def __call__(self, arguments: Mapping[str, Any], call: Call) -> Observation:
        """Raises Refused with nothing written, Failed."""
        if call.install_id is None or call.conversation_id is None or call.order is None:
            raise Refused("no_install", "a note is made in a conversation of an install")
        name, text = str(arguments["name"]), str(arguments["text"]).strip()
        seen = int(arguments["version"])
        place, old = self._find(call.agent_id, call.install_id, name)
        if (old.version if old is not None else 0) != seen:
            return _changed(old)
        origin = Origin(conversation_id=call.conversation_id, run_id=call.run_id, order=call.order)
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
                origins=(origin, *(old.origins if old is not None else ()))[:NOTE_ORIGINS_MAX],
            )
            writes = _put(keys.note(call.agent_id, place, name), note, old, place)
            told = f"The note {name} is kept at version {seen + 1}."
        elif old is None:
            raise Refused("no_note", "there is no note of that name")
        else:
            writes = drop_writes(place, old)
            told = f"The note {name} is dropped."
        return self._written(writes, call, origin, name, told)

    def _written(
        self, writes: Sequence[Write], call: Call, origin: Origin, name: str, told: str
    ) -> Observation:
        """Applies the writes for a run that is not over, in an install that stands."""
        assert call.install_id is not None, "it was looked at"
        stands = (
            check(
                keys.pending(origin.conversation_id, origin.order),
                "#story = :story",
                story=call.run_id.removeprefix("run_"),
            ),
            install_stands(call.agent_id, call.install_id),
        )
        everything = (*stands, *writes)
        try:
            self._table.transact_settled(lambda: everything, TRANSACTION_TRIES)
        except Cancelled as cancelled:
            missed = [n for n, each in enumerate(cancelled.reasons) if each.why is Why.CONDITION]
            if not missed:
                raise Failed("unavailable", "the notes are contended; try again") from None
            if missed[0] < len(stands):
                raise Refused(
                    "run_over", "this run is over, or what it is for was deleted"
                ) from None
            if missed[0] == len(stands):
                return _changed(self._find(call.agent_id, call.install_id, name)[1])
            raise Refused(
                "too_many_notes",
                f"there are {NOTES_PER_INSTALL_MAX} notes here; drop one, or add to one",
            ) from None
        return Observation(kind=ObservationKind.RESULT, text=told)

    def _find(self, agent_id: str, install_id: str, name: str) -> tuple[str, Note | None]:
        """The note of that name that a run of the install sees, and the place where it lies or
        would lie."""
        places = (install_id, keys.EVERYWHERE)
        found = self._table.get_many(keys.note(agent_id, place, name) for place in places)
        for place in places:
            item = found.get(keys.note(agent_id, place, name))
            if item is not None:
                return place, record_of(item, Note)
        return install_id, None


def _put(key: Key, note: Note, old: Note | None, place: str) -> list[Write]:
    if old is not None:
        return [put(key, item_of(note), "#version = :seen", seen=old.version)]
    return [
        put(key, item_of(note), "attribute_not_exists(#pk)"),
        counted(note.agent_id, place, 1),
    ]


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
