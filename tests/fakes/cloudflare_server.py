"""Owns Cloudflare's quick action for Markdown (Browser Rendering) as tests have it.

Sources: developers.cloudflare.com/browser-run, quick actions, reference of errors, limits; the
types of Cloudflare's own Python library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    parameters,
    told,
)

ACCOUNT = "023e105f4ecef8ad9ca31a8372d0c353"
_PATH = re.compile(r"/client/v4/accounts/([0-9a-f]{32})/browser-rendering/markdown")
_UNTIL = one_of("load", "domcontentloaded", "networkidle0", "networkidle2")
_GOTO = {
    "timeout": a_number(0, 60_000),
    "waitUntil": lambda it: _UNTIL(it) or (it and a_list(_UNTIL)(it)),
    "referer": a_text,
    "referrerPolicy": a_text,
}


def _is_goto(given: Any) -> bool:
    demand(isinstance(given, dict), "gotoOptions is an object")
    demand_known(given, _GOTO)
    return True


_RULES = {
    "url": a_web_url,
    "html": a_text,
    "gotoOptions": _is_goto,
    "waitForSelector": lambda it: isinstance(it, dict),
    "waitForTimeout": a_number(0, 60_000),
    "actionTimeout": a_number(0, 300_000),
    "bestAttempt": a_bool,
    "userAgent": a_text,
    "viewport": lambda it: isinstance(it, dict),
    "setJavaScriptEnabled": a_bool,
    "rejectResourceTypes": a_list(a_text),
    "allowResourceTypes": a_list(a_text),
    "rejectRequestPattern": a_list(a_text),
    "allowRequestPattern": a_list(a_text),
    "cookies": lambda it: isinstance(it, list),
    "setExtraHTTPHeaders": lambda it: isinstance(it, dict),
    "authenticate": lambda it: isinstance(it, dict),
}


class CloudflareServer(WebServer):
    """`POST /client/v4/accounts/{account_id}/browser-rendering/markdown`."""

    own_headers = frozenset({"authorization"})

    def read(self, request: WireRequest) -> Asked:
        path, given = parameters(request.path)
        match = _PATH.fullmatch(path)
        demand(request.method == "POST" and match, "POST to an account's browser-rendering")
        assert match is not None
        demand(match[1] == ACCOUNT, "the account is this one")
        key = self.held(bearer(request))
        for name, value in given.items():
            demand(name in ("cacheTTL", "browser"), f"there is a parameter {name}")
            if name == "cacheTTL":
                whole = re.fullmatch(r"0|[1-9][0-9]{0,4}", value)
                demand(whole and int(value) <= 86_400, "cacheTTL is 0 to 86400")
        body = json_body(request)
        demand(("url" in body) != ("html" in body), "exactly one of url and html")
        demand_known(body, _RULES)
        return Asked(body.pop("url", body.pop("html", "")), key, {**given, **body})

    def answer(self, asked: Asked) -> Any:
        return page()

    def invalid(self) -> WireReply:
        return error(400)

    def unauthorized(self) -> WireReply:
        return error(401, 10_000)


MARKDOWN = "# The ibex\n\nA *wild goat* & its horns.\n"
TITLE = "The ibex"
FRONT_MATTER = f"---\ntitle: {TITLE}\n---\n\n"


def page(result: Any = MARKDOWN, **more: Any) -> Any:
    """A whole answer."""
    return {
        "success": True,
        "result": result,
        "errors": [],
        "messages": [],
        "a_field_of_tomorrow": {"deep": [1, None, {}]},
        **more,
    }


def error(status: int, code: int | None = None, **headers: str) -> WireReply:
    """The envelope of an error, which Cloudflare's whole API has."""
    found: list[Mapping[str, Any]] = [] if code is None else [{"code": code, "message": PRIVATE}]
    body = {"success": False, "errors": found or [{"message": PRIVATE}], "messages": []}
    return told({**body, "result": None}, status, X_Browser_Ms_Used="0", **headers)


ERRORS = {
    "bad request": error(400),
    "malformed token": error(400, 6_003),
    "bad token": error(401, 10_000),
    "no access to the account": error(403, 10_000),
    "forbidden": error(403),
    "no such account": error(404, 7_003),
    "timeout": error(408),
    "too large": error(413),
    "certificate": error(422, 5_000),
    "address": error(422, 5_001),
    "connection timed out": error(422, 5_002),
    "too many redirects": error(422, 5_003),
    "http2": error(422, 5_004),
    "dns": error(422, 5_005),
    "reset": error(422, 5_006),
    "http error": error(422, 5_007),
    "refused connection": error(422, 5_008),
    "other network error": error(422, 5_009),
    "blocked address": error(422, 5_010),
    "empty answer": error(422, 5_011),
    "page crash": error(422, 6_000),
    "page closed": error(422, 6_001),
    "page timeout": error(422, 6_002),
    "page failed": error(422, 6_003),
    "too much time today": error(429, None, Retry_After="30000"),
    "rate": error(429, None, Retry_After="7"),
    "rate, with a code": error(429, 2_001, Retry_After="7"),
    "internal": error(500, 2_000),
    "no browser": error(503),
    "gateway": WireReply(502, f"<html>{PRIVATE}</html>".encode(), {"Content-Type": "text/html"}),
    "unsuccessful": error(200),
    "unsuccessful, with a code": error(200, 5_005),
    "unsuccessful, without a word": told({"success": False}),
}
