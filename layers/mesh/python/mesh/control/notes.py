"""Owns the life of an agent's notes outside the runs that write them: how operators list, move and
drop them, and how they go with what they came from.

Refuses to move a text that the operator did not see, and to write a note's text anywhere but in its
own row: the audit trail knows its name alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from mesh.control.agents import not_found, version_conflict
from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.rows import item_of, record_of
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Conflict, Failed, Phase
from mesh.kernel.limits import NOTES_PER_INSTALL_MAX, TRANSACTION_TRIES
from mesh.records.agent import Agent
from mesh.records.note import Note
from mesh.storage import keys
from mesh.storage.table import Cancelled, Table, Why
from mesh.storage.writes import Write, check, delete, key_of, put, update

_SOURCE: Final = 0
_TARGET: Final = 1
_FULL: Final = 2


class Notes:
    """Lists, moves and drops notes. A place is an install's id, or `keys.EVERYWHERE`."""

    def __init__(self, table: Table, clock: Clock, audit: AuditTrail) -> None:
        self._table = table
        self._clock = clock
        self._audit = audit

    def page(
        self, agent_id: str, place: str, limit: int, after: str | None
    ) -> tuple[list[Note], str | None]:
        """Up to `limit` notes of a place by name, and the name after which the next page begins
        (None at the end). Raises Failed."""
        start = None if after is None else key_of(keys.note(agent_id, place, after))
        page = self._table.query(
            keys.notes(agent_id, place), prefix=keys.NOTE, limit=limit, after=start
        )
        found = [record_of(item, Note) for item in page.items]
        return found, found[-1].name if page.last is not None and found else None

    def find(self, agent_id: str, place: str, name: str) -> Note:
        """The note as it stands. Raises Refused `not_found`, Failed."""
        item = self._table.get(keys.note(agent_id, place, name))
        if item is None:
            raise not_found()
        return record_of(item, Note)

    def delete(self, agent: Agent, place: str, name: str, cause: Cause) -> None:
        """Drops the note, at whatever version it is. Raises Refused `not_found`, Failed."""
        for _ in range(TRANSACTION_TRIES):
            note = self.find(agent.agent_id, place, name)
            deed = _deed("delete", agent, place, note, None)
            try:
                self._audit.commit(drop_writes(place, note), cause, deed)
            except Cancelled as cancelled:
                _raise_contended(cancelled)
                continue  # its agent wrote it meanwhile: what stands now is dropped
            return
        raise Failed("unavailable", "the note is just being written; try again", Phase.BEFORE)

    def widen(self, agent: Agent, place: str, name: str, version: int, cause: Cause) -> Note:
        """Moves an install's note to where the runs of every install see it. Raises as `_move`."""
        note = self.find(agent.agent_id, place, name)
        if place == keys.EVERYWHERE:
            raise Conflict("state_conflict", "the note is seen everywhere already")
        deed = _deed("widen", agent, place, note, version + 1)
        return self._move(note, keys.EVERYWHERE, version, cause, deed)

    def narrow(self, agent: Agent, place: str, name: str, version: int, cause: Cause) -> Note:
        """Moves a note back to the install whose run made it. Raises as `_move`."""
        note = self.find(agent.agent_id, place, name)
        if place != keys.EVERYWHERE:
            raise Conflict("state_conflict", "the note is seen in its own install alone already")
        deed = _deed("narrow", agent, place, note, version + 1)
        return self._move(note, note.install_id, version, cause, deed)

    def _move(self, note: Note, to: str, version: int, cause: Cause, deed: Deed) -> Note:
        """Moves the note if it is still at `version`, which the operator read: a text that its
        agent wrote since is not let further by who did not see it.

        Raises Conflict (`version_conflict`; `already_exists` for its name; `state_conflict` where
        no more notes fit), Refused `not_found` where it is gone, or its install is, and Failed.
        """
        place = note.install_id if to == keys.EVERYWHERE else keys.EVERYWHERE
        if note.version != version:
            raise version_conflict(note.version)
        moved = replace(note, version=version + 1, updated_at=self._clock.now_ms())
        target = keys.note(note.agent_id, to, note.name)
        gone, one_less = drop_writes(place, note)
        writes = (  # in the order of what is told first
            gone,
            put(target, item_of(moved), "attribute_not_exists(#pk)"),
            counted(note.agent_id, to, 1),
            install_stands(note.agent_id, note.install_id),
            one_less,
        )
        try:
            self._audit.commit(writes, cause, deed)
        except Cancelled as cancelled:
            _raise_contended(cancelled)
            missed = [n for n, each in enumerate(cancelled.reasons) if each.why is Why.CONDITION]
            if missed[0] == _SOURCE:
                raise version_conflict(self.find(note.agent_id, place, note.name).version) from None
            if missed[0] == _TARGET:
                raise Conflict(
                    "already_exists", f"there is a note {note.name} in that place; drop one first"
                ) from None
            if missed[0] == _FULL:
                raise Conflict(
                    "state_conflict",
                    f"there are {NOTES_PER_INSTALL_MAX} notes in that place, as many as one holds",
                ) from None
            raise not_found() from None  # its install is being deleted, and it goes with it
        return moved


