"""Owns the routes of the outbox: what was sent, what waits, what died, and an operator's way with
it.

Refuses to show a body, and to touch an entry whose attempt is in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mesh.control.agents import not_found
from mesh.control.audit import Deed
from mesh.control.rows import record_of
from mesh.kernel.clock import rfc3339
from mesh.kernel.errors import Conflict
from mesh.kernel.ids import is_minted, story_of
from mesh.kernel.limits import LIST_ROWS_PER_REQUEST
from mesh.operator.agents import agent_of
from mesh.operator.entries import standing, walk_outbox
from mesh.operator.outbox_orders import ORDERS, check_address
from mesh.operator.route import Answer, Call, Needs, Route
from mesh.operator.shapes.base import Listing, Nothing
from mesh.operator.shapes.happened import (
    AttemptList,
    AttemptShown,
    EntryList,
    EntryShown,
    OutboxListing,
)
from mesh.operator.stories import is_forgotten
from mesh.outbox.entries import Entries, discard_write, replay_write
from mesh.records.agent import Agent
from mesh.records.outbox import Attempt, Entry, EntryState
from mesh.records.run import Story
from mesh.storage import keys
from mesh.storage.happened import Place
from mesh.storage.table import Cancelled


@dataclass(frozen=True, slots=True)
class Told:
    """An entry and the story that it is the reply of."""

    story: Story
    entry: Entry


def story_by_id(call: Call, minted: str, prefixes: tuple[str, ...]) -> Story:
    """The story that an id leads to. Raises `not_found`, the same where it is not the caller's."""
    if not is_minted(minted) or not minted.startswith(prefixes):
        raise not_found()
    item = call.plane.deps.table.get(keys.story(story_of(minted)))
    story = None if item is None else record_of(item, Story)
    if story is None or not call.principal.reaches(story.agent_id) or is_forgotten(call, story):
        raise not_found()
    return story


def entries(call: Call) -> Entries:
    """The reader of entries and attempts."""
    deps = call.plane.deps
    return Entries(deps.table, deps.clock, deps.ids)


def entry_of(call: Call) -> Told:
    """The entry of the path's `out_…` id. Raises `not_found`."""
    story = story_by_id(call, call.path["id"], ("out_",))
    entry = entries(call).find(story)
    if entry is None:
        raise not_found()
    return Told(story, entry)


def _list(call: Call, agent: Agent, query: OutboxListing) -> Answer:
    told = call.place(query.cursor)
    place = None if told is None else Place(int(told[0]), str(told[1]))
    walk = walk_outbox(call.plane, agent, place, None)
    items: list[EntryShown] = []
    further: Place | None = None
    stopped = False
    for number, each in enumerate(standing(call.plane, walk)):
        if len(items) == query.limit or number == LIST_ROWS_PER_REQUEST:
            stopped = True
            break
        further = each.place
        if query.status not in (None, each.entry.state):
            continue
        if query.install_id not in (None, each.entry.install_id):
            continue
        items.append(shown(each.entry, each.conversation_id, None))
    end = further if stopped else walk.place
    cursor = call.cursor(None if end is None else [end.day, end.before])
    return Answer(EntryList(items=items, next_cursor=cursor))


def _get(call: Call, told: Told, _: Nothing) -> Answer:
    return Answer(_one(call, told))


def _attempts(call: Call, told: Told, query: Listing) -> Answer:
    place = call.place(query.cursor)
    after = 0 if place is None else int(place[0])
    found = [attempt_shown(each) for each in entries(call).attempts(told.entry)]
    if told.entry.open is not None:
        found.append(_open_shown(told.entry))
    rest = [each for each in found if each.number > after]
    items = rest[: query.limit]
    cursor = call.cursor([items[-1].number] if len(rest) > query.limit else None)
    return Answer(AttemptList(items=items, next_cursor=cursor))


def _replay(call: Call, told: Told, _: Nothing) -> Answer:
    check_address(call.plane.installs.whole(told.entry.install_id).install)
    if call.plane.deps.table.get(_words(told)) is None:
        raise Conflict("state_conflict", "the reply's words were deleted; there is nothing to send")
    now = call.plane.deps.clock.now_ms()
    write = replay_write(told.story.conversation_id, told.entry, now)
    call.plane.audit.commit([write], call.cause, _deed("outbox.replay", told.entry))
    call.plane.deps.bell.delivery(told.story.conversation_id, replay=told.story.story)
    return Answer(_one(call, told), 202)


