"""Providers' keys through the operator API: kept by provider and owner, replaced, forgotten, and
never told."""

from __future__ import annotations

import json

import pytest

from mesh.storage import keys
from tests.fakes.web_access import ACCOUNT, BASES, KEY, LIMITS, OTHER, WebInstance, kept


@pytest.fixture
def instance() -> WebInstance:
    return WebInstance()


@pytest.mark.behaviour("operator:omitted-key", "secrets:by-provider-and-owner")
@pytest.mark.parametrize("base", BASES)
def test_a_key_that_is_left_out_stays_and_belongs_to_one_provider_and_owner(
    instance: WebInstance, base: str
) -> None:
    instance.connect(base)
    shown = instance.put(base, mode="custom", provider="brave", limits=LIMITS)
    assert [(each["provider"], each["version"]) for each in shown["kept_keys"]] == [("brave", 1)]
    # Another provider does not get it, and its owner has none for that one yet.
    change = {"mode": "custom", "provider": "perplexity", "limits": LIMITS, "version": 2}
    assert list(instance.problems(base, **change)) == ["api_key"]
    instance.put(base, **(change | {"api_key": OTHER}))
    assert kept(instance.get(base)) == ["brave", "perplexity"]
    # Back again, it is there as it was.
    shown = instance.put(base, mode="custom", provider="brave", limits=LIMITS)
    assert (shown["available"], shown["kept_keys"][0]["version"]) == (True, 1)
    # Nor does another owner.
    other = BASES[1] if base == BASES[0] else BASES[0]
    given = {"mode": "custom", "provider": "brave", "limits": LIMITS}
    assert list(instance.problems(other, **given)) == ["api_key"]


@pytest.mark.parametrize("base", BASES)
def test_a_fresh_key_takes_the_place_of_the_one_before(instance: WebInstance, base: str) -> None:
    first = instance.connect(base)["kept_keys"][0]
    instance.system.clock.forward(60)
    (second,) = instance.connect(base, api_key=OTHER)["kept_keys"]
    assert (first["version"], second["version"]) == (1, 2)
    assert second["updated_at"] > first["updated_at"]


@pytest.mark.behaviour("operator:clear-key", "operator:disabled-mode")
@pytest.mark.parametrize("base", BASES)
def test_a_key_is_forgotten_with_the_capability_and_no_connection_stays_on_without_it(
    instance: WebInstance, base: str
) -> None:
    instance.connect(base)
    on = {"mode": "custom", "provider": "brave", "limits": LIMITS, "clear_key": True, "version": 1}
    (problem,) = instance.problems(base, **on).values()
    assert "put the mode disabled with it" in problem
    assert instance.get(base)["available"]
    shown = instance.put(base, mode="disabled", provider="brave", clear_key=True)
    assert (shown["available"], shown["credential_present"], kept(shown)) == (False, False, [])
    owner = "instance" if base == BASES[0] else instance.agent_id
    row = instance.system.table.get(keys.provider_key(owner, "brave"))
    assert row is not None
    assert not {"blob", "wrapped", "name"} & {n for n, value in row.items() if value}
    assert list(instance.problems(base, mode="custom", provider="brave", limits=LIMITS, version=2))
    shown = instance.connect(base)
    assert shown["kept_keys"][0]["version"] == 2, "no version ever names two keys"


@pytest.mark.parametrize("base", BASES)
def test_what_is_not_kept_is_not_forgotten_and_what_is_on_stays_on(
    instance: WebInstance, base: str
) -> None:
    before = instance.connect(base)
    absent = {"mode": "disabled", "provider": "perplexity", "clear_key": True, "version": 1}
    (problem,) = instance.problems(base, **absent).values()
    assert "no key of Perplexity Search is kept here" in problem
    assert instance.get(base) == before
    shown = instance.put(base, mode="disabled", provider="brave", clear_key=True)
    again = {"mode": "disabled", "provider": "brave", "clear_key": True, "version": 2}
    assert list(instance.problems(base, **again)) == ["clear_key"]
    assert instance.get(base) == shown


@pytest.mark.behaviour("operator:disabled-mode", "web:disabled-row")
def test_an_opt_out_stays_whatever_the_instance_does(instance: WebInstance) -> None:
    instance.put(BASES[1], mode="disabled")
    for change in (
        instance.connect,
        lambda: instance.connect(provider="perplexity"),
        lambda: instance.put(mode="disabled"),
        instance.connect,
    ):
        change()
        shown = instance.get(BASES[1])
        assert (shown["available"], shown["reason"]) == (False, "web_access_disabled")


