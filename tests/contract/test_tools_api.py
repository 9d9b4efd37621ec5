"""An agent's tools through the operator API: what is offered and why not, and one call by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.operators import admin, error_of, minted
from tests.fakes.system import Made, System

TOOLS = "/api/agents/bob/tools"
NOTE = {"name": "hours", "text": "open from nine", "version": 0}


class Instance:
    """An instance with two agents, and tokens of each role that reach the first."""

    def __init__(self) -> None:
        self.system = System()
        self.admin = admin(self.system)
        self.admin.ok("POST", "/api/agents", {"slug": "bob"})
        self.operator = minted(self.admin, "operator", ["bob"])
        self.viewer = minted(self.admin, "viewer", ["bob"])

    def install(self, agent: str = "bob") -> Made:
        body = {"kind": "generic", "enable": True}
        made = self.admin.ok("POST", f"/api/agents/{agent}/connectors", body)
        return Made(made["install_id"], made["secret"])

    def tool(self, name: str) -> Any:
        items = self.viewer.ok("GET", TOOLS)["items"]
        return next(each for each in items if each["name"] == name)

    def actions(self) -> list[str]:
        return [row["action"] for row in self.admin.ok("GET", "/api/audit?limit=200")["items"]]


@pytest.fixture
def instance() -> Instance:
    return Instance()


def test_the_tools_that_ship_are_offered_from_the_first(instance: Instance) -> None:
    assert instance.tool("note") == {
        "name": "note",
        "class": "effect",
        "package": "note",
        "description": instance.tool("note")["description"],
        "enabled": True,
        "offered": True,
        "reason": None,
        "acting": "agent",
        "payer": None,
        "version": 1,
    }
    assert instance.tool("conversation_search")["class"] == "observe"


def test_a_tool_is_taken_away_and_given_back_by_versions(instance: Instance) -> None:
    api = instance.operator
    off = api.ok("PUT", f"{TOOLS}/note", {"enabled": False, "version": 1})
    assert (off["offered"], off["reason"], off["version"]) == (False, "disabled", 2)
    assert instance.tool("note") == off
    stale = api("PUT", f"{TOOLS}/note", {"enabled": True, "version": 1})
    assert (stale.status, error_of(stale)) == (409, "version_conflict")
    assert stale.json()["error"]["current_version"] == 2
    assert api.ok("PUT", f"{TOOLS}/note", {"enabled": True, "version": 2})["offered"]
    assert instance.actions().count("tool.put") == 2


def test_a_paused_agent_is_offered_nothing(instance: Instance) -> None:
    instance.operator.ok("POST", "/api/agents/bob/pause")
    assert {each["reason"] for each in instance.viewer.ok("GET", TOOLS)["items"]} == {
        "agent_paused"
    }


def test_a_probe_is_a_run_of_its_own_with_the_operator_as_its_cause(instance: Instance) -> None:
    made = instance.install()
    instance.system.say(made, "the gate code is on the door", "m-1")
    instance.system.settle()
    instance.system.clock.forward(10)  # longer than a list lags
    api = instance.operator
    body = {"arguments": {"query": "gate code"}, "install_id": made.install_id}
    probed = api.ok("POST", f"{TOOLS}/conversation_search/probe", body)
    assert probed["observation_kind"] == "result"
    found = json.loads(probed["text"])["found"]
    assert "the gate code is on the door" in [each["text"] for each in found]
    assert probed["provenance"] == {"origin": "conversations", "install_id": made.install_id}
    run = api.ok("GET", f"/api/runs/{probed['run_id']}")
    assert (run["status"], run["reason"]) == ("completed", "probe")
    (step,) = run["steps"]
    assert (step["tool"], step["status"]) == ("conversation_search", "completed")
    assert step["observation_kind"] == "result"
    events = api.ok("GET", f"/api/explain/{probed['run_id']}")["events"]
    who = api.ok("GET", "/api/whoami")["id"]
    assert who in events[0]["text"]
    assert any("the gate let it pass" in event["text"] for event in events)
    assert instance.actions()[0] == "tool.probe"
    kept = [row for row in instance.system.rows("STEP#") if row.get("tool") is not None]
    assert "gate code is on" not in json.dumps(kept), "what was said is kept where it was said"


def test_a_probe_that_is_refused_changes_nothing(instance: Instance) -> None:
    api, made = instance.operator, instance.install()
    path = f"{TOOLS}/note/probe"
    rows = instance.system.rows("STEP#")
    wrong = api("POST", path, {"arguments": {"name": "hours"}, "install_id": made.install_id})
    assert (wrong.status, error_of(wrong)) == (422, "invalid_request")
    assert "is missing" in json.dumps(wrong.json())
    api.ok("PUT", f"{TOOLS}/note", {"enabled": False, "version": 1})
    off = api("POST", path, {"arguments": NOTE, "install_id": made.install_id})
    assert (off.status, error_of(off)) == (409, "state_conflict")
    assert instance.system.rows("STEP#") == rows
    assert "tool.probe" not in instance.actions()


def test_a_probe_is_not_made_in_another_agents_place(instance: Instance) -> None:
    instance.admin.ok("POST", "/api/agents", {"slug": "eve"})
    theirs = instance.install("eve")
    body = {"arguments": {"query": "x"}, "install_id": theirs.install_id}
    for api in (instance.operator, instance.admin):
        answer = api("POST", f"{TOOLS}/conversation_search/probe", body)
        assert (answer.status, error_of(answer)) == (404, "not_found")


def test_who_may_not_is_refused(instance: Instance) -> None:
    assert instance.viewer("PUT", f"{TOOLS}/note", {"enabled": False, "version": 1}).status == 403
    assert instance.viewer("POST", f"{TOOLS}/note/probe", {"arguments": NOTE}).status == 403
    assert instance.operator("GET", "/api/agents/eve/tools").status == 404
    for name in ("nothing", "NOTE"):
        body = {"enabled": True, "version": 0}
        assert instance.operator("PUT", f"{TOOLS}/{name}", body).status == 404


@pytest.mark.behaviour("evidence:scope")
def test_a_search_finds_nothing_of_another_install(instance: Instance) -> None:
    one, other = instance.install(), instance.install()
    instance.system.say(one, "alpha in the first", "m-1")
    instance.system.say(other, "alpha in the other", "m-1")
    instance.system.settle()
    instance.system.clock.forward(10)
    for made, word, absent in ((one, "first", "other"), (other, "other", "first")):
        body = {"arguments": {"query": "alpha in", "limit": 20}, "install_id": made.install_id}
        text = instance.operator.ok("POST", f"{TOOLS}/conversation_search/probe", body)["text"]
        assert f"alpha in the {word}" in text
        assert f"alpha in the {absent}" not in text


# ---- notes


def test_anothers_note_is_not_there_whoever_asks(instance: Instance) -> None:
    instance.admin.ok("POST", "/api/agents", {"slug": "eve"})
    theirs, ours = instance.install("eve"), instance.install()
    path, own = instance.system.make_note(theirs), instance.system.make_note(ours)
    query = f"?install_id={theirs.install_id}"
    for api in (instance.operator, instance.admin):
        assert api("GET", f"/api/agents/bob/notes{query}").status == 404
        assert api("DELETE", f"/api/agents/bob/notes/{path}").status == 404
        for way in ("widen", "narrow"):
            answer = api("POST", f"/api/agents/bob/notes/{path}/{way}", {"version": 1})
            assert (answer.status, error_of(answer)) == (404, "not_found")
    assert instance.operator("GET", f"/api/agents/eve/notes{query}").status == 404
    assert instance.operator("DELETE", f"/api/agents/eve/notes/{path}").status == 404
    assert len(instance.system.rows("NOTE#")) == 2
    assert instance.operator("DELETE", f"/api/agents/bob/notes/{own}").status == 204


def test_a_viewer_reads_notes_and_changes_none(instance: Instance) -> None:
    made = instance.install()
    path = f"/api/agents/bob/notes/{instance.system.make_note(made)}"
    (shown,) = instance.viewer.ok("GET", f"/api/agents/bob/notes?install_id={made.install_id}")[
        "items"
    ]
    assert (shown["name"], shown["text"], shown["everywhere"]) == ("hours", "open from nine", False)
    assert instance.viewer("DELETE", path).status == 403
    assert instance.viewer("POST", f"{path}/widen", {"version": 1}).status == 403
    for body in ({}, {"version": "1"}, {"version": -1}, {"version": 1, "text": "x"}):
        assert instance.operator("POST", f"{path}/widen", body).status == 422
    for place in ("*", "EVERYWHERE", "ins_x", made.install_id.lower()):
        assert instance.operator("DELETE", f"/api/agents/bob/notes/{place}/hours").status == 404
    bad = instance.viewer("GET", "/api/agents/bob/notes?install_id=*")
    assert (bad.status, error_of(bad)) == (422, "invalid_request")


def test_a_search_costs_a_few_calls_however_long_the_agent_has_been_there(
    instance: Instance,
) -> None:
    made = instance.install()
    for number in range(12):
        instance.system.say(made, "alpha", f"m-{number}", conversation_key=f"room {number}")
    instance.system.settle()
    instance.system.clock.forward(25 * 86_400)
    body = {"arguments": {"query": "nothing like it"}, "install_id": made.install_id}
    with instance.system.aws.recording() as calls:
        probed = instance.operator.ok("POST", f"{TOOLS}/conversation_search/probe", body)
    assert json.loads(probed["text"])["looked_at"] == 24, "twelve messages and their replies"
    assert len(calls) <= 12 + 14


def test_a_search_for_no_word_is_told_as_such(instance: Instance) -> None:
    body = {"arguments": {"query": "  "}, "install_id": instance.install().install_id}
    probed = instance.operator.ok("POST", f"{TOOLS}/conversation_search/probe", body)
    assert probed["observation_kind"] == "failed"
    assert "no word" in probed["text"]
