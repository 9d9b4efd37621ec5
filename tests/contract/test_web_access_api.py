"""Web access through the operator API: what an owner may set, what is told of it, and whose key it
is. What happens when changes meet, or die half-way, is
`test_web_access_changes.py`; what is refused by its form, `test_web_access_rules.py`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from mesh.records.connection import Capability, Grant
from mesh.storage import keys
from mesh.storage.writes import delete
from mesh.tools.web.catalogue import PROVIDERS
from tests.fakes.operators import Api, error_of
from tests.fakes.web_access import ACCOUNT, BASES, KEY, LIMITS, OTHER, WebInstance, kept


@pytest.fixture
def instance() -> WebInstance:
    return WebInstance()


# ---- what is told


@pytest.mark.behaviour("operator:web-get")
@pytest.mark.parametrize("base", BASES)
def test_before_anything_is_set_each_capability_tells_what_it_can_be_served_by(
    instance: WebInstance, base: str
) -> None:
    for capability in Capability:
        shown = instance.get(base, capability)
        assert {name: value for name, value in shown.items() if name != "providers"} == {
            "capability": capability.value,
            "settings": None,
            "effective_provider": None,
            "credential_source": None,
            "credential_present": False,
            "available": False,
            "reason": "web_access_not_configured",
            "effective_limits": None,
            "kept_keys": [],
        }
        names = [each["name"] for each in shown["providers"]]
        assert names == [n for n, each in PROVIDERS.items() if capability in each.capabilities]


@pytest.mark.behaviour("web:stated-boundary", "web:local-proof-limits")
def test_each_descriptor_states_what_its_provider_does_and_does_not_enforce(
    instance: WebInstance,
) -> None:
    shown = {
        each["name"]: each
        for capability in Capability
        for each in instance.get(capability=capability)["providers"]
    }
    assert shown.keys() == PROVIDERS.keys()
    for name, each in shown.items():
        assert each["restricts_hosts"] is False
        assert each["key_hint"]
        reads = Capability.READ in PROVIDERS[name].capabilities
        for told in (each["redirects"], each["subrequests"]):
            assert ("By the provider alone" in told) is reads
            assert ("pin no DNS answer" in told) is reads
            assert ("None: a search opens no page" in told) is not reads


@pytest.mark.behaviour("operator:web-get")
def test_settings_are_shown_as_a_put_takes_them(instance: WebInstance) -> None:
    for base, api in zip(BASES, (instance.admin, instance.operator), strict=True):
        shown = instance.connect(base)
        assert shown["settings"] == {
            "mode": "custom",
            "provider": "brave",
            "config": {},
            "limits": LIMITS,
            "version": 1,
        }
        again = api.ok("PUT", f"{base}/search", shown["settings"])
        assert again["settings"] == shown["settings"] | {"version": 2}


INSTANCES: dict[str, Callable[[WebInstance], object]] = {
    "nothing": lambda _: None,
    "connected": lambda instance: instance.connect(),
    "disabled with a provider": lambda instance: (
        instance.connect(),
        instance.put(mode="disabled", provider="brave"),
    ),
    "disabled": lambda instance: instance.put(mode="disabled"),
    "without its key": lambda instance: (
        instance.connect(),
        instance.system.table.write(delete(keys.provider_key("instance", "brave"))),
    ),
}
AGENTS: dict[str, Callable[[WebInstance], object]] = {
    "nothing": lambda _: None,
    "inherits": lambda instance: instance.put(BASES[1], mode="inherit"),
    "inherits with less": lambda instance: instance.put(
        BASES[1], mode="inherit", limits={"requests_per_run": 3}
    ),
    "its own": lambda instance: instance.connect(BASES[1], "perplexity", api_key=OTHER),
    "its own without a key": lambda instance: (
        instance.connect(BASES[1], "perplexity", api_key=OTHER),
        instance.system.table.write(delete(keys.provider_key(instance.agent_id, "perplexity"))),
    ),
    "disabled": lambda instance: instance.put(BASES[1], mode="disabled"),
    "its own disabled": lambda instance: (
        instance.connect(BASES[1], "perplexity", api_key=OTHER),
        instance.put(BASES[1], mode="disabled", provider="perplexity"),
    ),
}
OWN = {
    "its own": ("perplexity", "agent", True, None),
    "its own without a key": ("perplexity", "agent", False, "web_access_without_credential"),
    "disabled": (None, None, False, "web_access_disabled"),
    "its own disabled": (None, None, True, "web_access_disabled"),
}
SHARED = {
    "nothing": (None, None, False, "web_access_not_configured"),
    "connected": ("brave", "instance", True, None),
    "disabled with a provider": (None, None, True, "web_access_disabled_for_instance"),
    "disabled": (None, None, False, "web_access_disabled_for_instance"),
    "without its key": ("brave", "instance", False, "web_access_without_credential"),
}
TOLD = ("effective_provider", "credential_source", "credential_present", "reason")


@pytest.mark.behaviour(
    "operator:web-get", "web:inherit", "web:disabled-row", "web:override-stands", "web:live"
)
@pytest.mark.parametrize(("ours", "theirs"), list(itertools.product(INSTANCES, AGENTS)))
def test_what_an_operator_is_told_is_what_a_call_is_offered_on(
    instance: WebInstance, ours: str, theirs: str
) -> None:
    INSTANCES[ours](instance)
    AGENTS[theirs](instance)
    assert tuple(instance.get()[each] for each in TOLD) == SHARED[ours]

    shown = instance.get(BASES[1])
    told = tuple(shown[each] for each in TOLD)
    if theirs in OWN:
        assert told == OWN[theirs], "whatever the instance does"
    elif ours == "disabled with a provider":
        assert told == (None, None, False, SHARED[ours][-1]), (
            "the instance's key is not the agent's"
        )
    else:
        assert told == SHARED[ours]

    grant = instance.grant()
    tools = instance.viewer.ok("GET", "/api/agents/bob/tools")["items"]
    (tool,) = [each for each in tools if each["name"] == "web_search"]
    assert (tool["offered"], tool["reason"]) == (shown["available"], shown["reason"])
    if isinstance(grant, Grant):
        assert shown["available"]
        assert tool["payer"] == f"{shown['credential_source']}/{shown['effective_provider']}"
        assert shown["effective_limits"] == {
            "requests_per_minute": grant.requests_per_minute,
            "requests_per_run": grant.requests_per_run,
        }
        assert grant.requests_per_run == (3 if theirs == "inherits with less" else 20)
    else:
        assert (shown["available"], shown["reason"]) == (False, grant.value)
        assert (tool["payer"], shown["effective_limits"]) == (None, None)


@pytest.mark.behaviour("web:live")
def test_an_agent_that_is_made_later_follows_the_instance_as_well(
    instance: WebInstance,
) -> None:
    instance.connect()
    for slug, provider in (("carl", "brave"), ("dora", "perplexity")):
        instance.connect(provider=provider)
        instance.admin.ok("POST", "/api/agents", {"slug": slug})
        shown = instance.admin.ok("GET", f"/api/agents/{slug}/web-access/search")
        assert (shown["settings"], shown["available"]) == (None, True)
        assert shown["effective_provider"] == provider
    carl = instance.admin.ok("GET", "/api/agents/carl/web-access/search")
    assert carl["effective_provider"] == "perplexity"


# ---- inheriting


@pytest.mark.behaviour("operator:inherit-body")
def test_an_agent_returns_to_the_instance_by_an_empty_body(instance: WebInstance) -> None:
    instance.connect()
    instance.connect(BASES[1], "perplexity", api_key=OTHER)
    for empty in ("", None):
        shown = instance.put(BASES[1], mode="inherit", provider=empty, config={})
        assert (shown["credential_source"], shown["effective_provider"]) == ("instance", "brave")
        assert kept(shown) == ["perplexity"], "its own key is kept, and not used"
    assert shown["settings"] == {
        "mode": "inherit",
        "provider": None,
        "config": {},
        "limits": None,
        "version": 3,
    }


@pytest.mark.behaviour("operator:inherit-body")
@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"provider": "brave"}, "provider"),
        ({"config": {"account_id": ACCOUNT}}, "config"),
        ({"api_key": KEY}, "api_key"),
        ({"clear_key": True}, "clear_key"),
        ({"limits": LIMITS}, "limits.requests_per_minute"),
    ],
)
def test_who_inherits_brings_nothing_of_its_own_but_a_lower_allowance(
    instance: WebInstance, more: dict[str, Any], path: str
) -> None:
    instance.connect()
    assert list(instance.problems(BASES[1], mode="inherit", **more)) == [path]
    assert instance.get(BASES[1])["settings"] is None
    assert "mode" in instance.problems(BASES[0], mode="inherit", **more)


@pytest.mark.behaviour("meters:lower-only", "meters:inherited-limit")
def test_an_allowance_is_at_most_the_instances_and_the_lesser_counts_from_then_on(
    instance: WebInstance,
) -> None:
    instance.connect()
    problems = instance.problems(BASES[1], mode="inherit", limits={"requests_per_run": 21})
    assert problems == {"limits.requests_per_run": "must not be above the instance's, which is 20"}
    for figure in (20, 5):
        shown = instance.put(BASES[1], mode="inherit", limits={"requests_per_run": figure})
        assert shown["effective_limits"] == LIMITS | {"requests_per_run": figure}
    for lowered, counts in ((3, 3), (4, 4), (100, 5)):
        instance.put(mode="custom", provider="brave", limits=LIMITS | {"requests_per_run": lowered})
        shown = instance.get(BASES[1])
        assert shown["settings"]["limits"]["requests_per_run"] == 5, "what it set stays"
        assert shown["effective_limits"]["requests_per_run"] == counts
    instance.put(BASES[1], mode="inherit")
    assert instance.get(BASES[1])["effective_limits"]["requests_per_run"] == 100


def test_an_allowance_can_be_set_before_the_instance_has_one(instance: WebInstance) -> None:
    shown = instance.put(BASES[1], mode="inherit", limits={"requests_per_run": 50})
    assert shown["reason"] == "web_access_not_configured"
    instance.connect()
    assert instance.get(BASES[1])["effective_limits"] == LIMITS


# ---- who may


def test_the_instances_access_is_an_admins_to_change_and_everybodys_to_read(
    instance: WebInstance,
) -> None:
    body = {"mode": "disabled", "version": 0}
    for api in (instance.operator, instance.viewer):
        assert error_of(api("PUT", "/api/web-access/search", body)) == "forbidden"
        assert api.ok("GET", "/api/web-access/search")["settings"] is None
    assert error_of(instance.viewer("PUT", f"{BASES[1]}/search", body)) == "forbidden"
    instance.operator.ok("PUT", f"{BASES[1]}/search", body)


def test_another_agents_access_is_as_one_that_is_not_there(instance: WebInstance) -> None:
    def asked(api: Api, slug: str) -> list[tuple[int, str]]:
        path = f"/api/agents/{slug}/web-access"
        answers = (
            api("GET", path),
            api("GET", f"{path}/search"),
            api("PUT", f"{path}/search", {"mode": "disabled", "version": 0}),
        )
        return [(each.status, error_of(each)) for each in answers]

    assert asked(instance.operator, "ada") == asked(instance.operator, "nobody")
    assert {status for status, _ in asked(instance.operator, "ada")} == {404}
    for base in BASES:
        for name in ("browser", "SEARCH", "search%20", "mcp"):
            assert instance.admin("GET", f"{base}/{name}").status == 404
            body = {"mode": "disabled", "version": 0}
            assert instance.admin("PUT", f"{base}/{name}", body).status == 404
