"""Owns what the routes of an agent's notes do: listed by place, moved between an install and
everywhere, and dropped.

Refuses to change what a note says: that is its agent's, and an operator who wants it otherwise says
so in the instructions.
"""

from __future__ import annotations

import re
from typing import Final

from mesh.control.agents import not_found
from mesh.kernel.clock import rfc3339
from mesh.kernel.ids import is_install_id
from mesh.operator.agents import agent_of
from mesh.operator.route import Answer, Call, Needs, Route
from mesh.operator.shapes.base import Nothing
from mesh.operator.shapes.tools import NoteList, NoteListing, NoteMove, NoteShown
from mesh.records.agent import Agent
from mesh.records.note import Note
from mesh.storage import keys

_EVERYWHERE: Final = "everywhere"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}\Z")

Subject = tuple[Agent, str, str]
"""The path's agent, the place, and the note's name."""


def note_of(call: Call) -> Subject:
    """What the path names; the note itself is read by the act. Raises `not_found`."""
    agent, place, name = agent_of(call), call.path["place"], call.path["name"]
    if _NAME.match(name) is None:
        raise not_found()
    if place == _EVERYWHERE:
        place = keys.EVERYWHERE
    elif not is_install_id(place):
        raise not_found()
    call.plane.notes.find(agent.agent_id, place, name)
    return agent, place, name


def _list(call: Call, agent: Agent, query: NoteListing) -> Answer:
    place = keys.EVERYWHERE
    if query.install_id is not None:
        install = call.plane.installs.by_id(query.install_id)
        if install is None or install.agent_id != agent.agent_id:
            raise not_found()
        place = install.install_id
    after = call.place(query.cursor)
    notes, last = call.plane.notes.page(
        agent.agent_id, place, query.limit, None if after is None else str(after[0])
    )
    cursor = call.cursor(None if last is None else [last])
    return Answer(NoteList(items=[_shown(note, place) for note in notes], next_cursor=cursor))


def _delete(call: Call, subject: Subject, _: Nothing) -> Answer:
    call.plane.notes.delete(*subject, call.cause)
    return Answer(None, 204)


def _widen(call: Call, subject: Subject, body: NoteMove) -> Answer:
    note = call.plane.notes.widen(*subject, body.version, call.cause)
    return Answer(_shown(note, keys.EVERYWHERE))


def _narrow(call: Call, subject: Subject, body: NoteMove) -> Answer:
    note = call.plane.notes.narrow(*subject, body.version, call.cause)
    return Answer(_shown(note, note.install_id))


def _shown(note: Note, place: str) -> NoteShown:
    return NoteShown(
        name=note.name,
        text=note.text,
        version=note.version,
        install_id=note.install_id,
        everywhere=place == keys.EVERYWHERE,
        conversation_id=note.conversation_id,
        run_id=note.run_id,
        created_at=rfc3339(note.created_at),
        updated_at=rfc3339(note.updated_at),
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/agents/{slug}/notes",
        operation="listNotes",
        summary="What an agent keeps in mind: in one install, or in every one",
        needs=Needs.VIEWER,
        find=agent_of,
        takes=NoteListing,
        act=_list,
        answers=NoteList,
    ),
    Route(
        method="DELETE",
        path="/api/agents/{slug}/notes/{place}/{name}",
        operation="deleteNote",
        summary="Drop a note of an agent",
        needs=Needs.OPERATOR,
        find=note_of,
        takes=Nothing,
        act=_delete,
        answers=None,
        status=204,
    ),
    Route(
        method="POST",
        path="/api/agents/{slug}/notes/{place}/{name}/widen",
        operation="widenNote",
        summary="Let the runs of every install see a note",
        needs=Needs.OPERATOR,
        find=note_of,
        takes=NoteMove,
        act=_widen,
        answers=NoteShown,
    ),
    Route(
        method="POST",
        path="/api/agents/{slug}/notes/{place}/{name}/narrow",
        operation="narrowNote",
        summary="Let only the runs of the install that made a note see it again",
        needs=Needs.OPERATOR,
        find=note_of,
        takes=NoteMove,
        act=_narrow,
        answers=NoteShown,
    ),
)
