"""A probe of a web tool is admitted, counted, watched and told as any other call, and waits no
longer than the gateway does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from infra import topology
from infra.local.gateway import Response
from mesh.engine.watch import LOOK_EVERY_S, InlineWatch, OutOfTime
from mesh.kernel.limits import (
    AWS_ATTEMPTS,
    AWS_CONNECT_S,
    AWS_READ_S,
    PROBE_S,
    PROVIDER_READ_S,
)
from mesh.records.agent import Agent
from mesh.records.connection import Capability
from mesh.security.egress import Reply
from tests.fakes.egress import Call
from tests.fakes.operators import admin, error_of
from tests.fakes.web import PAGE, usual
from tests.scenarios.test_web import CHANGES, Web

GATEWAY_S = 29


def probe(web: Web, agent: Agent, tool: str = "web_search", **arguments: Any) -> Response:
    path = f"/api/agents/{agent.slug}/tools/{tool}/probe"
    return admin(web.system)("POST", path, {"arguments": arguments})


def test_a_probe_is_admitted_counted_and_told_like_any_other_call() -> None:
    web = Web().connect(per_minute=1)
    web.system.clock.forward(60 - web.system.clock.now_ms() / 1000 % 60)
    probed = probe(web, web.agent, query="a").json()
    assert probed["observation_kind"] == "result"
    assert (probed["payer"], probed["acting"]) == ("instance/brave", "nobody")
    assert probed["sources"] == [PAGE]
    assert web.meters() == {"METER#search": 1, "METER#instance#search": 1}
    refused = probe(web, web.agent, query="b")
    assert (refused.status, error_of(refused)) == (429, "rate_limited")
    assert 0 < int(refused.header("retry-after") or 0) <= 60
    assert f"begins in {refused.header('retry-after')} s" in refused.json()["error"]["message"]
    assert len(web.sent) == 1


def test_a_probe_that_the_tool_has_something_against_is_refused_before_it_is_admitted() -> None:
    web = Web().connect()
    refused = probe(web, web.agent, query="a" * 401)
    assert refused.status == 422
    assert web.sent == []
    assert web.meters() == {}


def test_a_probe_that_takes_too_long_is_told_before_the_gateway_gives_up() -> None:
    web = Web().connect(capability=Capability.READ)

    def slowly(call: Call) -> Reply:
        web.system.clock.forward(PROBE_S + 1)
        return usual(call)

    web.answers = slowly
    response = probe(web, web.agent, "web_fetch", url=PAGE)
    probed = response.json()
    assert (response.status, probed["observation_kind"]) == (200, "failed")
    assert "What it says" not in probed["text"]
    for told in ("was admitted", "22 s", "not waited for", "it was counted", "not made again"):
        assert told in probed["text"]
    assert (probed["sources"], probed["payer"]) == ([PAGE], "instance/firecrawl")
    assert web.meters() == {"METER#read": 1, "METER#instance#read": 1}
    run = admin(web.system).ok("GET", f"/api/runs/{probed['run_id']}")
    assert (run["status"], run["reason"]) == ("failed", "failed")
    assert [step["status"] for step in run["steps"]] == ["failed"]
    assert len(web.sent) == 1


class _Impatient(InlineWatch):
    """Waits for no call, and says for how long it was asked to."""

    asked: list[float]

    def calls(self, works: Sequence[Callable[[], Any]], look: Any, within_s: float) -> list[Any]:
        self.asked.append(within_s)
        raise OutOfTime


def test_a_probe_of_an_effect_that_is_not_waited_for_is_uncertain() -> None:
    web = Web()
    web.system.stack._watch = impatient = _Impatient(web.system.clock)
    impatient.asked = []
    probed = probe(web, web.agent, "note", name="hours", text="nine", version=0).json()
    assert probed["observation_kind"] == "uncertain"
    assert "may have been done, or not" in probed["text"]
    run = admin(web.system).ok("GET", f"/api/runs/{probed['run_id']}")
    assert [step["status"] for step in run["steps"]] == ["uncertain"]
    assert all(0 < within_s <= PROBE_S for within_s in impatient.asked)


@pytest.mark.behaviour("offers:poll", "offers:withheld")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_during_a_probe_withholds_its_result(change: str) -> None:
    web = Web().connect()

    def meanwhile(call: Call) -> Reply:
        CHANGES[change](web)
        return usual(call)

    web.answers = meanwhile
    probed = probe(web, web.agent, query="a").json()
    assert probed["observation_kind"] == "revoked"
    assert "withheld" in probed["text"]
    assert web.meters()["METER#search"] == 1


def test_a_probe_is_answered_while_its_function_and_the_gateway_still_wait() -> None:
    function = topology.function("operator_tools")
    looks = LOOK_EVERY_S + AWS_ATTEMPTS * (AWS_CONNECT_S + AWS_READ_S)
    assert PROBE_S + looks + 2 < function.timeout_s <= GATEWAY_S
    assert PROVIDER_READ_S > PROBE_S, "else nobody need be told of it"
