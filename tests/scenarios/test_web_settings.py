"""What an operator sets for the web, by the API, as the calls of runs meet it: at the next offer,
between an offer and its call, and while a call is under way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.models.contract import ModelAnswer, ModelRequest
from mesh.records.connection import Capability
from mesh.security.egress import Reply
from tests.fakes.egress import Call, answer
from tests.fakes.model import says
from tests.fakes.operators import Api, admin
from tests.fakes.web import PAGE, brave, provider_of
from tests.scenarios.test_web import Web, fetch, search

KEY = "canary-of-the-instance-0f3b"
OTHER = "canary-of-the-agent-77aa"
LIMITS = {"requests_per_minute": 60, "requests_per_run": 20}


class Set(Web):
    """A web whose connections an operator sets by the API."""

    def __init__(self, *lines: Any) -> None:
        super().__init__(*lines)
        self.api: Api = admin(self.system)

    def put(self, slug: str | None = None, capability: str = "search", **body: Any) -> Any:
        path = "/api" if slug is None else f"/api/agents/{slug}"
        path += f"/web-access/{capability}"
        settings = self.api.ok("GET", path)["settings"]
        version = 0 if settings is None else settings["version"]
        return self.api.ok("PUT", path, {"version": version} | body)

    def set(self, slug: str | None = None, capability: str = "search", **more: Any) -> Any:
        provider = {"search": "brave", "read": "firecrawl"}[capability]
        given = {"mode": "custom", "provider": provider, "limits": LIMITS, "api_key": KEY}
        return self.put(slug, capability, **(given | more))

    def off(self, slug: str | None = None, **more: Any) -> Any:
        return self.put(slug, mode="disabled", **more)

    def key_sent(self, number: int = -1) -> str:
        return self.sent[number].headers["x-subscription-token"]


@pytest.mark.behaviour("web:live", "web:inherit")
def test_what_is_set_within_a_run_is_offered_at_its_next_model_call() -> None:
    def sets(request: ModelRequest) -> ModelAnswer:
        web.set()
        return says("", search())  # not offered yet, so refused

    def turns_off(request: ModelRequest) -> ModelAnswer:
        web.off()
        return says("", search("b", "c-2"))

    web = Set(sets, says("", search("a", "c-1")), turns_off, says("done"))
    assert web.answer() == "done"
    assert [web.offered(n) for n in range(4)] == [set(), {"web_search"}, {"web_search"}, set()]
    assert [told.partition(":")[0] for told in (web.told()[0], web.told()[2])] == [
        "not_offered",
        "revoked",
    ]
    assert len(web.sent) == 1
    assert web.key_sent() == KEY


@pytest.mark.behaviour("enablement:query-exception", "enablement:no-undo-claim")
@pytest.mark.parametrize("slug", [None, "grace"])
@pytest.mark.parametrize("more", [{}, {"provider": "brave", "clear_key": True}])
def test_disabling_returns_while_a_call_is_under_way_and_gives_its_unit_not_back(
    slug: str | None, more: dict[str, Any]
) -> None:
    returned: list[bool] = []

    def provider(call: Call) -> Reply:
        """The request is at the provider: it will be answered, whatever is set meanwhile."""
        shown = web.off(slug, **more)
        returned.append(shown["available"])
        return brave((PAGE, "Late", "what came too late"))

    web = Set(says("", search()), says("sorry"))
    web.set(slug)
    web.answers = provider
    assert web.answer() == "sorry"
    assert returned == [False], "it returned before the call was over"
    (told,) = web.told()
    assert told.startswith("revoked:")
    assert "what came too late" not in json.dumps(web.steps())
    assert len(web.sent) == 1
    owner = "instance" if slug is None else web.agent.agent_id
    assert web.meters() == {"METER#search": 1, f"METER#{owner}#search": 1}


@pytest.mark.behaviour("web:override-stands")
def test_an_agents_key_that_is_not_taken_is_not_replaced_by_the_instances() -> None:
    web = Set(says("", search()), says("sorry"))
    web.set()
    web.set("grace", api_key=OTHER)
    web.answers = lambda call: answer(401)
    assert web.answer() == "sorry"
    assert web.told()[0].startswith("failed:")
    assert "authorization" in web.told()[0]
    assert [call.headers["x-subscription-token"] for call in web.sent] == [OTHER]
    assert web.api.ok("GET", "/api/agents/grace/web-access/search")["credential_source"] == "agent"


@pytest.mark.behaviour("secrets:by-provider-and-owner", "web:no-fallback")
def test_another_provider_is_never_sent_the_ones_key_and_back_again_its_own_counts() -> None:
    web = Set(*(each for n in range(3) for each in (says("", search("a", f"c-{n}")), says("done"))))
    found = json.dumps({"results": [{"title": "A", "url": PAGE, "snippet": "b"}], "id": "x"})
    web.answers = lambda call: (
        brave((PAGE, "A", "b")) if provider_of(call) == "brave" else answer(200, found.encode())
    )
    web.set()
    web.answer("one", "m-1")
    web.set(provider="perplexity", api_key=OTHER)
    web.answer("two", "m-2")
    web.put(mode="custom", provider="brave", limits=LIMITS)
    web.answer("three", "m-3")
    assert [provider_of(call) for call in web.sent] == ["brave", "perplexity", "brave"]
    first, second, third = (json.dumps(dict(call.headers)) for call in web.sent)
    assert KEY in first
    assert KEY in third
    assert OTHER in second
    assert KEY not in second
    assert OTHER not in first + third


@pytest.mark.behaviour("web:disabled-row")
def test_an_agent_that_opted_out_is_offered_nothing_when_the_instance_is_set_anew() -> None:
    web = Set(says("", search()), says("sorry"))
    web.off("grace")
    web.set()
    assert web.answer() == "sorry"
    assert web.offered() == set()
    assert web.sent == []


@pytest.mark.behaviour("meters:inherited-limit", "meters:lower-only")
def test_who_inherits_has_the_instances_limits_and_the_lesser_of_two_allowances() -> None:
    def many(request: ModelRequest) -> ModelAnswer:
        return says("", *(search(str(n), f"c-{n}") for n in range(4)))

    for own, instances, sent in ((None, 3, 3), (2, 3, 2), (3, 1, 1)):
        web = Set(many, says("done"))
        web.set()
        if own is not None:
            web.put("grace", mode="inherit", limits={"requests_per_run": own})
        web.set(limits=LIMITS | {"requests_per_run": instances})
        web.answer()
        assert len(web.sent) == sent
        assert [told.partition(":")[0] for told in web.told()].count("limited") == 4 - sent


@pytest.mark.behaviour("fetch:own-settings")
def test_reading_is_set_metered_and_turned_off_apart_from_searching() -> None:
    web = Set(
        says("", search("a", "c-1"), fetch(call_id="c-2"), fetch(call_id="c-3")), says("done")
    )
    web.set(capability="search")
    web.set(capability="read", api_key=OTHER, limits=LIMITS | {"requests_per_run": 1})
    web.answer()
    assert web.offered() == {"web_search", "web_fetch"}
    assert sorted(provider_of(call) for call in web.sent) == ["brave", "firecrawl"]
    assert web.meters() == {
        "METER#search": 1,
        "METER#read": 1,
        "METER#instance#search": 1,
        "METER#instance#read": 1,
    }
    web.put(capability="read", mode="disabled")
    shown = {
        each["capability"]: each["available"]
        for each in web.api.ok("GET", "/api/agents/grace/web-access")["capabilities"]
    }
    assert shown == {Capability.SEARCH: True, Capability.READ: False}
