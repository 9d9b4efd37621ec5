"""Owns the search of the agent's perspective, within the install of the run's conversation.

Refuses another install's words, whatever the query says: every conversation is judged by its own
row. And it refuses to read without bound: so many conversations, so many messages, newest first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from mesh.kernel.clock import Clock, rfc3339
from mesh.kernel.errors import Refused
from mesh.kernel.limits import (
    SEARCH_ACTIVE_MAX,
    SEARCH_CONVERSATIONS_MAX,
    SEARCH_EXCERPT_CHARACTERS,
    SEARCH_LIMIT_DEFAULT,
    SEARCH_MESSAGES_PER_CONVERSATION,
)
from mesh.records.conversation import Conversation, Heard, Role
from mesh.storage import keys
from mesh.storage.table import Table
from mesh.tools.contract import Call, Handler, Observation, ObservationKind, Parts

HANDLERS: Final = ("search",)


def handlers(parts: Parts) -> Mapping[str, Handler]:
    """The handlers, by the names that the manifest gives them."""
    return {"search": _Search(parts.table, parts.clock)}


class _Search:
    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    def __call__(self, arguments: Mapping[str, Any], call: Call) -> Observation:
        """Raises Refused where the run belongs to no install, Failed."""
        if call.install_id is None:
            raise Refused(
                "no_install",
                "name the install whose conversations are to be searched: --connector ID",
            )
        words = str(arguments["query"]).casefold().split()
        if not words:
            raise Refused("no_words", "the query has no word in it")
        limit = int(arguments.get("limit", SEARCH_LIMIT_DEFAULT))
        found: list[dict[str, object]] = []
        looked = 0
        oldest = self._clock.now_ms()
        for conversation in self._conversations(call):
            for heard in self._heard(conversation, call):
                looked, oldest = looked + 1, min(oldest, heard.at)
                text = _text_of(heard)
                if all(word in text.casefold() for word in words):
                    found.append(_quotation(conversation, heard, text, words))
                if len(found) == limit:
                    return _told(found, looked, oldest, call)
        return _told(found, looked, oldest, call)

    def _conversations(self, call: Call) -> Iterator[Conversation]:
        """The run's own conversation, then others of the same install, the newest first.

        Which there are is told by the rows that count an install's active conversations: a few
        reads, however long the agent has been there.
        """
        own = None
        if call.conversation_id is not None:
            own = self._own(call)
            if own is not None:
                yield own
        active = self._table.query(
            keys.caps(str(call.install_id)), prefix=keys.CONVERSATION, limit=SEARCH_ACTIVE_MAX
        )
        ids = (item["sk"].removeprefix(keys.CONVERSATION) for item in active.items)
        found = self._table.get_many(keys.order(conversation_id) for conversation_id in ids)
        others = (msgspec.convert(item, Conversation) for item in found.values())
        newest = sorted(
            (each for each in others if _is_theirs(each, call)), key=lambda each: -each.last_order
        )
        for each in newest[:SEARCH_CONVERSATIONS_MAX]:
            if own is None or each.conversation_id != own.conversation_id:
                yield each

    def _own(self, call: Call) -> Conversation | None:
        item = self._table.get(keys.order(str(call.conversation_id)))
        conversation = None if item is None else msgspec.convert(item, Conversation)
        return conversation if conversation is not None and _is_theirs(conversation, call) else None

    def _heard(self, conversation: Conversation, call: Call) -> Iterator[Heard]:
        """Messages of the perspective, newest first; of the run's own conversation none from the
        message on that the run answers."""
        own = conversation.conversation_id == call.conversation_id
        first = keys.message(conversation.conversation_id, conversation.forget_to + 1).sk
        last = keys.MSG + keys.AFTER_ALL
        if own and call.before is not None:
            last = keys.message(conversation.conversation_id, call.before - 1).sk
        page = self._table.query(
            keys.conversation(conversation.conversation_id),
            between=(first, last),
            limit=SEARCH_MESSAGES_PER_CONVERSATION,
            forward=False,
        )
        for item in page.items:
            yield msgspec.convert(item, Heard)


def _is_theirs(conversation: Conversation, call: Call) -> bool:
    """Whether it is this agent's, and came in by this install."""
    return (conversation.agent_id, conversation.install_id) == (call.agent_id, call.install_id)


def _text_of(heard: Heard) -> str:
    if heard.role is Role.UTTERANCE:
        return heard.body or ""
    return str(json.loads(heard.sent or b"{}").get("body", ""))


def _quotation(
    conversation: Conversation, heard: Heard, text: str, words: list[str]
) -> dict[str, object]:
    """A message as it is quoted: its words around the first match, and where they came from."""
    first = max(0, text.casefold().find(words[0]) - SEARCH_EXCERPT_CHARACTERS // 2)
    excerpt = text[first : first + SEARCH_EXCERPT_CHARACTERS]
    return {
        "said_by": "you" if heard.role is Role.REPLY else heard.display_name or heard.actor_id,
        "at": rfc3339(heard.at),
        "conversation_id": conversation.conversation_id,
        "message": f"msg_{heard.story}" if heard.role is Role.UTTERANCE else f"out_{heard.story}",
        "text": ("…" if first else "")
        + excerpt
        + ("…" if len(text) > first + len(excerpt) else ""),
    }


def _told(found: list[dict[str, object]], looked: int, oldest: int, call: Call) -> Observation:
    told = {
        "found": found,
        "looked_at": looked,
        "looked_back_to": rfc3339(oldest),
    }
    return Observation(
        kind=ObservationKind.RESULT,
        text=json.dumps(told, ensure_ascii=False),
        provenance={"origin": "conversations", "install_id": str(call.install_id)},
    )
