"""Owns Brave's web search: a query in its words, and its results and errors in ours.

Refuses its filters, its summaries and every other kind of result.
Source: api-dashboard.search.brave.com/documentation, Web Search; header `X-Subscription-Token`.
"""

from __future__ import annotations

from typing import Final

from mesh.kernel.clock import Clock
from mesh.kernel.foreign_json import Json, as_object, as_text
from mesh.kernel.limits import PROVIDER_RETRY_AFTER_S_MAX, PROVIDER_SEARCH_S
from mesh.records.connection import Provider
from mesh.security.egress.contract import Egress, Reply
from mesh.security.urls import query_of
from mesh.tools.web.catalogue import BRAVE
from mesh.tools.web.contract import Access, FailureKind, Hit, ProviderFailure, Stage
from mesh.tools.web.exchange import Answer, Exchange, header_key
from mesh.tools.web.reading import date_of, plain

_PATH: Final = "/res/v1/web/search"

_ERRORS: Final = {
    # A bad key comes with 422, which would else say that the query is wrong.
    "SUBSCRIPTION_TOKEN_INVALID": FailureKind.AUTHORIZATION,
    "SUBSCRIPTION_NOT_FOUND": FailureKind.NOT_FOUND,
    "OPTION_NOT_IN_PLAN": FailureKind.AUTHORIZATION,
    "RATE_LIMITED": FailureKind.RATE,
    "QUOTA_LIMITED": FailureKind.QUOTA,
    "VALIDATION": FailureKind.REFUSED,
}


class BraveSearch:
    """Implements `SearchAdapter`."""

    provider: Provider = BRAVE

    def __init__(self, egress: Egress, clock: Clock) -> None:
        self._exchange = Exchange(BRAVE, egress, clock)

    def search(self, query: str, limit: int, access: Access) -> tuple[Hit, ...]:
        """See `SearchAdapter`."""
        asked = query_of([("q", query), ("count", str(limit)), ("text_decorations", "false")])
        headers = {"x-subscription-token": header_key(access)}
        answer = self._exchange.get(f"{_PATH}?{asked}", headers, PROVIDER_SEARCH_S)
        found = _results(answer.body) if answer.ok else None
        if found is None:
            raise _failure_of(answer)
        return tuple(_hit(each) for each in found[:limit])


def search_adapter(egress: Egress, clock: Clock) -> BraveSearch:
    """The adapter, over a way out."""
    return BraveSearch(egress, clock)


def _results(body: Json) -> list[Json] | None:
    """The results; none where the answer to a search has no part for them. None for what is no
    answer to a search."""
    if body.get("type") != "search":
        return None
    web = body.get("web")
    if web is None:
        return []
    results = (as_object(web) or {}).get("results")
    if not isinstance(results, list):
        return None
    return [each for each in map(as_object, results) if each is not None]


def _hit(result: Json) -> Hit:
    title, _ = plain(as_text(result.get("title")))
    excerpt, whole = plain(as_text(result.get("description")))
    return Hit(
        as_text(result.get("url")), title, excerpt, date_of(result.get("page_age")), whole=whole
    )


def _failure_of(answer: Answer) -> ProviderFailure:
    kind = next((_ERRORS[code] for code in _codes(answer.body) if code in _ERRORS), None)
    if _lacks_key(answer.body):  # and its code would say that the query is wrong
        kind = FailureKind.AUTHORIZATION
    found = answer.failure(None if kind is None else (Stage.ANSWER, kind))
    if found.retry_after_s is None and found.kind in (FailureKind.RATE, FailureKind.QUOTA):
        waits = _waits_s(answer.reply)
        if waits:
            # A month that is used up ends no sooner for a second that is used up as well.
            found.retry_after_s = waits[0] if found.kind is FailureKind.RATE else max(waits)
    return found


def _errors(body: Json) -> list[Json]:
    """The errors of an answer, in either of the forms that are documented: one, or a list."""
    one, several = body.get("error"), body.get("errors")
    given = [one, *(several if isinstance(several, list) else [])]
    return [each for each in map(as_object, given) if each is not None]


def _codes(body: Json) -> list[str]:
    return [as_text(error.get("code")) for error in _errors(body)]


def _lacks_key(body: Json) -> bool:
    """Whether it was the key's header that did not validate."""
    for error in _errors(body):
        problems = (as_object(error.get("meta")) or {}).get("errors")
        for problem in problems if isinstance(problems, list) else []:
            place = (as_object(problem) or {}).get("loc")
            if isinstance(place, list) and "x-subscription-token" in place:
                return True
    return False


def _waits_s(reply: Reply) -> list[float]:
    """Of each window that has nothing left, how long it still goes on, in their order."""
    left = (reply.header("x-ratelimit-remaining") or "").split(",")
    until = (reply.header("x-ratelimit-reset") or "").split(",")
    return [
        min(float(seconds), float(PROVIDER_RETRY_AFTER_S_MAX))
        for remaining, seconds in zip(map(str.strip, left), map(str.strip, until), strict=False)
        if remaining == "0" and seconds.isascii() and seconds.isdigit() and len(seconds) < 12
    ]
