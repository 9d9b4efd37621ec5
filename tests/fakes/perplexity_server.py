"""Owns Perplexity's Search API as tests have it.

Sources: the types of Perplexity's own Python library (`search_create_params`,
`search_create_response`) and its mirrored OpenAPI document.
"""

from __future__ import annotations

import re
from typing import Any

from tests.fakes.model_servers import WireReply, WireRequest, demand
from tests.fakes.web_servers import (
    PRIVATE,
    Asked,
    WebServer,
    a_bool,
    a_list,
    a_number,
    a_text,
    bearer,
    demand_known,
    json_body,
    one_of,
    told,
)

_BUDGETS = frozenset({"max_tokens", "max_tokens_per_page"})
_DATE = re.compile(r"\d\d?/\d\d?/\d{4}")
_RULES = {
    "query": a_text,
    "max_results": a_number(1, 20),
    "max_tokens": a_number(1, 1_000_000),
    "max_tokens_per_page": a_number(1, 1_000_000),
    "search_context_size": one_of("low", "medium", "high"),
    "country": lambda it: isinstance(it, str) and re.fullmatch(r"[A-Z]{2}", it),
    "search_domain_filter": a_list(a_text, 20),
    "search_language_filter": a_list(a_text, 10),
    "search_recency_filter": one_of("hour", "day", "week", "month", "year"),
    "search_after_date_filter": lambda it: isinstance(it, str) and _DATE.fullmatch(it),
    "search_before_date_filter": lambda it: isinstance(it, str) and _DATE.fullmatch(it),
    "search_mode": one_of("web", "academic", "sec"),
    "search_type": one_of("web", "people"),
    "display_server_time": a_bool,
}


class PerplexityServer(WebServer):
    """`POST /search`."""

    own_headers = frozenset({"authorization"})

    def read(self, request: WireRequest) -> Asked:
        demand((request.method, request.path) == ("POST", "/search"), "POST /search")
        key = self.held(bearer(request))
        body = json_body(request)
        demand("query" in body, "there is a query")
        demand_known(body, _RULES)
        sized = "search_context_size" in body
        demand(not (sized and _BUDGETS & body.keys()), "a size, or budgets of tokens")
        return Asked(body.pop("query"), key, body)

    def answer(self, asked: Asked) -> Any:
        return found(*(result(n) for n in range(asked.options.get("max_results", 10))))

    def invalid(self) -> WireReply:
        return told({"detail": [{"loc": ["body"], "msg": PRIVATE, "type": "value_error"}]}, 422)

    def unauthorized(self) -> WireReply:
        return error(401, "invalid_api_key")


def found(*results: Any, **more: Any) -> Any:
    """A whole answer."""
    return {
        "id": "e38104d5-6bd7-4d82-bc4e-0a21179d1f77",
        "results": list(results),
        "server_time": None,
        "a_field_of_tomorrow": {"deep": [1, None, {}]},
        **more,
    }


def result(number: int, **more: Any) -> Any:
    """A result; its snippet is a long text in Markdown."""
    lines = "\n\n".join(f"## Part {n}\n\nOf *ibex* <b>{number}</b> & co." for n in range(40))
    return {
        "title": f'The ibex & its "horns" {number}',
        "url": f"https://goats.example/ibex/{number}?a=1&b=2",
        "snippet": f"# Ibex {number}\n\n{lines}",
        "date": "2024-12-27",
        "last_updated": "2025-02-03",
        "a_field_of_tomorrow": number,
    } | more


def error(status: int, code: str | int | None = None) -> WireReply:
    """The envelope of an error, as it was seen: nobody documents it."""
    told_of = {"message": PRIVATE, "type": "error", "code": status if code is None else code}
    return told({"error": told_of}, status)


_PAGE = f"<html><head><title>401</title></head><body>{PRIVATE}<hr>openresty</body></html>".encode()
_LIMITED = error(429, "rate_limit_exceeded")

ERRORS = {
    "bad request": error(400, "invalid_request"),
    "bad key": error(401, "invalid_api_key"),
    "bad key, as a page of the edge": WireReply(401, _PAGE, {"Content-Type": "text/html"}),
    "no credit": error(401, "insufficient_quota"),
    "forbidden": error(403),
    "not found": error(404),
    "conflict": error(409),
    "bad body": told({"detail": [{"loc": ["body", "max_results"], "msg": PRIVATE}]}, 422),
    "rate": WireReply(429, _LIMITED.body, {**_LIMITED.headers, "Retry-After": "7"}),
    "rate, as a page of the edge": WireReply(429, _PAGE, {"Content-Type": "text/html"}),
    "internal": error(500),
    "gateway": WireReply(502, _PAGE, {"Content-Type": "text/html"}),
    "unavailable": error(503),
    "timeout of the edge": WireReply(504, _PAGE, {"Content-Type": "text/html"}),
    "unavailable, without a word": WireReply(503),
}
