"""Owns the context of a turn: the agent's perspective of the conversation, up to the message it
answers.

Refuses what lies behind that message, which waits for a run of its own, what was deleted, and what
was refused at the gate, which was never stored. Reads are bounded by a window, whatever the
history.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from itertools import dropwhile

import msgspec

from mesh.kernel.limits import CONTEXT_MESSAGES_MAX
from mesh.models import tokens
from mesh.records.conversation import Conversation, Heard, Pending, Role
from mesh.storage import keys
from mesh.storage.table import Table


class Speaker(StrEnum):
    """Whose words a line of context is."""

    ACTOR = "actor"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Line:
    """One message of the agent's perspective. `observed` ones were not addressed to the agent."""

    speaker: Speaker
    name: str
    text: str
    observed: bool = False
    message_id: str | None = None
    """The caller's id of it, or the `out_…` id of a reply: what an answer's `parent_id` names."""
    parent_id: str | None = None


def read_context(
    table: Table, conversation: Conversation, pending: Pending, tokens_max: int
) -> tuple[Line, ...]:
    """The newest messages that fit `tokens_max`, oldest first; the last is the newest to answer,
    which is there however long it is.

    Empty where none of those is kept any more: a run may wait for longer. Raises Failed.
    """
    here = conversation.conversation_id
    page = table.query(
        keys.conversation(here),
        between=(
            keys.message(here, conversation.forget_to + 1).sk,
            keys.message(here, pending.last_order).sk,
        ),
        limit=CONTEXT_MESSAGES_MAX,
        forward=False,
    )
    answered = {pending.order, *(merged.order for merged in pending.merged)}
    every = (msgspec.convert(item, Heard) for item in page.items)
    heard = dropwhile(lambda each: each.order not in answered, every)
    lines: list[Line] = []
    used = 0
    for each in heard:
        line = _line(each)
        used += tokens.of_text(line.text)
        if lines and used > tokens_max:
            break
        lines.append(line)
    return tuple(reversed(lines))


def _line(heard: Heard) -> Line:
    match heard.role:
        case Role.REPLY:
            said = json.loads(heard.sent or b"{}")
            return Line(
                Speaker.AGENT,
                "",
                str(said.get("body", "")),
                message_id=f"out_{heard.story}",
                parent_id=said.get("in_reply_to"),
            )
        case Role.UTTERANCE:
            return Line(
                Speaker.ACTOR,
                heard.display_name or heard.actor_id or "",
                heard.body or "",
                observed=heard.verdict == "observe",
                message_id=heard.message_id,
                parent_id=heard.parent_id,
            )
