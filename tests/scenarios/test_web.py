"""An agent searches and reads by its connections: offered as they stand, admitted once, counted
before the request leaves, and never by a key that is not its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from mesh.engine.watch import InlineWatch
from mesh.kernel.errors import Failed
from mesh.kernel.limits import (
    FRAME_BYTES_MAX,
)
from mesh.models.contract import ModelAnswer, ModelRequest, ToolUse
from mesh.records.connection import Capability
from mesh.security.egress import Reply
from mesh.storage import keys
from mesh.storage.writes import delete, update
from mesh.tools.web import handlers
from tests.fakes.egress import Call, answer
from tests.fakes.model import results_of, says, use
from tests.fakes.operators import admin
from tests.fakes.web import KEY, PAGE, Connections, brave, provider_of, usual
from tests.scenarios.test_tools import Scene

OTHER_KEY = "k-of-the-agent-canary-0123456789abc"
"""How long API Gateway waits for a function's answer."""
RUN_AGAIN_WITHIN_S = 15 * 60
Meanwhile = Callable[["Web"], None]


def search(query: str = "opening hours", call_id: str = "c-1", **more: Any) -> ToolUse:
    return use("web_search", call_id, query=query, **more)


def fetch(url: str = PAGE, call_id: str = "c-2", **more: Any) -> ToolUse:
    return use("web_fetch", call_id, url=url, **more)


class Web(Scene):
    """One agent, whose providers answer as all is well unless a test says otherwise."""

    def __init__(self, *lines: Any) -> None:
        super().__init__(*lines)
        self.system.egress.otherwise = self._provider
        self.connections = Connections(
            self.system.table, self.system.control.wrapper, self.system.random
        )
        self.answers: Callable[[Call], Reply] = usual
        self.sent: list[Call] = []

    def _provider(self, call: Call) -> Reply:
        self.sent.append(call)
        return self.answers(call)

    def connect(
        self,
        owner: str = "instance",
        capability: Capability = Capability.SEARCH,
        **more: Any,
    ) -> Web:
        with self.system.aws.without_faults():
            self.connections.connect(owner, capability, **more)
        return self

    def offered(self, asked: int = 0) -> set[str]:
        """The tools of the web that the model was shown."""
        tools = {tool.name for tool in self.model.asked[asked].tools}
        return tools & {"web_search", "web_fetch"}

    def told(self) -> list[str]:
        """What the model was told of its calls, in order."""
        return results_of(self.model.asked[-1])

    def calls(self) -> list[dict[str, Any]]:
        return [step for step in self.steps() if step["kind"] == "tool"]

    def meters(self) -> dict[str, int]:
        """What was counted: of a run by capability, of a minute by owner and capability."""
        found: dict[str, int] = {}
        for row in self.system.rows("METER"):
            of = row["sk"] if row["sk"] != "METER" else row["pk"].rpartition("#")[0]
            found[of] = found.get(of, 0) + row["calls"]
        return found


def queries(web: Web) -> list[str]:
    return [httpx.URL(call.url).params["q"] for call in web.sent if provider_of(call) == "brave"]


# ---- what comes of it


@pytest.mark.behaviour("evidence:identified", "offers:dynamic-grants", "admission:reservation-id")
def test_what_a_search_found_reaches_the_model_the_story_and_the_reply() -> None:
    web = Web(says("", search()), says("nine")).connect()
    assert web.answer() == "nine"
    assert web.offered() == {"web_search"}
    assert queries(web) == ["opening hours"]
    (told,) = web.told()
    for label in ('capability="search"', 'provider="brave"', 'credential="instance"'):
        assert label in told
    assert PAGE in told
    (step,) = web.calls()
    assert (step["status"], step["replay"], step["acting"]) == ("completed", "metered", "nobody")
    assert step["payer"] == "instance/brave"
    assert step["provenance"] == {
        "capability": "search",
        "provider": "brave",
        "credential": "instance",
    }
    assert step["sources"] == [PAGE]
    assert step["call_id"].startswith("cal_")
    (reply,) = [row for row in web.system.rows("MSG#") if row["role"] == "reply"]
    assert reply["sources"] == [{"tool": "web_search", **step["provenance"], "url": PAGE}]
    assert web.meters() == {"METER#search": 1, "METER#instance#search": 1}


def test_a_page_is_read_for_the_run_and_its_address_is_evidence() -> None:
    web = Web(says("", fetch()), says("read")).connect(capability=Capability.READ)
    assert web.answer() == "read"
    assert web.offered() == {"web_fetch"}
    (step,) = web.calls()
    assert step["sources"] == [PAGE]
    assert "What it says" in web.told()[0]
    assert web.meters() == {"METER#read": 1, "METER#instance#read": 1}


