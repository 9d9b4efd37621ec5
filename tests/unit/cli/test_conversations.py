"""`mesh conversation …`: lists, and what was heard and said in one."""

from __future__ import annotations

import json
from typing import Any

from mesh.storage import keys
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


JOB: dict[str, Any] = {
    "job_id": "job_1",
    "kind": "conversation.delete",
    "target": "conv_1",
    "status": "running",
    "reason": None,
    "done": 0,
    "started_at": "2026-11-30T05:42:35.123Z",
    "ended_at": None,
}


def test_deleting_asks_first_and_tells_the_job(mesh: Line, api: Api) -> None:
    api.on("DELETE /api/conversations/conv_1", 202, JOB)
    assert mesh("conversation", "delete", "conv_1")[0] == 2, "nobody is there to be asked"
    assert api.requests == []
    code, out, _ = mesh("conversation", "delete", "conv_1", "--yes")
    assert code == 0
    assert "mesh job wait job_1" in out
    api.on("GET /api/jobs/job_1", 200, JOB | {"status": "done", "done": 7})
    code, out, _ = mesh("conversation", "delete", "conv_1", "--yes", "--wait", "--json")
    assert (code, json.loads(out)["done"]) == (0, 7)


def test_an_actor_is_named_as_its_caller_does_or_by_its_own_id(mesh: Line, api: Api) -> None:
    by_hash = keys.actor_id(INSTALL, "u-42")
    api.on(f"GET /api/connectors/{INSTALL}", 200, {"agent": "ada"})
    api.on(f"DELETE /api/agents/ada/actors/{by_hash}", 202, JOB)
    assert mesh("actor", "delete", "u-42", "--connector", INSTALL, "--yes")[0] == 0
    assert mesh("actor", "delete", by_hash, "--agent", "ada", "--yes")[0] == 0
    deleted = [each.url.path for each in api.requests if each.method == "DELETE"]
    assert deleted == [f"/api/agents/ada/actors/{by_hash}"] * 2
    assert mesh("actor", "delete", "u-42", "--yes")[0] == 2


def test_an_agent_and_a_connector_are_deleted_with_the_job_that_erases(
    mesh: Line, api: Api
) -> None:
    api.on("DELETE /api/agents/ada", 202, JOB | {"target": "ada"})
    code, out, _ = mesh("agent", "delete", "ada", "--yes", "--json")
    assert (code, json.loads(out)["target"]) == (0, "ada")
    api.on("DELETE /api/agents/bob", 409, {"error": {"code": "state_conflict", "message": "no"}})
    assert mesh("agent", "delete", "bob", "--yes")[0] == 1
    api.on(f"DELETE /api/connectors/{INSTALL}", 204, None, **{"X-Mesh-Job": "job_1"})
    code, out, _ = mesh("connector", "delete", INSTALL, "--yes")
    assert (code, "mesh job wait job_1" in out) == (0, True)
    api.on("GET /api/jobs/job_1", 200, JOB | {"status": "failed", "reason": "it cannot"})
    assert mesh("connector", "delete", INSTALL, "--yes", "--wait")[0] == 1
