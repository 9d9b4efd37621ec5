"""Owns the routes of conversations: which there are, what the agent heard and said in each, and how
what was said is deleted, of a conversation or of an actor.

Refuses to show what was deleted, however far its erasing is, and what the gate refused: it was
never kept.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from mesh.control.agents import not_found
from mesh.control.rows import record_of
from mesh.kernel.clock import rfc3339
from mesh.kernel.ids import ulid_ms
from mesh.kernel.limits import LIST_ROWS_PER_REQUEST
from mesh.operator.agents import agent_of
from mesh.operator.jobs import ordered
from mesh.operator.route import Answer, Call, Needs, Route
from mesh.operator.shapes.base import Listing, Nothing
from mesh.operator.shapes.conversations import (
    ConversationList,
    ConversationListing,
    ConversationShown,
    MessageList,
    MessageShown,
)
from mesh.operator.shapes.jobs import JobShown
from mesh.records.agent import Agent
from mesh.records.conversation import Conversation, Heard, Role
from mesh.records.message import BodyFormat, Topology
from mesh.storage import keys
from mesh.storage.happened import Place, Walk, in_batches

_ID: Final = re.compile(r"conv_[0-9A-HJKMNP-TV-Z]{26}\Z")
_ACTOR: Final = re.compile(r"act_[0-9A-HJKMNP-TV-Z]{26}\Z")


def conversation_of(call: Call) -> Conversation:
    """The conversation of the path's id. Raises `not_found`, the same where it is not the
    caller's."""
    conversation_id = call.path["id"]
    if _ID.match(conversation_id) is None:
        raise not_found()
    item = call.plane.deps.table.get(keys.order(conversation_id))
    conversation = None if item is None else record_of(item, Conversation)
    if (
        conversation is None
        or conversation.forgotten
        or not call.principal.reaches(conversation.agent_id)
    ):
        raise not_found()
    return conversation


def _agent_with_actor(call: Call) -> Agent:
    """The agent of an actor's path. Whether there is such an actor is not known without a walk."""
    agent = agent_of(call)
    if _ACTOR.match(call.path["id"]) is None:
        raise not_found()
    return agent


def _list(call: Call, agent: Agent, query: ConversationListing) -> Answer:
    told = call.place(query.cursor)
    walk = Walk(
        call.plane.deps.table,
        lambda at_ms: keys.conversations_lists(agent.agent_id, at_ms),
        newest_ms=call.plane.deps.clock.now_ms(),
        oldest_ms=agent.created_at,
        place=None if told is None else Place(int(told[0]), str(told[1])),
    )
    items: list[ConversationShown] = []
    further: Place | None = None
    stopped = False
    for number, (found, item) in enumerate(in_batches(call.plane.deps.table, iter(walk))):
        if len(items) == query.limit or number == LIST_ROWS_PER_REQUEST:
            stopped = True
            break
        further = found.place
        conversation = record_of(item, Conversation)
        if query.install_id in (None, conversation.install_id) and not conversation.forgotten:
            items.append(_shown(conversation))
    end = further if stopped else walk.place
    cursor = call.cursor(None if end is None else [end.day, end.before])
    return Answer(ConversationList(items=items, next_cursor=cursor))


def _get(call: Call, conversation: Conversation, _: Nothing) -> Answer:  # noqa: ARG001 - an act
    return Answer(_shown(conversation))


def _messages(call: Call, conversation: Conversation, query: Listing) -> Answer:
    place = call.place(query.cursor)
    here = conversation.conversation_id
    before = keys.MSG + keys.AFTER_ALL
    if place is not None:
        before = keys.message(here, int(place[0]) - 1).sk
    first = keys.message(here, conversation.forget_to + 1).sk
    if before < first:  # the place is older than what was deleted since
        return Answer(MessageList(items=[], next_cursor=None))
    page = call.plane.deps.table.query(
        keys.conversation(here), between=(first, before), forward=False, limit=query.limit + 1
    )
    heard = [record_of(item, Heard) for item in page.items]
    more = len(heard) > query.limit or (bool(heard) and page.last is not None)
    heard = heard[: query.limit]
    cursor = call.cursor([heard[-1].order] if more else None)
    return Answer(
        MessageList(items=[_message(conversation, each) for each in heard], next_cursor=cursor)
    )