class NoteErasure:
    """Drops notes with what they came from. Holds nothing between two calls."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def of_conversation(
        self, agent_id: str, install_id: str, conversation_id: str, to: int
    ) -> None:
        """Drops the notes that runs of the conversation wrote, up to the order `to`. Raises
        Failed."""
        self._drop(
            agent_id,
            install_id,
            lambda note: any(
                origin.conversation_id == conversation_id and origin.order <= to
                for origin in note.origins
            ),
        )

    def of_runs(self, agent_id: str, install_id: str, run_ids: frozenset[str]) -> None:
        """Drops the notes that the runs wrote. Raises Failed."""
        self._drop(
            agent_id,
            install_id,
            lambda note: any(origin.run_id in run_ids for origin in note.origins),
        )

    def of_install(self, agent_id: str, install_id: str) -> None:
        """Drops the notes that runs of the install made, wherever they are seen. Raises Failed."""
        self._drop(agent_id, install_id, lambda note: note.install_id == install_id)

    def _drop(self, agent_id: str, install_id: str, goes: Callable[[Note], bool]) -> None:
        """Drops what `goes`, looking again until nothing is left of it.

        The install's own are looked at before and after those of every install: an operator may
        move one the other way meanwhile.
        """
        for _ in range(TRANSACTION_TRIES):
            left = False
            for place in (install_id, keys.EVERYWHERE, install_id):
                page = self._table.query(
                    keys.notes(agent_id, place), prefix=keys.NOTE, limit=NOTES_PER_INSTALL_MAX
                )
                for note in (record_of(item, Note) for item in page.items):
                    if goes(note):
                        left = True
                        self._dropped(place, note)
            if not left:
                return
        raise Failed("unavailable", "the notes are contended; try again", Phase.BEFORE)

    def _dropped(self, place: str, note: Note) -> None:
        try:
            self._table.transact_settled(lambda: drop_writes(place, note), TRANSACTION_TRIES)
        except Cancelled as cancelled:
            _raise_contended(cancelled)  # else it is otherwise by now, and is looked at again


def drop_writes(place: str, note: Note) -> list[Write]:
    """The writes that drop a note as it was read."""
    return [
        delete(keys.note(note.agent_id, place, note.name), "#version = :seen", seen=note.version),
        counted(note.agent_id, place, -1),
    ]


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


def install_stands(agent_id: str, install_id: str) -> Write:
    """The check that an install, and its agent, was not deleted: from its deletion on no note of it
    is written or moved, so that what erases them finds all."""
    return check(keys.agent_install(agent_id, install_id), "attribute_exists(#pk)")


def _deed(act: str, agent: Agent, place: str, note: Note, after: int | None) -> Deed:
    where = "everywhere" if place == keys.EVERYWHERE else place
    return Deed(
        action=f"note.{act}",
        target=f"{agent.slug}/notes/{where}/{note.name}",
        agent_id=agent.agent_id,
        version_before=note.version,
        version_after=after,
    )


def _raise_contended(cancelled: Cancelled) -> None:
    if all(reason.why is not Why.CONDITION for reason in cancelled.reasons):
        raise Failed("unavailable", "the notes are contended; try again") from None