@pytest.mark.behaviour("operator:put-replaces")
@pytest.mark.parametrize("base", BASES)
def test_what_a_put_does_not_name_is_not_kept_but_for_the_key(
    instance: WebInstance, base: str
) -> None:
    given = {"mode": "custom", "provider": "cloudflare", "limits": LIMITS, "api_key": KEY}
    instance.put(base, "read", config={"account_id": ACCOUNT}, **given)
    shown = instance.put(base, "read", mode="disabled")
    assert (shown["settings"]["provider"], shown["settings"]["config"]) == (None, {})
    assert shown["settings"]["limits"] is None
    assert kept(shown) == ["cloudflare"]
    shown = instance.put(
        base, "read", mode="disabled", provider="cloudflare", config={"account_id": ACCOUNT}
    )
    assert shown["settings"]["config"] == {"account_id": ACCOUNT}
    assert shown["credential_present"]


@pytest.mark.behaviour("fetch:own-settings")
@pytest.mark.parametrize("base", BASES)
def test_reading_has_settings_versions_and_keys_apart_from_searching(
    instance: WebInstance, base: str
) -> None:
    instance.connect(base)
    assert instance.get(base, "read")["settings"] is None
    given = {"mode": "custom", "provider": "firecrawl", "limits": dict.fromkeys(LIMITS, 2)}
    shown = instance.put(base, "read", api_key=OTHER, **given)
    assert (shown["settings"]["version"], kept(shown)) == (1, ["firecrawl"])
    instance.put(base, mode="disabled")
    assert instance.get(base, "read") == shown
    stale = instance.admin("PUT", f"{base}/read", given | {"version": 2})
    assert (stale.status, stale.json()["error"]["current_version"]) == (409, 1)


@pytest.mark.behaviour("secrets:never-returned")
def test_no_answer_row_or_line_holds_a_key_or_a_piece_of_one(instance: WebInstance) -> None:
    answers = []
    for base, api in zip(BASES, (instance.admin, instance.operator), strict=True):
        body = {"mode": "custom", "provider": "brave", "limits": LIMITS, "api_key": KEY}
        for version, more in enumerate(({}, {"limits": None}, {"version": 9})):
            answers.append(api("PUT", f"{base}/search", body | {"version": min(version, 1)} | more))
        off = {"mode": "disabled", "provider": "brave", "api_key": KEY, "version": 1}
        answers += [
            api("PUT", f"{base}/search", off),
            api("GET", base),
            api("GET", f"{base}/search"),
        ]
    answers.append(instance.admin("GET", "/api/audit?limit=200"))
    assert {each.status for each in answers} == {200, 409, 422}
    for answer in answers:
        assert answer.header("Cache-Control") == "no-store"
    told = b"".join(each.body for each in answers).decode() + json.dumps(
        list(instance.system.log.events), default=str
    )
    told += json.dumps(list(instance.system.aws.items()), default=str)
    bare = KEY.removeprefix("canary-")
    pieces = {bare[start : start + 6] for start in range(len(bare) - 5)}
    assert not {each for each in pieces if each in told}


@pytest.mark.behaviour("audit:settings-write")
def test_each_change_is_audited_with_its_versions_and_each_key_apart(instance: WebInstance) -> None:
    instance.connect(BASES[1])
    for body in (
        {"mode": "custom", "provider": "brave", "limits": LIMITS, "api_key": OTHER},
        {"mode": "custom", "provider": "brave", "limits": LIMITS},
        {"mode": "disabled", "provider": "brave", "clear_key": True},
        {"mode": "inherit"},
    ):
        instance.system.clock.forward(1)
        instance.put(BASES[1], **body)
    told = [
        (row["action"], row["target"], row["version_before"], row["version_after"])
        for row in reversed(instance.admin.every("/api/audit"))
        if row["action"].startswith("web_")
    ]
    settings, key = "bob/web-access/search", "bob/web-keys/brave"
    assert len(told) == 8
    assert set(told) == {
        ("web_access.put", settings, None, 1),
        ("web_key.put", key, None, 1),
        ("web_access.put", settings, 1, 2),
        ("web_key.put", key, 1, 2),
        ("web_access.put", settings, 2, 3),
        ("web_access.put", settings, 3, 4),
        ("web_key.delete", key, 2, None),
        ("web_access.put", settings, 4, 5),
    }
