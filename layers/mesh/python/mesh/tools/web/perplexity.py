"""Owns Perplexity's search: a query in its words, and its results and errors in ours.

Refuses its filters, and its models: no answer is written by anybody.
Source: docs.perplexity.ai, Search API (`POST /search`); the shapes are those of its own client.
"""

from __future__ import annotations

from typing import Final

from mesh.kernel.clock import Clock
from mesh.kernel.foreign_json import Json, as_object, as_text
from mesh.kernel.limits import PROVIDER_SEARCH_S, WEB_EXCERPT_TOKENS
from mesh.records.connection import Provider
from mesh.security.egress.contract import Egress
from mesh.tools.web.catalogue import PERPLEXITY
from mesh.tools.web.contract import Access, FailureKind, Hit, ProviderFailure, Stage
from mesh.tools.web.exchange import Answer, Exchange, bearer
from mesh.tools.web.reading import date_of

_PATH: Final = "/search"

_ERRORS: Final = {
    # It comes with 401, which would else say that the key is wrong.
    "insufficient_quota": FailureKind.QUOTA,
}


class PerplexitySearch:
    """Implements `SearchAdapter`."""

    provider: Provider = PERPLEXITY

    def __init__(self, egress: Egress, clock: Clock) -> None:
        self._exchange = Exchange(PERPLEXITY, egress, clock)

    def search(self, query: str, limit: int, access: Access) -> tuple[Hit, ...]:
        """See `SearchAdapter`."""
        asked = {
            "query": query,
            "max_results": limit,
            # An excerpt is else a long part of its page.
            "max_tokens_per_page": WEB_EXCERPT_TOKENS,
        }
        answer = self._exchange.post(_PATH, bearer(access), asked, PROVIDER_SEARCH_S)
        found = _results(answer.body) if answer.ok else None
        if found is None:
            raise _failure_of(answer)
        return tuple(_hit(each) for each in found[:limit])


def search_adapter(egress: Egress, clock: Clock) -> PerplexitySearch:
    """The adapter, over a way out."""
    return PerplexitySearch(egress, clock)


def _results(body: Json) -> list[Json] | None:
    """The results, flat or in a list for each query; None for what is no answer to a search."""
    given = body.get("results")
    if not isinstance(given, list):
        return None
    flat = [one for each in given for one in (each if isinstance(each, list) else [each])]
    return [each for each in map(as_object, flat) if each is not None]


def _hit(result: Json) -> Hit:
    return Hit(
        as_text(result.get("url")),
        as_text(result.get("title")),
        as_text(result.get("snippet")),
        date_of(result.get("date")),
    )


def _failure_of(answer: Answer) -> ProviderFailure:
    error = as_object(answer.body.get("error")) or {}
    for name in ("code", "type"):
        kind = _ERRORS.get(as_text(error.get(name)))
        if kind is not None:
            return answer.failure((Stage.ANSWER, kind))
    return answer.failure()