@pytest.mark.behaviour("fetch:observation-30kib")
def test_the_frame_around_an_observation_stays_small() -> None:
    web = Web(says("", fetch()), says("read")).connect(capability=Capability.READ)
    web.answer()
    (told,) = web.told()
    first, *_, last = told.splitlines()
    assert len(f"{first}\n\n{last}".encode()) <= FRAME_BYTES_MAX


@pytest.mark.behaviour("evidence:provenance")
def test_an_operator_reads_in_the_story_by_what_and_on_what_a_call_was_made() -> None:
    web = Web(says("", search()), says("nine")).connect()
    web.answer()
    api = admin(web.system)
    (run_row,) = web.system.rows("STORY")
    run_id = f"run_{run_row['story']}"
    events = api.ok("GET", f"/api/explain/{run_id}")["events"]
    (told,) = [event for event in events if event["sources"]]
    assert told["sources"] == [PAGE]
    for words in ("version 1 of the instance's connection", "provider brave", "instance/brave"):
        assert words in told["text"]
    steps = api.ok("GET", f"/api/runs/{run_id}")["steps"]
    (step,) = [step for step in steps if step["tool"] == "web_search"]
    assert (step["connection_version"], step["key_version"]) == (1, 1)
    assert step["sources"] == [PAGE]
    assert KEY not in json.dumps([events, steps])


# ---- who is offered it


@pytest.mark.behaviour("web:inherit", "offers:disabled-absent")
@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda web: None, "web_access_not_configured"),
        (
            lambda web: web.connect().connections.disable("instance"),
            "web_access_disabled_for_instance",
        ),
        (
            lambda web: web.connect().connections.disable(web.agent.agent_id),
            "web_access_disabled",
        ),
        (
            lambda web: web.connect().connections.lose_key("instance", "brave"),
            "web_access_without_credential",
        ),
        (
            lambda web: web.connect().connect(web.agent.agent_id, key=None),
            "web_access_without_credential",
        ),
    ],
)
def test_a_tool_without_a_grant_is_not_offered_and_its_list_says_why(
    made: Meanwhile, reason: str
) -> None:
    web = Web(says("", search()), says("sorry"))
    made(web)
    assert web.answer() == "sorry"
    assert web.offered() == set()
    assert web.told()[0].startswith("not_offered:")
    assert web.sent == []
    tools = admin(web.system).ok("GET", "/api/agents/grace/tools")["items"]
    (tool,) = [tool for tool in tools if tool["name"] == "web_search"]
    assert (tool["offered"], tool["reason"], tool["payer"]) == (False, reason, None)


def test_an_agent_from_before_the_web_is_offered_it_without_a_row_of_its_own() -> None:
    web = Web(says("", search()), says("nine")).connect()
    web.system.table.write(delete(keys.tool(web.agent.agent_id, "web_search")))
    assert web.answer() == "nine"
    assert web.calls()[0]["status"] == "completed"


@pytest.mark.behaviour("web:live")
def test_what_the_instance_sets_is_live_at_the_next_model_call_of_a_run() -> None:
    def connects(request: ModelRequest) -> ModelAnswer:
        web.connect()
        return says("", use("note", "c-0", name="a", text="b", version=0))

    web = Web(connects, says("", search()), says("nine"))
    assert web.answer() == "nine"
    assert [web.offered(n) for n in range(2)] == [set(), {"web_search"}]


@pytest.mark.behaviour("web:override-stands")
def test_an_agents_own_connection_pays_with_its_own_key_and_counts_apart() -> None:
    web = Web(says("", search()), says("nine")).connect(per_minute=1, per_run=1)
    web.connect(web.agent.agent_id, key=OTHER_KEY)
    assert web.answer() == "nine"
    assert web.sent[0].headers["x-subscription-token"] == OTHER_KEY
    assert web.calls()[0]["payer"] == "agent/brave"
    assert web.meters() == {"METER#search": 1, f"METER#{web.agent.agent_id}#search": 1}


# ---- what it was offered on changes


def _off(web: Web, owner: str) -> None:
    web.connections.disable(owner)


def _on(web: Web, owner: str, **more: Any) -> None:
    web.connections.connect(owner, Capability.SEARCH, **more)


def _lower(web: Web) -> None:
    web.connections.inherit(web.agent.agent_id, per_run=1)


def _touch_agent(web: Web) -> None:
    key = keys.agent(web.agent.agent_id)
    web.system.table.write(update(key, "SET #version = #version + :one", one=1))


