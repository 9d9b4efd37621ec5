"""What the two tools have against a call before it is admitted, in words that repeat nothing of
what a model wrote, and what they know of it beforehand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mesh.kernel.limits import WEB_QUERY_BYTES_MAX
from mesh.records.connection import Grant
from mesh.records.value import CredentialSource
from tests.unit.web.apis import PAGE_URL, READ, SAID, SEARCH
from tests.unit.web.bench import Bench, capability_of

EVERY = pytest.mark.parametrize("name", SAID)


@pytest.fixture(scope="module")
def bench() -> Bench:
    """One that nothing is sent from."""
    return Bench()


def granted(name: str, **more: Any) -> Grant:
    """A grant as no row gave it."""
    fields: dict[str, Any] = {
        "capability": capability_of(name),
        "provider": name,
        "config": dict(SAID[name].config),
        "source": CredentialSource.INSTANCE,
        "own_version": 0,
        "instance_version": 1,
        "key_version": 1,
        "requests_per_minute": 1,
        "requests_per_run": 1,
    }
    return Grant(**(fields | more))


# ---- what is judged before a call is admitted


@pytest.mark.behaviour("search:query")
@pytest.mark.parametrize(
    "query",
    ["a" * 2_000, "é" * 1_000, "山" * 666, "🐐" * 500, "山" * 666 + "ab"],
    ids=lambda q: q[:1],
)
def test_a_query_of_two_thousand_bytes_is_taken_and_one_byte_more_is_not(
    bench: Bench, query: str
) -> None:
    grant = granted("perplexity")
    assert len(query.encode()) <= WEB_QUERY_BYTES_MAX == 2_000
    assert bench.judge(grant, query=query) is None
    longer = query + "b" * (WEB_QUERY_BYTES_MAX + 1 - len(query.encode()))
    assert bench.judge(grant, query=longer) == "query: has at most 2000 bytes in UTF-8"


@pytest.mark.parametrize(
    "query",
    [
        "",
        " ",
        "\t\r\n",
        "\u00a0\u3000",
        "\u200b",
        "\u200b \u2060\ufeff",
        "\u00ad",
        "\u2800",
        "\x00",
    ],
    ids=ascii,
)
@pytest.mark.parametrize("name", SEARCH)
def test_a_query_in_which_there_is_nothing_to_be_seen_is_none(
    bench: Bench, name: str, query: str
) -> None:
    assert bench.judge(granted(name), query=query) == "query: there is no word in it"


@pytest.mark.parametrize("point", [0xD800, 0xDBFF, 0xDC00, 0xDFFF], ids=hex)
def test_half_of_a_pair_is_no_text(bench: Bench, point: int) -> None:
    half = chr(point)
    for query in (half, f"wild {half} goats", half * 900):
        assert bench.judge(granted("perplexity"), query=query) == "query: is no text"
    url = f"https://goats.example/{half}"
    assert str(bench.judge(granted("firecrawl"), "fetch", url=url)).startswith("url: malformed: ")


@pytest.mark.behaviour("search:query", "search:providers")
@pytest.mark.parametrize(
    ("query", "against"),
    [
        ("x" * 400, None),
        ("é" * 400, None),
        ("🐐" * 400, None),
        ("x" * 401, "query: brave takes at most 400 characters"),
        (" " * 400 + "x", "query: brave takes at most 400 characters"),
        (" ".join(["x"] * 50), None),
        ("\u3000".join(["x"] * 50), None),
        (" ".join(["x"] * 51), "query: brave takes at most 50 words"),
        ("\u3000".join(["x"] * 51), "query: brave takes at most 50 words"),
        ("\n".join(["x"] * 51), "query: brave takes at most 50 words"),
    ],
    ids=lambda told: str(told)[-30:],
)
def test_what_a_provider_takes_less_of_is_told_with_its_name_before_anything_is_admitted(
    bench: Bench, query: str, against: str | None
) -> None:
    assert bench.judge(granted("brave"), query=query) == against
    assert bench.judge(granted("perplexity"), query=query) is None
    assert bench.judge(None, query=query) is None


@pytest.mark.behaviour("fetch:url", "fetch:public-only")
@pytest.mark.parametrize(
    ("url", "against"),
    [
        ("https://goats.example/ibex", None),
        ("http://goats.example", None),
        ("https://user:pass@goats.example/", "url: userinfo: "),
        ("https://goats.example:8443/", "url: port: "),
        ("ftp://goats.example/", "url: scheme: "),
        ("file:///etc/passwd", "url: scheme: "),
        ("javascript:alert(1)", "url: scheme: "),
        ("goats.example", "url: scheme: "),
        ("https://localhost/", "url: host: "),
        ("http://2130706433/", "url: address: "),
        ("http://169.254.169.254/latest/meta-data/", "url: address: "),
        ("http://[::1]/", "url: address: "),
        ("", "url: malformed: "),
    ],
)
@pytest.mark.parametrize("name", READ)
def test_a_page_that_is_not_public_is_told_by_the_rule_and_not_by_its_address(
    bench: Bench, name: str, url: str, against: str | None
) -> None:
    told = bench.judge(granted(name), "fetch", url=url)
    if against is None:
        assert told is None
        return
    assert told is not None
    assert told.startswith(against)
    assert not {"goats", "8443", "2130706433", "169.254", "::1", "passwd", "pass"} & set(
        told.split()
    )


BAD_GRANTS: dict[str, tuple[Grant, str]] = {
    "a provider nobody knows": (
        msgspec.structs.replace(granted("brave"), provider="gone"),
        "an operator must choose another provider: the one that is set is not known here",
    ),
    "a provider of something else": (
        msgspec.structs.replace(granted("brave"), provider="firecrawl"),
        "an operator must choose another provider: the one that is set is not known here",
    ),
    "a setting too many": (
        granted("brave", config={"allowed_hosts": "goats.example"}),
        "an operator must set the connection to brave again: it does not fit",
    ),
    "a reader of search's": (
        msgspec.structs.replace(granted("firecrawl"), provider="perplexity"),
        "an operator must choose another provider: the one that is set is not known here",
    ),
    "no account": (
        granted("cloudflare", config={}),
        "an operator must set the connection to cloudflare again: it does not fit",
    ),
    "an account that is none": (
        granted("cloudflare", config={"account_id": "../" + "a" * 29}),
        "an operator must set the connection to cloudflare again: it does not fit",
    ),
    "an account with a line behind it": (
        granted("cloudflare", config={"account_id": "a" * 32 + "\n"}),
        "an operator must set the connection to cloudflare again: it does not fit",
    ),
    "an account and hosts": (
        granted("cloudflare", config={"account_id": "a" * 32, "domains": "goats.example"}),
        "an operator must set the connection to cloudflare again: it does not fit",
    ),
}


@pytest.mark.parametrize("case", BAD_GRANTS)
def test_a_connection_that_its_adapter_would_not_use_is_nothing_to_call_on(
    bench: Bench, case: str
) -> None:
    grant, against = BAD_GRANTS[case]
    tool = "search" if grant.capability.value == "search" else "fetch"
    arguments = {"query": "goats"} if tool == "search" else {"url": PAGE_URL}
    assert bench.judge(grant, tool, **arguments) == against


@EVERY
def test_a_plain_call_on_a_plain_connection_has_nothing_against_it(name: str) -> None:
    bench = Bench()
    grant = bench.connect(name)
    assert bench.judge(grant, query="goats") is None
    if name in READ:
        assert bench.judge(grant, "fetch", url=PAGE_URL) is None


def test_what_a_call_is_about_is_known_of_a_page_and_not_of_a_search(bench: Bench) -> None:
    assert bench.sources("search", query="https://goats.example/") == ()
    assert bench.sources("fetch", url="HTTPS://Bücher.example?é#part") == (
        "https://xn--bcher-kva.example/?%C3%A9",
    )
    assert bench.sources("fetch", url="http://localhost/") == ()
    assert bench.sources("fetch", url="https://goats.example/\udc00") == ()
