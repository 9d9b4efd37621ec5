"""`mesh conversation …`: lists, and what was heard and said in one."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.cli.test_commands import INSTALL, Api, Line, api, mesh

__all__ = ["api", "mesh"]

CONVERSATION: dict[str, Any] = {
    "conversation_id": "conv_1",
    "install_id": INSTALL,
    "kind": "generic",
    "conversation_key": "room-9",
    "created_at": "2026-11-30T05:42:35.123Z",
    "last_at": "2026-11-30T06:42:35.123Z",
    "waiting": 1,
}
HEARD: dict[str, Any] = {
    "id": "msg_1",
    "role": "utterance",
    "at": "2026-11-30T05:42:35.123Z",
    "observed": True,
    "run_id": None,
    "message_id": "m-1",
    "actor_id": "u-42",
    "display_name": None,
    "body": "hello\x1b[31m\nall",
    "body_format": "markdown",
    "topology": "group",
    "parent_id": None,
    "sent_at": None,
}
REPLY = HEARD | {"id": "out_1", "role": "reply", "observed": False, "body": "hi", "actor_id": None}


def page(*items: Any) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": None}


def test_conversations_are_listed_of_one_agent_or_one_connector(mesh: Line, api: Api) -> None:
    api.on(f"GET /api/connectors/{INSTALL}", 200, {"agent": "ada"})
    api.on("GET /api/agents/ada/conversations", 200, page(CONVERSATION))
    code, out, _ = mesh("conversation", "list", "--connector", INSTALL)
    assert code == 0
    assert api.requests[-1].url.params["install_id"] == INSTALL
    assert "conv_1" in out
    assert "room-9" in out
    assert json.loads(mesh("conversation", "list", "--agent", "ada", "--jsonl")[1]) == CONVERSATION


def test_a_conversation_is_shown_with_what_was_only_observed_marked(mesh: Line, api: Api) -> None:
    api.on("GET /api/conversations/conv_1", 200, CONVERSATION)
    api.on("GET /api/conversations/conv_1/messages", 200, page(REPLY, HEARD))
    code, out, _ = mesh("conversation", "show", "conv_1", "--limit", "2")
    assert code == 0
    for text in ("room-9", "out_1", "the agent:", "u-42 (observed):", "hello\\x1b[31m"):
        assert text in out
    assert "\x1b" not in out
    assert json.loads(mesh("conversation", "show", "conv_1", "--json")[1])["items"] == [
        REPLY,
        HEARD,
    ]