CHANGES: dict[str, Meanwhile] = {
    "disabled for the instance": lambda web: _off(web, "instance"),
    "turned off for the agent": lambda web: _off(web, web.agent.agent_id),
    "another key": lambda web: web.connections.rotate("instance", "brave", OTHER_KEY),
    "the key forgotten": lambda web: web.connections.lose_key("instance", "brave"),
    "another provider": lambda web: _on(web, "instance", provider="perplexity"),
    "another limit": lambda web: _on(web, "instance", key=None, per_run=19),
    "the agent's own connection": lambda web: _on(web, web.agent.agent_id),
    "the agent's own allowance": _lower,
    "the tool disabled": lambda web: web.disable("web_search"),
    "the agent changed": _touch_agent,
}


@pytest.mark.behaviour("offers:invalidated", "offers:fresh-configuration", "admission:free-before")
@pytest.mark.parametrize("change", CHANGES)
def test_a_call_on_an_offer_that_is_void_is_refused_sent_nowhere_and_costs_nothing(
    change: str,
) -> None:
    def meanwhile(request: ModelRequest) -> ModelAnswer:
        CHANGES[change](web)
        return says("", search())

    web = Web(meanwhile, says("sorry")).connect()
    assert web.answer() == "sorry"
    assert web.told()[0].startswith("revoked:")
    assert web.sent == []
    assert web.meters() == {}


@pytest.mark.behaviour("offers:poll", "admission:consumed")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_during_a_call_withholds_its_result_and_the_call_has_cost_its_unit(
    change: str,
) -> None:
    def provider(call: Call) -> Reply:
        with web.system.aws.without_faults():
            CHANGES[change](web)
        return brave((PAGE, "Secret", "what must not be told"))

    web = Web(says("", search()), says("sorry")).connect()
    web.answers = provider
    assert web.answer() == "sorry"
    (told,) = web.told()
    assert told.startswith("revoked:")
    assert "what must not be told" not in json.dumps(web.steps())
    assert len(web.sent) == 1
    assert web.meters() == {"METER#search": 1, "METER#instance#search": 1}


class _Late(InlineWatch):
    """Something happens behind the last look, before the result is judged."""

    happens: Callable[[], None] = staticmethod(lambda: None)

    def calls(self, works: Sequence[Callable[[], Any]], look: Any, within_s: float) -> list[Any]:
        came_to = super().calls(works, look, within_s)
        if not isinstance(came_to[0], ModelAnswer):
            self.happens()
        return came_to


@pytest.mark.behaviour("offers:withheld")
@pytest.mark.parametrize("change", CHANGES)
def test_a_result_that_raced_a_revocation_is_withheld_by_the_second_check(change: str) -> None:
    web = Web(says("", search()), says("sorry")).connect()
    web.system.stack._watch = late = _Late(web.system.clock)
    late.happens = lambda: CHANGES[change](web)
    assert web.answer() == "sorry"
    (told,) = web.told()
    assert told.startswith("revoked:")
    assert "withheld" in told
    assert "it was counted when it was admitted" in told
    assert "What it says" not in told
    assert web.calls()[0]["status"] == "refused"


# ---- failures of Mesh's own


