"""The stand-ins refuse what the real APIs refuse, so that what they let pass means something."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.fakes.cloudflare_server import ACCOUNT
from tests.fakes.model_servers import WireReply, WireRequest
from tests.fakes.web_servers import WebServer
from tests.unit.web.apis import SAID

KEY = WebServer.key
SEARCH = "/res/v1/web/search"
MARKDOWN = f"/client/v4/accounts/{ACCOUNT}/browser-rendering/markdown"


def get(server: WebServer, query: str, **headers: str | None) -> WireReply:
    given = {"host": "x", "accept-encoding": "identity", "x-subscription-token": KEY}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    kept = {name: value for name, value in (given | named).items() if value is not None}
    return server.reply(WireRequest("GET", f"{SEARCH}?{query}", kept, b""))


def post(
    server: WebServer, path: str, body: Any, *, key: str = KEY, kind: str = "application/json"
) -> WireReply:
    headers = {
        "host": "x",
        "accept-encoding": "identity",
        "content-type": kind,
        "authorization": f"Bearer {key}",
    }
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return server.reply(WireRequest("POST", path, headers, sent))


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ("", "there is a query"),
        ("q=", "q is as it has to be"),
        ("q=+++", "a query has 1 to 50 words"),
        (f"q={'x' * 401}", "q is as it has to be"),
        (f"q={quote(' '.join(['x'] * 51))}", "a query has 1 to 50 words"),
        ("q=x&count=0", "count is as it has to be"),
        ("q=x&count=21", "count is as it has to be"),
        ("q=x&count=05", "count is as it has to be"),
        ("q=x&offset=10", "offset is as it has to be"),
        ("q=x&text_decorations=False", "text_decorations is as it has to be"),
        ("q=x&result_filter=webs", "the filters are known"),
        ("q=x&nonsense=1", "there is a parameter nonsense"),
        ("q=x&q=y", "each parameter is there once"),
        ("q=%FF", "the query is one"),
    ],
)
def test_brave_refuses_parameters_that_are_wrong(query: str, rule: str) -> None:
    server = SAID["brave"].server()
    reply = get(server, query)
    assert (reply.status, server.broken) == (422, [rule])
    assert json.loads(reply.body)["error"]["code"] == "VALIDATION"


def test_brave_takes_the_longest_query_and_counts_its_results() -> None:
    server = SAID["brave"].server()
    query = urlencode({"q": "ü" * 400, "count": 20, "text_decorations": "false"})
    assert len(json.loads(get(server, query).body)["web"]["results"]) == 20
    assert (server.broken, server.asked[0].about) == ([], "ü" * 400)


@pytest.mark.parametrize(
    "headers",
    [
        {"x_subscription_token": None},
        {"accept_encoding": "gzip"},
        {"cookie": "a=b"},
        {"traceparent": "00-1"},
    ],
    ids=str,
)
def test_headers_that_are_wrong_are_a_broken_rule(headers: dict[str, Any]) -> None:
    server = SAID["brave"].server()
    get(server, "q=x", **headers)
    assert len(server.broken) == 1


GOOD: Mapping[str, tuple[str, Any]] = {
    "perplexity": ("/search", {"query": "x", "max_results": 5, "max_tokens": 10}),
    "firecrawl": ("/v2/scrape", {"url": "https://x.example", "maxAge": 0, "timeout": 30_000}),
    "cloudflare": (f"{MARKDOWN}?cacheTTL=0", {"url": "https://x.example"}),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_request_is_answered(name: str) -> None:
    server = SAID[name].server()
    path, body = GOOD[name]
    assert (post(server, path, body).status, server.broken) == (200, [])
    assert server.asked[0].credential == KEY


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("perplexity", {"query": ""}),
        ("perplexity", {"query": ["a", "b"]}),
        ("perplexity", {"max_results": 21}),
        ("perplexity", {"max_results": True}),
        ("perplexity", {"max_tokens": 0}),
        ("perplexity", {"search_context_size": "low"}),
        ("perplexity", {"country": "us"}),
        ("perplexity", {"limit": 5}),
        ("firecrawl", {"url": "x.example"}),
        ("firecrawl", {"url": None}),
        ("firecrawl", {"formats": []}),
        ("firecrawl", {"formats": ["text"]}),
        ("firecrawl", {"timeout": 999}),
        ("firecrawl", {"timeout": 300_001}),
        ("firecrawl", {"maxAge": "0"}),
        ("firecrawl", {"origin": "mesh"}),
        ("cloudflare", {"html": "<p>"}),
        ("cloudflare", {"url": "ftp://x.example"}),
        ("cloudflare", {"goToOptions": {}}),
        ("cloudflare", {"gotoOptions": {"timeout": 60_001}}),
        ("cloudflare", {"gotoOptions": {"waitUntil": "idle"}}),
        ("cloudflare", {"cacheTTL": 0}),
    ],
    ids=str,
)
def test_a_body_that_is_wrong_is_refused(name: str, wrong: dict[str, Any]) -> None:
    server = SAID[name].server()
    path, body = GOOD[name]
    assert post(server, path, body | wrong).status in (400, 422)
    assert len(server.broken) == 1
    assert server.asked == []


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"url": "https://x.example", "url": ""}'])
def test_a_body_that_is_none_is_refused(name: str, body: bytes) -> None:
    server = SAID[name].server()
    assert post(server, GOOD[name][0], body).status in (400, 422)
    assert post(server, *GOOD[name], kind="text/plain").status in (400, 422)
    assert len(server.broken) == 2


@pytest.mark.parametrize(
    "path",
    [
        MARKDOWN.replace(ACCOUNT, "0" * 32),
        MARKDOWN.replace("markdown", "content"),
        f"{MARKDOWN}?cacheTTL=86401",
        f"{MARKDOWN}?cacheTTL=-1",
        f"{MARKDOWN}?cache=0",
    ],
)
def test_cloudflare_refuses_paths_that_are_wrong(path: str) -> None:
    server = SAID["cloudflare"].server()
    assert post(server, path, {"url": "https://x.example"}).status == 400
    assert len(server.broken) == 1


@pytest.mark.parametrize("name", GOOD)
def test_a_key_that_is_not_its_own_is_401(name: str) -> None:
    server = SAID[name].server()
    assert post(server, *GOOD[name], key="another").status == 401
    assert server.broken == []


def test_braves_wrong_key_is_422() -> None:
    server = SAID["brave"].server()
    reply = get(server, "q=x", x_subscription_token="another")
    assert reply.status == 422
    assert json.loads(reply.body)["error"]["code"] == "SUBSCRIPTION_TOKEN_INVALID"


def test_what_was_scripted_comes_in_turn_and_the_last_for_ever() -> None:
    server = SAID["brave"].server()
    server.says({"n": 1})
    server.says({"n": 2}, 503)
    said = [get(server, "q=x") for _ in range(3)]
    assert [(it.status, json.loads(it.body)["n"]) for it in said] == [(200, 1), (503, 2), (503, 2)]
