"""Owns the context of a turn: the agent's perspective of the conversation, up to the message it
answers.

Refuses what lies behind that message, which waits for a run of its own, what was deleted, and what
was refused at the gate, which was never stored. Reads are bounded by a window, whatever the
history.
"""

from __future__ import annotations

import json

import msgspec

from mesh.kernel.limits import CONTEXT_BYTES_MAX, CONTEXT_MESSAGES_MAX
from mesh.models.contract import Line, Speaker
from mesh.records.conversation import Conversation, Heard, Pending, Role
from mesh.storage import keys
from mesh.storage.table import Table


def read_context(table: Table, conversation: Conversation, pending: Pending) -> tuple[Line, ...]:
    """The newest messages that fit the window, oldest first; the last is the message to answer.

    Empty where that one is not kept any more: a run may wait for longer. Raises Failed.
    """
    here = conversation.conversation_id
    page = table.query(
        keys.conversation(here),
        between=(
            keys.message(here, conversation.forget_to + 1).sk,
            keys.message(here, pending.order).sk,
        ),
        limit=CONTEXT_MESSAGES_MAX,
        forward=False,
    )
    heard = [msgspec.convert(item, Heard) for item in page.items]
    if not heard or heard[0].order != pending.order:
        return ()
    lines: list[Line] = []
    used = 0
    for each in heard:
        line = _line(each)
        used += len(line.text.encode())
        if lines and used > CONTEXT_BYTES_MAX:
            break
        lines.append(line)
    return tuple(reversed(lines))


def _line(heard: Heard) -> Line:
    match heard.role:
        case Role.REPLY:
            said = json.loads(heard.sent or b"{}")
            return Line(Speaker.AGENT, "", str(said.get("body", "")))
        case Role.UTTERANCE:
            return Line(
                Speaker.ACTOR,
                heard.display_name or heard.actor_id or "",
                heard.body or "",
                observed=heard.verdict == "observe",
            )
