"""Owns Brave's web search as tests have it.

Sources: api-dashboard.search.brave.com, API reference of web search and response headers; the types
of Brave's own MCP server. A bad key is 422 there, and not 401.
"""

from __future__ import annotations

import re
from typing import Any

from tests.fakes.model_servers import WireReply, WireRequest, demand
from tests.fakes.web_servers import PRIVATE, Asked, WebServer, parameters, told

_BOOL = re.compile(r"true|false")
_RULES = {
    "q": re.compile(r"(?s).{1,400}"),
    "count": re.compile(r"[1-9]|1[0-9]|20"),
    "offset": re.compile(r"[0-9]"),
    "freshness": re.compile(r"p[dwmy]|\d{4}-\d\d-\d\dto\d{4}-\d\d-\d\d"),
    "safesearch": re.compile(r"off|moderate|strict"),
    "country": re.compile(r"[A-Z]{2}|ALL"),
    "search_lang": re.compile(r"[a-z]{2}(-[a-z]+)?"),
    "ui_lang": re.compile(r"[a-z]{2}-[A-Z]{2}"),
    "result_filter": re.compile(r"[a-z]+(,[a-z]+)*"),
    "text_decorations": _BOOL,
    "spellcheck": _BOOL,
    "extra_snippets": _BOOL,
    "summary": _BOOL,
    "operators": _BOOL,
}
_FILTERS = frozenset(
    {"discussions", "faq", "infobox", "news", "query", "summarizer", "videos", "web"}
    | {"locations", "rich"}
)


class BraveServer(WebServer):
    """`GET /res/v1/web/search`."""

    own_headers = frozenset({"x-subscription-token", "cache-control", "api-version"})

    def read(self, request: WireRequest) -> Asked:
        path, given = parameters(request.path)
        demand((request.method, path) == ("GET", "/res/v1/web/search"), "GET /res/v1/web/search")
        demand(request.body == b"", "a GET has no body")
        demand("x-subscription-token" in request.headers, "there is a token")
        key = self.held(request.headers["x-subscription-token"])
        demand("q" in given, "there is a query")
        for name, value in given.items():
            demand(name in _RULES, f"there is a parameter {name}")
            demand(_RULES[name].fullmatch(value), f"{name} is as it has to be")
        demand(given["q"].strip() and len(given["q"].split()) <= 50, "a query has 1 to 50 words")
        wanted = given.get("result_filter")
        demand(wanted is None or set(wanted.split(",")) <= _FILTERS, "the filters are known")
        return Asked(given.pop("q"), key, given)

    def answer(self, asked: Asked) -> Any:
        return found(*(result(n) for n in range(int(asked.options.get("count", 20)))))

    def invalid(self) -> WireReply:
        return error(422, "VALIDATION", errors=[{"loc": ["query", "q"], "msg": PRIVATE}])

    def unauthorized(self) -> WireReply:
        return error(422, "SUBSCRIPTION_TOKEN_INVALID", component="authentication")


def found(*results: Any, **more: Any) -> Any:
    """A whole answer."""
    return {
        "type": "search",
        "query": {"original": "ibex", "more_results_available": True, "country": "us"},
        "mixed": {"type": "mixed", "main": [{"type": "web", "index": 0, "all": False}]},
        "web": {"type": "search", "family_friendly": True, "results": list(results)},
        "a_field_of_tomorrow": {"deep": [1, None, {}]},
        **more,
    }


def result(number: int, **more: Any) -> Any:
    """A result as it is told, with the markup and the entities that Brave puts into texts."""
    return {
        "type": "search_result",
        "subtype": "generic",
        "title": f"The <strong>ibex</strong> &amp; its &quot;horns&quot; {number}",
        "url": f"https://goats.example/ibex/{number}?a=1&b=2",
        "description": f"It&#x27;s a <strong>wild goat</strong> of rank {number}.",
        "page_age": "2024-12-27T15:49:55",
        "age": "December 27, 2024",
        "language": "en",
        "family_friendly": True,
        "is_live": False,
        "is_source_local": False,
        "profile": {"name": "Goats", "url": "https://goats.example", "img": None},
        "meta_url": {"scheme": "https", "netloc": "goats.example", "path": "› ibex"},
        "thumbnail": None,
        "a_field_of_tomorrow": number,
    } | more


def error(status: int, code: str, *, plural: bool = False, **meta: Any) -> WireReply:
    """The envelope of an error; `plural` as the published examples have it, else as its schema."""
    told_of = {
        "id": "5f8e4a7c-0d1b-4c55-9c1e-3a4f5b6c7d8e",
        "status": status,
        "code": code,
        "detail": PRIVATE,
        "meta": meta,
    }
    envelope: dict[str, Any] = {"errors": [told_of]} if plural else {"error": told_of}
    return told({"type": "ErrorResponse", **envelope, "time": 1_796_000_000}, status)


def limited(code: str = "RATE_LIMITED") -> WireReply:
    """429, whose headers have a window of a second and one of a month."""
    used_up = code == "QUOTA_LIMITED"
    reply = error(429, code, component="rate_limiter", rate_limit=1, quota_limit=15_000)
    windows = {
        "X-RateLimit-Limit": "1, 15000",
        "X-RateLimit-Policy": "1;w=1, 15000;w=2592000",
        "X-RateLimit-Remaining": "1, 0" if used_up else "0, 1000",
        "X-RateLimit-Reset": "1, 1419704",
    }
    return WireReply(429, reply.body, {**reply.headers, **windows})


ERRORS = {
    "bad key": error(422, "SUBSCRIPTION_TOKEN_INVALID", component="authentication"),
    "bad key, plural": error(422, "SUBSCRIPTION_TOKEN_INVALID", plural=True),
    "no key": error(422, "VALIDATION", errors=[{"loc": ["header", "x-subscription-token"]}]),
    "bad parameter": error(422, "VALIDATION", errors=[{"loc": ["query", "count"]}]),
    "bad parameter, plural": error(422, "VALIDATION", plural=True),
    "no subscription": error(404, "SUBSCRIPTION_NOT_FOUND"),
    "option not in plan": error(403, "OPTION_NOT_IN_PLAN"),
    "rate": limited(),
    "quota": limited("QUOTA_LIMITED"),
    "unauthorized": error(401, "UNAUTHORIZED"),
    "forbidden": error(403, "FORBIDDEN"),
    "internal": error(500, "INTERNAL"),
    "unavailable": error(503, "UNAVAILABLE"),
}