def _discard(call: Call, told: Told, _: Nothing) -> Answer:
    conversation_id = told.story.conversation_id
    write = discard_write(conversation_id, told.entry, call.plane.deps.clock.now_ms())
    try:
        call.plane.audit.commit([write], call.cause, _deed("outbox.discard", told.entry))
    except Cancelled:
        raise Conflict(
            "state_conflict", "an attempt is in flight, or the entry is done; look at it again"
        ) from None
    call.plane.deps.bell.delivery(conversation_id)
    return Answer(_one(call, Told(told.story, entries(call).find(told.story) or told.entry)))


def _words(told: Told) -> keys.Key:
    """Where what an entry sends is kept, which may be for a shorter time than the entry."""
    return keys.message(told.story.conversation_id, told.entry.reply_order)


def _deed(action: str, entry: Entry) -> Deed:
    return Deed(action=action, target=entry.outbound_id, agent_id=entry.agent_id)


def _one(call: Call, told: Told) -> EntryShown:
    row = call.plane.deps.table.get(keys.replay(told.story.story))
    return shown(told.entry, told.story.conversation_id, row is not None)


def shown(entry: Entry, conversation_id: str, replay: bool | None) -> EntryShown:
    """An entry as it is shown."""
    waits = entry.state is EntryState.PENDING and entry.open is None
    return EntryShown(
        outbound_id=entry.outbound_id,
        install_id=entry.install_id,
        conversation_id=conversation_id,
        run_id=f"run_{entry.story}",
        sequence=entry.sequence,
        status=entry.state,
        reason=entry.state_reason,
        created_at=rfc3339(entry.created_at),
        attempts=entry.attempts,
        next_attempt_at=rfc3339(entry.due_time) if waits else None,
        last_attempt=attempt_shown(entry.recent[-1]) if entry.recent else None,
        replay_requested=replay,
    )


def attempt_shown(attempt: Attempt) -> AttemptShown:
    """A closed attempt as it is shown."""
    return AttemptShown(
        number=attempt.number,
        at=rfc3339(attempt.at),
        ended_at=rfc3339(attempt.ended_at),
        end=attempt.end,
        http_status=attempt.http_status,
        detail=attempt.detail,
        probe=attempt.probe,
        replay=attempt.replay,
    )


def _open_shown(entry: Entry) -> AttemptShown:
    assert entry.open is not None, "only an open attempt is shown as one"
    return AttemptShown(
        number=entry.open.number,
        at=rfc3339(entry.open.at),
        ended_at=None,
        end=None,
        http_status=None,
        detail=None,
        probe=entry.open.probe,
        replay=entry.open.replay,
    )


_ONE: Final = "/api/outbox/{id}"

ROUTES: Final = (
    Route(
        method="GET",
        path="/api/agents/{slug}/outbox",
        operation="listOutbox",
        summary="An agent's outbox, newest first",
        needs=Needs.VIEWER,
        find=agent_of,
        takes=OutboxListing,
        act=_list,
        answers=EntryList,
    ),
    Route(
        method="GET",
        path=_ONE,
        operation="getEntry",
        summary="One entry",
        needs=Needs.VIEWER,
        find=entry_of,
        takes=Nothing,
        act=_get,
        answers=EntryShown,
    ),
    Route(
        method="GET",
        path=f"{_ONE}/attempts",
        operation="listAttempts",
        summary="The attempts to deliver an entry, oldest first",
        needs=Needs.VIEWER,
        find=entry_of,
        takes=Listing,
        act=_attempts,
        answers=AttemptList,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/replay",
        operation="replayEntry",
        summary="Send an entry that ended once more, beside the order",
        needs=Needs.OPERATOR,
        find=entry_of,
        takes=Nothing,
        act=_replay,
        answers=EntryShown,
        status=202,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/discard",
        operation="discardEntry",
        summary="Give up an entry that waits, so that the next can go",
        needs=Needs.OPERATOR,
        find=entry_of,
        takes=Nothing,
        act=_discard,
        answers=EntryShown,
    ),
    *ORDERS,
)