@pytest.mark.behaviour("engine:execution-failures", "admission:no-retry-no-refund")
@pytest.mark.parametrize("later", [False, True])
def test_where_the_table_fails_the_call_does_and_nothing_is_made_up_or_sent_again(
    monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    opened = handlers.open_provider_key
    failures = [Failed("unavailable", "the table cannot be reached")]

    def unreachable(*of: Any) -> str | None:
        if later:
            opened(*of)
        if failures:
            raise failures.pop()
        return opened(*of)

    monkeypatch.setattr(handlers, "open_provider_key", unreachable)
    web = Web(says("", search()), says("sorry")).connect()
    web.say("hello")
    web.system.run(RUN_AGAIN_WITHIN_S)
    assert [reply["body"] for reply in web.replies()] == ["sorry"]
    (told,) = web.told()
    assert told.startswith("uncertain:")
    assert web.calls()[0]["status"] == "uncertain"
    assert web.sent == []
    assert web.meters() == {"METER#search": 1, "METER#instance#search": 1}


@pytest.mark.behaviour("engine:execution-failures", "admission:consumed")
def test_a_run_that_is_cancelled_during_a_call_gets_no_observation_and_the_call_has_cost() -> None:
    def provider(call: Call) -> Reply:
        (story,) = web.system.rows("STORY")
        with web.system.aws.without_faults():
            admin(web.system).ok("POST", f"/api/runs/run_{story['story']}/cancel")
        web.system.clock.forward(2)  # until the next look
        return usual(call)

    web = Web(says("", search()), says("never")).connect()
    web.answers = provider
    web.say("hello")
    web.system.settle()
    assert web.replies() == []
    assert len(web.model.asked) == 1
    assert "What it says" not in json.dumps(web.steps())
    assert web.meters() == {"METER#search": 1, "METER#instance#search": 1}


# ---- meters


@pytest.mark.behaviour("meters:per-run", "meters:exhausted", "admission:one-transaction")
def test_a_runs_allowance_ends_in_an_observation_and_the_run_goes_on() -> None:
    web = Web(
        says("", search("a", "c-1"), search("b", "c-2"), search("c", "c-3")),
        says("", use("note", "c-4", name="a", text="b", version=0)),
        says("done"),
    ).connect(per_run=2)
    assert web.answer() == "done"
    assert queries(web) == ["a", "b"]
    third = results_of(web.model.asked[1])[2]
    assert third.startswith("limited:")
    assert "2 searches for one run" in third
    assert web.notes() == {"a": "b"}
    assert web.meters() == {"METER#search": 2, "METER#instance#search": 2}
    assert [step["status"] for step in web.calls()] == [
        "completed",
        "completed",
        "refused",
        "completed",
    ]


@pytest.mark.behaviour("meters:per-minute", "meters:before-request", "meters:inherited-limit")
def test_a_minutes_limit_is_shared_by_all_who_inherit_and_ends_with_the_clocks_minute() -> None:
    web = Web(*([says("", search()), says("done")]) * 4).connect(per_minute=2)
    other = web.system.make_agent("linus", model=web.agent.model)
    theirs = web.system.make_install(agent=other, url="https://receiver.example/hook")
    web.system.clock.forward(60 - web.system.clock.now_ms() / 1000 % 60)
    web.say("one", "m-1")
    web.system.settle()
    web.say("two", "m-2", theirs)
    web.system.settle()
    web.say("three", "m-3")
    web.system.settle()
    (limited,) = web.told()
    assert limited.startswith("limited:")
    assert "2 searches that this connection may make in a minute" in limited
    assert len(web.sent) == 2
    web.system.clock.forward(60)
    web.say("four", "m-4", theirs)
    web.system.settle()
    assert len(web.sent) == 3


def test_a_change_of_settings_does_not_begin_a_minute_anew() -> None:
    web = Web(*([says("", search()), says("done")]) * 2).connect(per_minute=1)
    web.system.clock.forward(60 - web.system.clock.now_ms() / 1000 % 60)
    web.answer("one", "m-1")
    web.connect(per_minute=1)
    web.answer("two", "m-2")
    assert web.told()[0].startswith("limited:")
    assert len(web.sent) == 1


@pytest.mark.behaviour("meters:lower-only")
def test_an_agent_that_inherits_may_allow_itself_less_a_run() -> None:
    web = Web(says("", search("a", "c-1"), search("b", "c-2")), says("done")).connect(per_run=5)
    web.connections.inherit(web.agent.agent_id, per_run=1)
    web.answer()
    assert queries(web) == ["a"]
    assert web.told()[1].startswith("limited:")


@pytest.mark.parametrize(
    "wrong",
    [
        {"query": ""},
        {"query": " \t"},
        {"query": "é" * 1_001},
        {"query": "a" * 401},
        {"query": "a " * 51},
        {"query": "a", "limit": 11},
        {"query": "a", "filter": "news"},
    ],
)
@pytest.mark.behaviour("admission:validate-first")
def test_arguments_that_do_not_fit_cost_nothing_and_go_nowhere(wrong: dict[str, Any]) -> None:
    web = Web(says("", use("web_search", "c-1", **wrong)), says("sorry")).connect()
    web.answer()
    assert web.told()[0].startswith("invalid_arguments:")
    assert web.sent == []
    assert web.meters() == {}


@pytest.mark.behaviour("admission:no-retry-no-refund", "admission:attempts")
@pytest.mark.parametrize(
    "reply", [answer(500), answer(429, retry_after="7"), answer(422, b"{}"), answer(302)]
)
def test_a_providers_failure_is_told_counts_and_is_not_tried_again(reply: Reply) -> None:
    web = Web(says("", search()), says("sorry")).connect()
    web.answers = lambda _: reply
    assert web.answer() == "sorry"
    (told,) = web.told()
    assert told.startswith("failed:")
    assert len(web.sent) == 1
    assert web.meters() == {"METER#search": 1, "METER#instance#search": 1}
    (step,) = web.calls()
    assert step["provenance"]["provider"] == "brave"
