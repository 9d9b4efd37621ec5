"""The perspective: which conversations there are, and what the agent heard and said in each."""

from __future__ import annotations

import re

from mesh.storage import keys
from tests.contract.test_operator_api import TIME, Instance
from tests.fakes.egress import answer
from tests.fakes.operators import error_of


def test_conversations_are_listed_once_each_those_that_began_last_first() -> None:
    instance = Instance()
    made, other = instance.install(), instance.install()
    for number, room in enumerate(("a", "b", "c", "a")):
        instance.system.clock.forward(1)
        instance.system.say(made, "hello", f"m-{number}", conversation_key=room)
    instance.system.say(other, "hello", "m-0", conversation_key="a")
    instance.system.clock.forward(24 * 3600)
    instance.system.say(made, "hello", "m-9", conversation_key="d")
    instance.system.clock.forward(4)
    found = instance.viewer.every("/api/agents/bob/conversations")
    assert [each["conversation_key"] for each in found] == ["d", "a", "c", "b", "a"]
    of_one = instance.viewer.every(f"/api/agents/bob/conversations?install_id={made.install_id}")
    assert [each["conversation_key"] for each in of_one] == ["d", "c", "b", "a"]
    first = of_one[-1]
    assert first["conversation_id"] == keys.conversation_id(made.install_id, "a")
    assert (first["waiting"], first["kind"]) == (2, "generic")
    assert TIME.match(first["created_at"])
    assert first["created_at"] < first["last_at"]
    assert instance.admin.ok("GET", "/api/agents/ada/conversations")["items"] == []
    one = instance.viewer.ok("GET", f"/api/conversations/{first['conversation_id']}")
    assert one == first


def test_messages_are_told_newest_first_with_replies_and_what_was_only_observed() -> None:
    instance = Instance()
    made = instance.install(engagement={"deny_actors": ["u-13"]})
    group = {"topology": "group", "display_name": "Ümit"}
    heard = instance.system.say(made, "hello all", "m-1", **group).json()["id"]
    instance.system.say(made, "never kept", "m-2", actor_id="u-13")
    run_id = instance.answered(made, "m-3")
    path = f"/api/conversations/{keys.conversation_id(made.install_id, 'room-9')}/messages"
    reply, engaged, observed = instance.viewer.ok("GET", path)["items"]
    assert (reply["id"], reply["role"], reply["run_id"]) == (
        run_id.replace("run_", "out_"),
        "reply",
        run_id,
    )
    assert reply["body"] == instance.system.delivered()[-1]["body"]
    assert (reply["parent_id"], reply["observed"], reply["actor_id"]) == ("m-3", False, None)
    assert (engaged["id"], engaged["message_id"]) == (run_id.replace("run_", "msg_"), "m-3")
    assert (engaged["body"], engaged["observed"], engaged["run_id"]) == ("hello", False, run_id)
    assert (observed["id"], observed["body"], observed["observed"]) == (heard, "hello all", True)
    assert (observed["run_id"], observed["topology"]) == (None, "group")
    assert observed["display_name"] == "Ümit"


def test_messages_go_page_by_page_and_keep_their_place_while_more_comes() -> None:
    instance = Instance()
    made = instance.install()
    for number in range(3):
        instance.answered(made, f"m-{number}")
    path = f"/api/conversations/{keys.conversation_id(made.install_id, 'room-9')}/messages"
    assert len(instance.viewer.every(path)) == 6
    page = instance.viewer.ok("GET", f"{path}?limit=1")
    instance.answered(made, "m-3")
    rest = instance.viewer.ok("GET", f"{path}?limit=200&cursor={page['next_cursor']}")
    ids = [each["message_id"] or each["parent_id"] for each in (*page["items"], *rest["items"])]
    assert ids == ["m-2", "m-2", "m-1", "m-1", "m-0", "m-0"]
    assert rest["next_cursor"] is None
    assert instance.viewer("GET", f"{path}?limit=0").status == 422
    assert instance.admin("GET", f"{path}?cursor={page['next_cursor']}").status == 422


def test_more_than_one_read_holds_is_told_page_by_page() -> None:
    instance = Instance()
    made = instance.install(delivery_url=None)
    for number in range(20):
        instance.system.clock.forward(1)
        said = instance.system.say(made, "x" * 65_000, f"m-{number}", topology="group")
        assert said.status == 202
    path = f"/api/conversations/{keys.conversation_id(made.install_id, 'room-9')}/messages"
    page = instance.viewer.ok("GET", f"{path}?limit=200")
    assert 0 < len(page["items"]) < 20
    rest = instance.viewer.ok("GET", f"{path}?limit=200&cursor={page['next_cursor']}")
    ids = [each["message_id"] for each in (*page["items"], *rest["items"])]
    assert ids == [f"m-{number}" for number in reversed(range(20))]


def test_a_conversation_of_another_agent_is_not_there() -> None:
    instance = Instance()
    instance.system.receiver(answer(200))
    theirs = instance.install("ada")
    instance.answered(theirs)
    there = keys.conversation_id(theirs.install_id, "room-9")
    assert instance.admin("GET", f"/api/conversations/{there}").status == 200
    for rest in ("", "/messages"):
        bodies = set()
        for name in (there, "conv_" + "0" * 26, "conv_x", "run_" + "0" * 26):
            response = instance.viewer("GET", f"/api/conversations/{name}{rest}")
            assert (response.status, error_of(response)) == (404, "not_found")
            bodies.add(re.sub(r"req_\w+", "", response.body.decode()))
        assert len(bodies) == 1
