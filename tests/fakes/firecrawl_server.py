"""Owns Firecrawl's scrape of its second version as tests have it.

Sources: docs.firecrawl.dev, API reference and errors of v2; the scrape controller of its open
server. A page's own 404 is a success there.
"""

from __future__ import annotations

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
    a_web_url,
    bearer,
    demand_known,
    json_body,
    one_of,
    told,
)

_FORMAT = one_of("markdown", "html", "rawHtml", "links", "images", "summary")
_RULES = {
    "url": a_web_url,
    "formats": lambda it: it and a_list(_FORMAT)(it),
    "onlyMainContent": a_bool,
    "includeTags": a_list(a_text),
    "excludeTags": a_list(a_text),
    "maxAge": a_number(0, 1 << 53),
    "minAge": a_number(0, 1 << 53),
    "storeInCache": a_bool,
    "waitFor": a_number(0, 60_000),
    "timeout": a_number(1_000, 300_000),
    "skipTlsVerification": a_bool,
    "mobile": a_bool,
    "blockAds": a_bool,
    "removeBase64Images": a_bool,
    "proxy": one_of("basic", "enhanced", "auto", "stealth"),
    "parsers": a_list(one_of("pdf")),
    "location": lambda it: isinstance(it, dict),
    "headers": lambda it: isinstance(it, dict),
    "actions": lambda it: isinstance(it, list),
    "zeroDataRetention": a_bool,
}


class FirecrawlServer(WebServer):
    """`POST /v2/scrape`; it knows its own fields and no others."""

    own_headers = frozenset({"authorization", "x-idempotency-key"})

    def read(self, request: WireRequest) -> Asked:
        demand((request.method, request.path) == ("POST", "/v2/scrape"), "POST /v2/scrape")
        key = self.held(bearer(request))
        body = json_body(request)
        demand("url" in body, "there is a URL")
        demand_known(body, _RULES)
        return Asked(body.pop("url"), key, body)

    def answer(self, asked: Asked) -> Any:
        return page(asked.about)

    def invalid(self) -> WireReply:
        return error(400, "BAD_REQUEST", details=[{"path": ["url"], "message": PRIVATE}])

    def unauthorized(self) -> WireReply:
        return error(401)


MARKDOWN = "# The ibex\n\nA *wild goat* & its horns.\n"
TITLE = "The ibex"


def page(url: str, *, metadata: dict[str, Any] | None = None, **data: Any) -> Any:
    """A whole answer; a field of `data` or `metadata` that is None is told as null."""
    return {
        "success": True,
        "data": {
            "markdown": MARKDOWN,
            "warning": None,
            "metadata": {
                "title": TITLE,
                "description": ["of goats", "of horns"],
                "language": "en",
                "keywords": None,
                "sourceURL": url,
                "url": f"{url}#final",
                "statusCode": 200,
                "contentType": "text/html; charset=utf-8",
                "scrapeId": "a9e5b3f0-6b0a-4d8d-9b3d-1d1a7d0b6a55",
                "proxyUsed": "basic",
                "cacheState": "miss",
                "creditsUsed": 1,
                "og:a_field_of_tomorrow": "x",
            }
            | (metadata or {}),
        }
        | data,
        "a_field_of_tomorrow": {"deep": [1, None, {}]},
    }


def error(status: int, code: str | None = None, **more: Any) -> WireReply:
    """The envelope of an error."""
    named = {} if code is None else {"code": code}
    return told({"success": False, **named, "error": f"Error: {PRIVATE}", **more}, status)


_LIMITED = error(429)
_LARGE = error(408, "SCRAPE_TIMEOUT", details={"state": "processing_continues", "x": PRIVATE})

ERRORS = {
    "bad request": error(400, "BAD_REQUEST", details=[{"message": PRIVATE}]),
    "no JSON": error(400, "BAD_REQUEST_INVALID_JSON"),
    "actions": error(400, "SCRAPE_ACTIONS_NOT_SUPPORTED"),
    "content too large": error(400, "SCRAPE_JSON_CONTENT_TOO_LARGE"),
    "unknown key": error(400, details=[{"code": "unrecognized_keys", "keys": ["x"]}]),
    "bad key": error(401),
    "no credits": told({"error": PRIVATE}, 402),
    "no credits, in an envelope": error(402),
    "forbidden": error(403),
    "terms": error(403, "THIRD_PARTY_DATA_TERMS_REQUIRED", requiresAction=True),
    "site not supported": error(403, "UNSUPPORTED_SITE"),
    "site blocked": error(403, "unsafe_domain_blocked"),
    "site in safe mode": error(403, "SAFE_MODE_BLOCKED"),
    "injection": error(403, "SCRAPE_PROMPT_INJECTION_DETECTED"),
    "media": error(403, "SCRAPE_MEDIA_ACCESS_DENIED"),
    "not found": error(404),
    "no copy": error(404, "SCRAPE_NO_CACHED_DATA"),
    "no copy, locked down": error(404, "SCRAPE_LOCKDOWN_CACHE_MISS"),
    "gone": error(410),
    "timeout": error(408, "SCRAPE_TIMEOUT"),
    "timeout of a large PDF": WireReply(408, _LARGE.body, {**_LARGE.headers, "Retry-After": "9"}),
    "queue timeout": error(408, "CONCURRENCY_QUEUE_TIMEOUT"),
    "conflict": error(409),
    "too large": error(413),
    "schema": error(422),
    "rate": WireReply(429, _LIMITED.body, {**_LIMITED.headers, "Retry-After": "7"}),
    "rate, without envelope": told({"error": PRIVATE}, 429),
    "dns, as a success": error(200, "SCRAPE_DNS_RESOLUTION_ERROR"),
    "dns": error(500, "SCRAPE_DNS_RESOLUTION_ERROR"),
    "certificate": error(500, "SCRAPE_SSL_ERROR"),
    "site": error(500, "SCRAPE_SITE_ERROR"),
    "all engines": error(500, "SCRAPE_ALL_ENGINES_FAILED"),
    "retries": error(500, "SCRAPE_RETRY_LIMIT"),
    "file": error(500, "SCRAPE_UNSUPPORTED_FILE_ERROR"),
    "PDF": error(500, "SCRAPE_PDF_PREFETCH_FAILED"),
    "retention": error(500, "SCRAPE_ZDR_VIOLATION_ERROR"),
    "action": error(500, "SCRAPE_ACTION_ERROR"),
    "unknown": error(500, "UNKNOWN_ERROR"),
    "internal": error(500),
    "gateway": WireReply(502, f"<html>{PRIVATE}</html>".encode(), {"Content-Type": "text/html"}),
    "unavailable": WireReply(503),
    "timeout of the gateway": WireReply(504),
    "unsuccessful": error(200),
    "unsuccessful, without a word": told({"success": False}),
}
