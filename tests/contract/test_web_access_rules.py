"""What an owner may set for the web, field by field: what does not go together is refused by its
name, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.kernel.limits import PROVIDER_KEY_CHARS_MAX, REQUESTS_MAX
from mesh.records.connection import Capability
from mesh.tools.web.catalogue import PROVIDERS
from tests.fakes.operators import error_of
from tests.fakes.web_access import ACCOUNT, BASES, KEY, LIMITS, WebInstance


@pytest.fixture
def instance() -> WebInstance:
    return WebInstance()


WRONG: list[tuple[dict[str, Any], str]] = [
    # a custom connection is whole
    ({"mode": "custom", "limits": LIMITS, "api_key": KEY}, "provider"),
    ({"mode": "custom", "provider": "", "limits": LIMITS, "api_key": KEY}, "provider"),
    ({"mode": "custom", "provider": "nobody", "limits": LIMITS, "api_key": KEY}, "provider"),
    ({"mode": "custom", "provider": "firecrawl", "limits": LIMITS, "api_key": KEY}, "provider"),
    ({"mode": "custom", "provider": "brave", "limits": LIMITS}, "api_key"),
    (
        {
            "mode": "custom",
            "provider": "brave",
            "limits": {"requests_per_run": 1},
            "api_key": KEY,
        },
        "limits.requests_per_minute",
    ),
    (
        {
            "mode": "custom",
            "provider": "brave",
            "limits": {"requests_per_minute": 1},
            "api_key": KEY,
        },
        "limits.requests_per_run",
    ),
    (
        {
            "mode": "custom",
            "provider": "brave",
            "limits": LIMITS,
            "config": {"account_id": ACCOUNT},
            "api_key": KEY,
        },
        "config.account_id",
    ),
    (
        {
            "mode": "custom",
            "provider": "brave",
            "limits": LIMITS,
            "api_key": KEY,
            "clear_key": True,
        },
        "clear_key",
    ),
    # what is disabled has no limits, and takes no key
    ({"mode": "disabled", "limits": {"requests_per_minute": 1}}, "limits.requests_per_minute"),
    ({"mode": "disabled", "limits": {"requests_per_run": 1}}, "limits.requests_per_run"),
    ({"mode": "disabled", "provider": "brave", "api_key": KEY}, "api_key"),
    ({"mode": "disabled", "clear_key": True}, "provider"),
    ({"mode": "disabled", "provider": "nobody"}, "provider"),
    ({"mode": "disabled", "provider": "brave", "config": {"x": "y"}}, "config.x"),
    ({"mode": "disabled", "config": {"account_id": ACCOUNT}}, "config"),
    # the shape
    ({}, "mode"),
    ({"mode": "enabled"}, "mode"),
    ({"mode": None}, "mode"),
    ({"mode": "disabled", "version": -1}, "version"),
    ({"mode": "disabled", "version": None}, "version"),
    ({"mode": "disabled", "version": True}, "version"),
    ({"mode": "disabled", "clear_key": "yes"}, "clear_key"),
    ({"mode": "disabled", "available": True}, "available"),
    ({"mode": "disabled", "kept_keys": []}, "kept_keys"),
    ({"mode": "disabled", "limits": {"per_day": 1}}, "limits.per_day"),
]


@pytest.mark.behaviour("operator:put-replaces")
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(("body", "path"), WRONG)
def test_what_does_not_go_together_is_refused_by_its_field_and_changes_nothing(
    instance: WebInstance, base: str, body: dict[str, Any], path: str
) -> None:
    rows = instance.system.rows("WEB#")
    assert list(instance.problems(base, **body)) == [path]
    assert instance.system.rows("WEB#") == rows == []


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("field", ["requests_per_minute", "requests_per_run"])
def test_limits_are_whole_numbers_from_one_to_ten_thousand(
    instance: WebInstance, base: str, field: str
) -> None:
    given = {"mode": "custom", "provider": "brave", "api_key": KEY}
    for wrong in (0, -1, REQUESTS_MAX + 1, 1.5, "5", True):
        problems = instance.problems(base, limits=LIMITS | {field: wrong}, **given)
        assert list(problems) == [f"limits.{field}"]
    for right in (1, REQUESTS_MAX):
        shown = instance.put(base, limits=LIMITS | {field: right}, **given)
        assert shown["effective_limits"][field] == right


@pytest.mark.behaviour("operator:blank-key")
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    "key", ["", " ", "\t\r\n", "\u3000", "two words", "line\n", "clé", "x" * 4097, 5, [KEY]]
)
def test_a_key_that_is_blank_or_that_no_header_takes_is_refused_and_not_repeated(
    instance: WebInstance, base: str, key: Any
) -> None:
    instance.connect(base)
    body = {"mode": "custom", "provider": "brave", "limits": LIMITS, "api_key": key, "version": 1}
    response = instance.admin("PUT", f"{base}/search", body)
    assert (response.status, error_of(response)) == (422, "invalid_request")
    (field,) = response.json()["error"]["fields"]
    assert field["path"] == "api_key"
    if isinstance(key, str) and key.strip():
        assert key[:64] not in response.body.decode()
    shown = instance.get(base)
    assert (shown["settings"]["version"], shown["kept_keys"][0]["version"]) == (1, 1)
    instance.put(base, **(body | {"api_key": "x" * PROVIDER_KEY_CHARS_MAX}))


@pytest.mark.behaviour("fetch:config:cloudflare")
@pytest.mark.parametrize("base", BASES)
def test_cloudflare_needs_an_account_and_a_token_that_may_render(
    instance: WebInstance, base: str
) -> None:
    given = {"mode": "custom", "provider": "cloudflare", "limits": LIMITS, "api_key": KEY}
    (path, problem), *others = instance.problems(base, "read", **given).items()
    assert (path, others) == ("config.account_id", [])
    assert "32 hexadecimal digits" in problem
    for wrong in ("", "f" * 31, "f" * 33, "F" * 32, "f" * 31 + "/", f"{ACCOUNT}\n", 5, None):
        config = {"account_id": wrong}
        assert list(instance.problems(base, "read", config=config, **given)) == [path]
    extra = {"account_id": ACCOUNT, "zone": "x"}
    assert list(instance.problems(base, "read", config=extra, **given)) == ["config.zone"]
    shown = instance.put(base, "read", config={"account_id": ACCOUNT}, **given)
    assert shown["settings"]["config"] == {"account_id": ACCOUNT}
    (described,) = [each for each in shown["providers"] if each["name"] == "cloudflare"]
    assert "Account → Browser Rendering → Edit" in described["key_hint"]
    without = {name: value for name, value in given.items() if name != "api_key"}
    assert instance.put(base, "read", config={"account_id": ACCOUNT}, **without)["available"]


@pytest.mark.behaviour("fetch:config:firecrawl")
@pytest.mark.parametrize("base", BASES)
def test_firecrawl_needs_a_key_and_nothing_else(instance: WebInstance, base: str) -> None:
    given = {"mode": "custom", "provider": "firecrawl", "limits": LIMITS}
    assert list(instance.problems(base, "read", **given)) == ["api_key"]
    shown = instance.put(base, "read", api_key=KEY, **given)
    assert (shown["available"], shown["settings"]["config"]) == (True, {})


@pytest.mark.behaviour("web:stated-boundary")
@pytest.mark.parametrize(
    ("capability", "provider"),
    [(c, p.name) for p in PROVIDERS.values() for c in p.capabilities],
)
@pytest.mark.parametrize("name", ["allow_hosts", "allowed_domains", "hostnames"])
def test_a_restriction_to_hosts_is_refused_in_words_and_not_passed_over(
    instance: WebInstance, capability: Capability, provider: str, name: str
) -> None:
    config: dict[str, Any] = {each.name: ACCOUNT for each in PROVIDERS[provider].config}
    for hosts in (["example.com"], "example.com", []):
        problems = instance.problems(
            BASES[0],
            capability,
            mode="custom",
            provider=provider,
            config=config | {name: hosts},
            limits=LIMITS,
            api_key=KEY,
        )
        assert list(problems) == [f"config.{name}"]
        assert "cannot enforce a restriction to hosts" in problems[f"config.{name}"]
        assert "leave the capability disabled" in problems[f"config.{name}"]