def _delete(call: Call, conversation: Conversation, _: Nothing) -> Answer:
    return ordered(call, call.plane.deletions.conversation(conversation, call.cause))


def _delete_actor(call: Call, agent: Agent, _: Nothing) -> Answer:
    return ordered(call, call.plane.deletions.actor(agent, call.path["id"], call.cause))


def _shown(conversation: Conversation) -> ConversationShown:
    # One that is not listed began before conversations were.
    began = conversation.last_order // 1000
    if conversation.forget_to:  # it began anew
        began = conversation.forget_to // 1000
    elif conversation.list_sk is not None:
        began = ulid_ms(conversation.list_sk)
    return ConversationShown(
        conversation_id=conversation.conversation_id,
        install_id=conversation.install_id,
        kind=conversation.kind,
        conversation_key=conversation.conversation_key,
        created_at=rfc3339(began),
        last_at=rfc3339(conversation.last_order // 1000),
        waiting=conversation.pending,
    )


def _message(conversation: Conversation, heard: Heard) -> MessageShown:
    reply = heard.role is Role.REPLY
    said: dict[str, Any] = json.loads(heard.sent or b"{}") if reply else {}
    engaged = reply or heard.verdict == "engage"
    return MessageShown(
        id=f"{'out' if reply else 'msg'}_{heard.story}",
        role=heard.role,
        at=rfc3339(heard.at),
        observed=heard.verdict == "observe",
        run_id=f"run_{heard.story}" if engaged else None,
        message_id=heard.message_id,
        actor_id=heard.actor_id,
        actor=None
        if heard.actor_id is None
        else keys.actor_id(conversation.install_id, heard.actor_id),
        display_name=heard.display_name,
        body=str(said.get("body", "")) if reply else heard.body or "",
        body_format=BodyFormat(said.get("body_format") or heard.body_format or BodyFormat.MARKDOWN),
        topology=None if heard.topology is None else Topology(heard.topology),
        parent_id=str(said["in_reply_to"]) if said.get("in_reply_to") else heard.parent_id,
        sent_at=heard.sent_at,
        sources=list(heard.sources),
    )


_ONE: Final = "/api/conversations/{id}"

ROUTES: Final = (
    Route(
        method="GET",
        path="/api/agents/{slug}/conversations",
        operation="listConversations",
        summary="An agent's conversations, those that began last first",
        needs=Needs.VIEWER,
        find=agent_of,
        takes=ConversationListing,
        act=_list,
        answers=ConversationList,
    ),
    Route(
        method="GET",
        path=_ONE,
        operation="getConversation",
        summary="One conversation",
        needs=Needs.VIEWER,
        find=conversation_of,
        takes=Nothing,
        act=_get,
        answers=ConversationShown,
    ),
    Route(
        method="DELETE",
        path=_ONE,
        operation="deleteConversation",
        summary="Delete what was said in a conversation so far; what comes later is kept",
        needs=Needs.OPERATOR,
        find=conversation_of,
        takes=Nothing,
        act=_delete,
        answers=JobShown,
        status=202,
    ),
    Route(
        method="DELETE",
        path="/api/agents/{slug}/actors/{id}",
        operation="deleteActor",
        summary="Delete what an actor (act_…) said to the agent so far, and all that came of it",
        needs=Needs.OPERATOR,
        find=_agent_with_actor,
        takes=Nothing,
        act=_delete_actor,
        answers=JobShown,
        status=202,
    ),
    Route(
        method="GET",
        path=f"{_ONE}/messages",
        operation="listMessages",
        summary="What the agent heard and said in a conversation, newest first",
        needs=Needs.VIEWER,
        find=conversation_of,
        takes=Listing,
        act=_messages,
        answers=MessageList,
    ),
)
