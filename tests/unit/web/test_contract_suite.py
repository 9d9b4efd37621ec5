"""Every adapter keeps the one contract over the wire of its own API: what it asks, and what it
makes of a good answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mesh.kernel.limits import (
    PROVIDER_ANSWER_BYTES_MAX,
    PROVIDER_READ_S,
    PROVIDER_SEARCH_S,
)
from mesh.tools.web.contract import Hit, Page, ProviderFailure
from tests.fakes.model_servers import WireReply, as_json
from tests.fakes.web_servers import JSON
from tests.unit.security.peer import Peer, says
from tests.unit.web.apis import PAGE_URL, QUERY, READ, SAID, SEARCH, Api, refuses_all_but

QUERIES = [
    "ibex",
    "wild goats  of the Alps",
    "a&b=c#d?e+f%20g;h",
    "“smart” 'quotes' \\ back \"slash\"",
    "山羊 der Älpler 🐐",
    "site:goats.example -horns",
    "x" * 400,
    " ".join(["goat"] * 50),
]
URLS = [
    "https://goats.example",
    "http://goats.example/",
    "https://goats.example/a%20b/%E5%B1%B1?q=1&q=2&u=https%3A%2F%2Fx.example%2F",
    "https://goats.example/?a=b+c;d",
    "https://xn--bcher-kva.example/p",
    "https://goats.example/" + "p" * 1900,
]


# ---- what is asked


@pytest.mark.behaviour("web:tests")
def test_one_request_arrives_that_is_valid_by_the_rules_of_the_api(api: Api) -> None:
    api.ask()
    assert api.server.broken == []
    (asked,) = api.server.asked
    assert asked.about == (QUERY if api.searches else PAGE_URL)
    assert asked.credential == api.server.key
    assert api.peer.connections == 1


@pytest.mark.parametrize("query", QUERIES, ids=lambda it: it[:12])
def test_a_query_arrives_as_it_was(search: Api, query: str) -> None:
    search.search(query)
    assert search.server.asked[0].about == query


@pytest.mark.parametrize("limit", [1, 5, 10])
def test_as_many_results_are_asked_for_as_are_wanted(search: Api, limit: int) -> None:
    assert len(search.search(limit=limit)) == limit
    asked = search.server.asked[0].options
    assert int(asked.get("count", asked.get("max_results", 0))) == limit


@pytest.mark.parametrize("url", URLS, ids=lambda it: it[:24])
def test_an_address_arrives_as_it_was(read: Api, url: str) -> None:
    read.read(url)
    assert read.server.asked[0].about == url


def test_the_key_is_in_its_header_and_nowhere_else(api: Api) -> None:
    api.ask()
    (request,) = api.server.requests
    key = api.server.key
    assert [name for name, value in request.headers.items() if key in value] == [
        "x-subscription-token" if api.name == "brave" else "authorization"
    ]
    assert key not in request.path
    assert key.encode() not in request.body


def test_nothing_of_the_caller_is_told_beside_what_is_asked(api: Api) -> None:
    api.ask()
    (request,) = api.server.requests
    assert not {"cookie", "referer", "x-request-id", "traceparent"} & request.headers.keys()
    assert "python" not in request.headers.get("user-agent", "").lower()


@pytest.mark.behaviour("fetch:firecrawl-no-cache")
def test_firecrawl_reuses_and_keeps_no_copy_and_verifies_tls() -> None:
    api = Api("firecrawl")
    api.ask()
    (asked,) = api.server.asked
    assert asked.options["maxAge"] == 0
    assert asked.options["storeInCache"] is False
    assert asked.options["skipTlsVerification"] is False
    assert asked.options.get("formats", ["markdown"]) == ["markdown"]
    assert not {"headers", "actions", "minAge"} & asked.options.keys()
    assert asked.options["timeout"] / 1000 < PROVIDER_READ_S
    api.close()


def test_cloudflare_is_asked_for_no_copy_and_with_nothing_of_ours() -> None:
    api = Api("cloudflare")
    api.ask()
    (asked,) = api.server.asked
    assert asked.options["cacheTTL"] == "0"
    forbidden = {"cookies", "authenticate", "setExtraHTTPHeaders", "html", "addScriptTag"}
    assert not forbidden & asked.options.keys()
    assert asked.options.get("gotoOptions", {}).get("timeout", 0) / 1000 < PROVIDER_READ_S
    api.close()


OPTIONS: dict[str, frozenset[str]] = {
    "brave": frozenset({"count", "text_decorations"}),
    "perplexity": frozenset({"max_results", "max_tokens_per_page"}),
    "firecrawl": frozenset(
        {"formats", "onlyMainContent", "maxAge", "storeInCache", "skipTlsVerification", "timeout"}
    ),
    "cloudflare": frozenset({"cacheTTL", "gotoOptions"}),
}
"""All that is asked for beside the query or the address: of every call the same."""


@pytest.mark.behaviour("search:common-contract", "fetch:closed-arguments")
def test_no_filter_no_written_answer_and_nothing_of_the_callers_is_asked_for(api: Api) -> None:
    for _ in range(2):
        api.ask()
    first, second = api.server.asked
    assert frozenset(first.options) == OPTIONS[api.name]
    assert first.options == second.options


def test_perplexitys_budget_of_words_is_bounded() -> None:
    api = Api("perplexity")
    api.ask()
    (asked,) = api.server.asked
    assert asked.options.get("max_tokens", 0) <= 10_000 or "search_context_size" in asked.options
    api.close()


@pytest.mark.behaviour("web:tests", "search:own-origins", "fetch:two-origins")
def test_only_the_declared_origin_is_asked_under_a_policy_of_that_origin(api: Api) -> None:
    api.ask()
    (sent,) = api.egress.sent
    assert sent.url.startswith(api.provider.origin + "/")
    assert refuses_all_but(sent.policy, api.provider.origin)


def test_an_answer_is_bounded_in_bytes_and_time(api: Api) -> None:
    api.ask()
    (sent,) = api.egress.sent
    assert sent.body_bytes_max == PROVIDER_ANSWER_BYTES_MAX
    assert sent.total_s == (PROVIDER_SEARCH_S if api.searches else PROVIDER_READ_S)


@pytest.mark.behaviour("search:no-redirect-no-proxy")
def test_a_proxy_of_the_environment_is_not_used(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Peer(says(b"HTTP/1.1 200 OK\r\n\r\n"))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert api.ask()
    proxy.close()
    assert proxy.connections == 0


@pytest.mark.parametrize("name", SAID)
def test_a_stand_in_of_the_local_stack_is_asked_in_the_same_words(name: str) -> None:
    api = Api(name)
    assert api.ask()
    api.close()
    assert api.server.broken == []
    assert api.peer.connections == 1


# ---- what is found


def test_results_come_in_the_order_of_the_provider(search: Api) -> None:
    hits = search.search(limit=3)
    assert [hit.url for hit in hits] == [
        f"https://goats.example/ibex/{n}?a=1&b=2" for n in range(3)
    ]
    assert all(isinstance(hit, Hit) for hit in hits)


def test_braves_texts_are_free_of_its_markup() -> None:
    api = Api("brave")
    hit = api.search()[1]
    api.close()
    assert hit.title == 'The ibex & its "horns" 1'
    assert hit.excerpt.startswith("It's a wild goat of rank 1.")
    assert hit.date == "2024-12-27"


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        ("a &lt;b&gt; c", "a <b> c"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("&amp;lt;strong&amp;gt;", "&lt;strong&gt;"),
        ("caf&eacute; &#x1F410; &#128016;", "café 🐐 🐐"),
        ("<strong>a</strong><strong>b</strong>", "ab"),
    ],
)
def test_entities_of_braves_texts_are_decoded_once(told: str, meant: str) -> None:
    api = Api("brave")
    api.server.says(api.module.found(api.module.result(1, title=told, description=told)))
    (hit,) = api.search()
    api.close()
    assert (hit.title, hit.excerpt) == (meant, meant)


def test_perplexitys_texts_are_as_they_came() -> None:
    api = Api("perplexity")
    hit = api.search()[1]
    api.close()
    assert hit.title == 'The ibex & its "horns" 1'
    assert hit.excerpt.startswith("# Ibex 1\n\n## Part 0\n\nOf *ibex* <b>1</b> & co.")
    assert hit.date == "2024-12-27"


def test_more_results_than_were_wanted_are_left_out(search: Api) -> None:
    search.server.says(search.module.found(*(search.module.result(n) for n in range(20))))
    assert len(search.search(limit=4)) == 4


def test_nothing_found_is_no_failure(search: Api) -> None:
    search.server.says(search.module.found())
    assert search.search() == ()


def test_an_answer_of_brave_without_web_results_is_nothing_found() -> None:
    api = Api("brave")
    answer = api.module.found()
    del answer["web"]
    api.server.says(answer)
    assert api.search() == ()
    api.close()


OPTIONAL: dict[str, Any] = {
    "brave": {"description": None, "page_age": None, "age": None},
    "perplexity": {"snippet": None, "date": None, "last_updated": None},
}


def test_a_result_without_excerpt_and_date_is_one(search: Api) -> None:
    fields = OPTIONAL[search.name]
    told = search.module.result(0)
    search.server.says(
        search.module.found(told | fields, {k: v for k, v in told.items() if k not in fields})
    )
    hits = search.search()
    assert [(hit.excerpt, hit.date) for hit in hits] == [("", None), ("", None)]


@pytest.mark.parametrize(
    "date", ["4 days ago", "", "yesterday", 5, [], "2024-13-45", "٢٠٢٤-١٢-٢٧", "2024-12-27" * 50]
)
def test_a_date_that_is_none_is_left_out(search: Api, date: Any) -> None:
    name = "page_age" if search.name == "brave" else "date"
    more = {"age": None} if search.name == "brave" else {"last_updated": None}
    search.server.says(search.module.found(search.module.result(0, **{name: date}, **more)))
    assert [hit.date for hit in search.search()] == [None]


@pytest.mark.behaviour("search:no-dereference")
def test_what_is_found_is_not_looked_at(search: Api) -> None:
    other = Peer(says(b"HTTP/1.1 200 OK\r\n\r\n"))
    url = f"http://127.0.0.1:{other.port}/result"
    more = {"thumbnail": {"src": url}, "profile": {"img": url}}
    search.server.says(search.module.found(search.module.result(0, url=url, **more)))
    search.search()
    other.close()
    assert other.connections == 0
    assert len(search.egress.sent) == 1


@pytest.mark.parametrize("wrong", [{"url": None}, {"url": 5}, {"title": None}, {"title": ["x"]}])
def test_a_result_that_is_none_takes_nothing_from_the_others(
    search: Api, wrong: dict[str, Any]
) -> None:
    module = search.module
    search.server.says(module.found(module.result(0, **wrong), module.result(1)))
    hits = search.search()
    assert hits[-1].url == "https://goats.example/ibex/1?a=1&b=2"
    assert {type(text) for hit in hits for text in (hit.url, hit.title)} == {str}


def test_a_page_is_its_content_and_its_title(read: Api) -> None:
    page = read.read()
    assert isinstance(page, Page)
    assert page.markdown.strip() == read.module.MARKDOWN.strip()
    assert page.title in (read.module.TITLE, None)


def test_firecrawls_title_may_be_told_in_several_ways() -> None:
    api = Api("firecrawl")
    ways: list[tuple[Any, str | None]] = [
        ("The ibex", "The ibex"),
        (["The ibex", "Goats"], "The ibex"),
        (None, None),
        ([], None),
        (5, None),
        ([None, {}], None),
        ("  ", None),
    ]
    for told, meant in ways:
        api.server.says(api.module.page(PAGE_URL, metadata={"title": told}))
        assert api.read().title == meant, told
    api.close()


@pytest.mark.parametrize("lacks", ["metadata", "title", "statusCode"])
def test_a_page_without_what_is_optional_is_one(lacks: str) -> None:
    api = Api("firecrawl")
    for gone in (True, False):
        answer = api.module.page(PAGE_URL)
        where = answer["data"] if lacks == "metadata" else answer["data"]["metadata"]
        if gone:
            del where[lacks]
        else:
            where[lacks] = None
        api.server.says(answer)
        assert api.read().markdown == api.module.MARKDOWN
    api.close()


def test_front_matter_of_cloudflares_is_no_trap() -> None:
    api = Api("cloudflare")
    api.server.says(api.module.page(api.module.FRONT_MATTER + api.module.MARKDOWN))
    page = api.read()
    assert page.markdown.strip().endswith(api.module.MARKDOWN.strip())
    assert page.title in (api.module.TITLE, None)
    for text in ("---\n", "---\ntitle: x\n", "---\ntitle: [\n---\n# x", "--- x ---\n\nwords"):
        api.server.says(api.module.page(text))
        assert api.read().markdown
    api.close()


@pytest.mark.behaviour("fetch:no-final-url")
def test_where_a_page_ended_up_is_not_claimed(read: Api) -> None:
    assert not {"url", "final_url"} & set(Page.__dataclass_fields__)
    assert "#final" not in repr(read.read())


# ---- how a good answer may come


def test_an_answer_may_come_in_chunks(api: Api) -> None:
    body = as_json(api.good())
    chunks = b"".join(
        b"%x;ext=1\r\n%s\r\n" % (len(part), part)
        for part in (body[n : n + 100] for n in range(0, len(body), 100))
    )
    headers = {**JSON, "Transfer-Encoding": "chunked"}
    api.server.sends(WireReply(200, chunks + b"0\r\n\r\n", headers))
    assert api.ask()


def test_an_answer_of_two_mebibytes_is_read(api: Api) -> None:
    api.server.sends(WireReply(200, _padded(api.good(), PROVIDER_ANSWER_BYTES_MAX), JSON))
    assert api.ask()


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "", "application/problem+json"])
def test_the_name_of_the_answers_kind_does_not_matter(api: Api, kind: str) -> None:
    api.server.sends(WireReply(200, as_json(api.good()), {"Content-Type": kind} if kind else {}))
    assert api.ask()


def test_unknown_and_absent_fields_are_no_reason_to_fail(api: Api) -> None:
    answer = api.good() | {"messages": None, "warning": {"x": 1}, "_": [[[]]]}
    api.server.says(answer, X_Anything="yes", Set_Cookie="a=b")
    assert api.ask()
    api.ask()
    assert "cookie" not in api.server.requests[-1].headers


def test_a_later_request_knows_nothing_of_an_earlier_one(api: Api) -> None:
    api.ask()
    api.ask()
    first, second = api.server.requests
    assert first == second
    assert api.peer.connections == 2


def test_lone_surrogates_reach_nobody(api: Api) -> None:
    text = json.dumps(api.good()).replace("ibex", "ib\\ud800ex").replace("goat", "go\\udfffat")
    api.server.sends(WireReply(200, text.encode(), JSON))
    try:
        found = api.ask()
    except ProviderFailure:
        return
    for value in _texts(found):
        value.encode("utf-8")


def _texts(found: tuple[Hit, ...] | Page) -> Iterator[str]:
    records = (found,) if isinstance(found, Page) else found
    for record in records:
        for name in record.__dataclass_fields__:
            if isinstance(value := getattr(record, name), str):
                yield value


def _padded(document: Any, size: int) -> bytes:
    """The document with a field nobody knows, as so many bytes."""
    bare = len(as_json(document | {"padding": ""}))
    return as_json(document | {"padding": "x" * (size - bare)})


assert set(SEARCH) | set(READ) == set(SAID)
