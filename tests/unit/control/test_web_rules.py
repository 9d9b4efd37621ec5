"""Which settings of the web go together, without a table: each wrong one by its name."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.control.web_rules import HOST_FIELDS, Wanted, check, config_of
from mesh.kernel.errors import Invalid
from mesh.records.connection import Capability, ConfigField, Mode, Provider

SEARCH, READ = Capability.SEARCH, Capability.READ
PLAIN = Provider(
    name="plain",
    title="Plain",
    capabilities=(SEARCH,),
    origin="https://api.plain.example",
    key_hint="A key.",
    redirects="None.",
    subrequests="None.",
)
NEEDY = Provider(
    name="needy",
    title="Needy",
    capabilities=(SEARCH, READ),
    origin="https://api.needy.example",
    key_hint="A key.",
    config=(
        ConfigField(name="account", title="Account", pattern="[a-f]{4}", hint="four letters"),
        ConfigField(name="place", title="Place", pattern="eu|us", hint="eu or us"),
    ),
    redirects="By the provider alone.",
    subrequests="By the provider alone.",
)
PROVIDERS = {"plain": PLAIN, "needy": NEEDY}
FULL = {"account": "abcd", "place": "eu"}


def wanted(mode: Mode, **more: Any) -> Wanted:
    given: dict[str, Any] = {"capability": SEARCH}
    if mode is Mode.CUSTOM:
        given |= {"provider": "plain", "requests_per_minute": 1, "requests_per_run": 1}
    return Wanted(mode=mode, **(given | more))


def wrong(mode: Mode, *, inherits: bool = True, **more: Any) -> dict[str, str]:
    """What is wrong with it, by field; nothing where it may be set."""
    try:
        check(wanted(mode, **more), PROVIDERS, inherits=inherits)
    except Invalid as refused:
        return {each.path: each.problem for each in refused.fields}
    return {}


CUSTOM, INHERIT, OFF = Mode.CUSTOM, Mode.INHERIT, Mode.DISABLED


@pytest.mark.parametrize(
    ("mode", "more"),
    [
        (CUSTOM, {}),
        (CUSTOM, {"api_key": "k"}),
        (CUSTOM, {"provider": "needy", "config": FULL}),
        (CUSTOM, {"provider": "needy", "config": FULL, "capability": READ}),
        (INHERIT, {}),
        (INHERIT, {"requests_per_run": 1}),
        (OFF, {}),
        (OFF, {"provider": "plain"}),
        (OFF, {"provider": "plain", "clear_key": True}),
        (OFF, {"provider": "needy"}),
        (OFF, {"provider": "needy", "config": FULL}),
    ],
)
def test_what_goes_together_may_be_set(mode: Mode, more: dict[str, Any]) -> None:
    assert wrong(mode, **more) == {}


@pytest.mark.parametrize(
    ("mode", "more", "fields"),
    [
        (CUSTOM, {"provider": None}, ["provider"]),
        (CUSTOM, {"provider": None, "config": FULL}, ["provider"]),
        (CUSTOM, {"provider": "nobody"}, ["provider"]),
        (CUSTOM, {"capability": READ}, ["provider"]),
        (CUSTOM, {"config": {"account": "abcd"}}, ["config.account"]),
        (CUSTOM, {"provider": "needy"}, ["config.account", "config.place"]),
        (CUSTOM, {"provider": "needy", "config": FULL | {"place": "eux"}}, ["config.place"]),
        (CUSTOM, {"provider": "needy", "config": FULL | {"account": "abcd\n"}}, ["config.account"]),
        (CUSTOM, {"provider": "needy", "config": FULL | {"account": None}}, ["config.account"]),
        (CUSTOM, {"provider": "needy", "config": FULL | {"account": ["a"]}}, ["config.account"]),
        (
            CUSTOM,
            {"requests_per_minute": None, "requests_per_run": None, "clear_key": True},
            ["limits.requests_per_minute", "limits.requests_per_run", "clear_key"],
        ),
        (
            INHERIT,
            {
                "provider": "plain",
                "config": FULL,
                "api_key": "k",
                "clear_key": True,
                "requests_per_minute": 1,
            },
            ["provider", "config", "api_key", "clear_key", "limits.requests_per_minute"],
        ),
        (
            OFF,
            {"requests_per_minute": 1, "requests_per_run": 1, "api_key": "k", "clear_key": True},
            ["limits.requests_per_minute", "limits.requests_per_run", "api_key", "provider"],
        ),
        (OFF, {"config": FULL}, ["config"]),
        (OFF, {"provider": "needy", "config": {"account": "abcd"}}, ["config.place"]),
        (OFF, {"provider": "nobody"}, ["provider"]),
    ],
)
def test_everything_that_is_wrong_is_told_at_once_by_its_field(
    mode: Mode, more: dict[str, Any], fields: list[str]
) -> None:
    assert list(wrong(mode, **more)) == fields


def test_the_instance_inherits_from_nobody() -> None:
    assert list(wrong(INHERIT, inherits=False, provider="plain")) == ["mode"]


@pytest.mark.behaviour("web:stated-boundary")
@pytest.mark.parametrize("mode", [CUSTOM, OFF])
@pytest.mark.parametrize("name", sorted(HOST_FIELDS))
def test_a_policy_that_no_provider_enforces_is_refused_for_what_it_is(
    mode: Mode, name: str
) -> None:
    for provider in PROVIDERS:
        problems = wrong(mode, provider=provider, config={name: ["example.com"]})
        assert "cannot enforce a restriction to hosts" in problems[f"config.{name}"]


def test_what_is_wrong_names_what_there_is() -> None:
    assert wrong(CUSTOM, provider="nobody")["provider"].endswith("one of needy, plain")
    assert wrong(CUSTOM, capability=READ)["provider"].endswith("one of needy")
    assert "eu or us" in wrong(CUSTOM, provider="needy", config={"account": "abcd"})["config.place"]


def test_a_key_is_not_shown_by_what_holds_it() -> None:
    assert "canary" not in repr(wanted(CUSTOM, api_key="canary-of-a-key"))
    assert config_of(wanted(OFF, provider="needy", config=FULL)) == FULL
