"""Owns Firecrawl's scrape: a page's address in its words, and its content and errors in ours.

Refuses its cache, its actions, and an address after redirects: none is told as verified.
Source: docs.firecrawl.dev, `POST /v2/scrape` and its errors.
"""

from __future__ import annotations

from typing import Final

from mesh.kernel.clock import Clock
from mesh.kernel.foreign_json import Json, as_object, as_text
from mesh.kernel.limits import PAGE_LOAD_MS, PROVIDER_READ_S
from mesh.records.connection import Provider
from mesh.security.egress.contract import Egress
from mesh.tools.web.catalogue import FIRECRAWL
from mesh.tools.web.contract import Access, FailureKind, Page, ProviderFailure, Stage
from mesh.tools.web.cutting import is_blank
from mesh.tools.web.exchange import Answer, Exchange, Meaning, bearer
from mesh.tools.web.reading import error_status

_PATH: Final = "/v2/scrape"

_HOW: Final[Json] = {
    "formats": ["markdown"],
    "onlyMainContent": True,
    # What was read is not served from a cache, and not kept in one.
    "maxAge": 0,
    "storeInCache": False,
    # Left out, certificates are not looked at.
    "skipTlsVerification": False,
    "timeout": PAGE_LOAD_MS,
}

_PAGE_REFUSED: Final = (Stage.PAGE, FailureKind.REFUSED)
_PAGE_UNREACHABLE: Final = (Stage.PAGE, FailureKind.UNREACHABLE)

_ERRORS: Final[dict[str, Meaning]] = {
    "SCRAPE_DNS_RESOLUTION_ERROR": _PAGE_UNREACHABLE,  # comes with 200, or with 500
    "SCRAPE_SSL_ERROR": _PAGE_UNREACHABLE,
    "SCRAPE_SITE_ERROR": _PAGE_UNREACHABLE,
    "SCRAPE_ALL_ENGINES_FAILED": _PAGE_UNREACHABLE,
    "SCRAPE_RETRY_LIMIT": _PAGE_UNREACHABLE,
    "SCRAPE_TIMEOUT": (Stage.PAGE, FailureKind.TIMEOUT),
    # The account's places are all taken: no page was opened.
    "CONCURRENCY_QUEUE_TIMEOUT": (Stage.ANSWER, FailureKind.RATE),
    "SCRAPE_NO_CACHED_DATA": _PAGE_REFUSED,
    "SCRAPE_LOCKDOWN_CACHE_MISS": _PAGE_REFUSED,
    "UNSUPPORTED_SITE": _PAGE_REFUSED,
    "unsafe_domain_blocked": _PAGE_REFUSED,
    "SAFE_MODE_BLOCKED": _PAGE_REFUSED,
    "SCRAPE_PROMPT_INJECTION_DETECTED": _PAGE_REFUSED,
    "SCRAPE_MEDIA_ACCESS_DENIED": _PAGE_REFUSED,
    "SCRAPE_UNSUPPORTED_FILE_ERROR": _PAGE_REFUSED,
    "SCRAPE_JSON_CONTENT_TOO_LARGE": (Stage.PAGE, FailureKind.TOO_LARGE),
    "SCRAPE_ACTION_ERROR": (Stage.ANSWER, FailureKind.UNAVAILABLE),
    "SCRAPE_ACTIONS_NOT_SUPPORTED": (Stage.ANSWER, FailureKind.REFUSED),
    "SCRAPE_ZDR_VIOLATION_ERROR": (Stage.ANSWER, FailureKind.REFUSED),
    "THIRD_PARTY_DATA_TERMS_REQUIRED": (Stage.ANSWER, FailureKind.AUTHORIZATION),
    "BAD_REQUEST": (Stage.ANSWER, FailureKind.REFUSED),
    "BAD_REQUEST_INVALID_JSON": (Stage.ANSWER, FailureKind.REFUSED),
    "UNKNOWN_ERROR": (Stage.ANSWER, FailureKind.UNAVAILABLE),
}
_PDF: Final = "SCRAPE_PDF_"

_STATUSES: Final[dict[int, Meaning]] = {
    403: (Stage.ANSWER, FailureKind.REFUSED),  # a key that is none comes with 401
    408: (Stage.PAGE, FailureKind.TIMEOUT),
}


class FirecrawlReader:
    """Implements `ReadAdapter`."""

    provider: Provider = FIRECRAWL

    def __init__(self, egress: Egress, clock: Clock) -> None:
        self._exchange = Exchange(FIRECRAWL, egress, clock)

    def read(self, url: str, access: Access) -> Page:
        """See `ReadAdapter`."""
        asked = {"url": url, **_HOW}
        answer = self._exchange.post(_PATH, bearer(access), asked, PROVIDER_READ_S)
        found = as_object(answer.body.get("data"))
        if not answer.ok or answer.body.get("success") is not True or found is None:
            raise _failure_of(answer)
        return _page(found)


def read_adapter(egress: Egress, clock: Clock) -> FirecrawlReader:
    """The adapter, over a way out."""
    return FirecrawlReader(egress, clock)


def _page(found: Json) -> Page:
    about = as_object(found.get("metadata")) or {}
    status = error_status(about.get("statusCode"))
    # A page that answers with an error is a success to the provider.
    if status is not None or as_text(about.get("error")).strip():
        raise ProviderFailure(Stage.PAGE, FailureKind.HTTP_ERROR, page_status=status)
    markdown = as_text(found.get("markdown"))
    if is_blank(markdown):
        raise ProviderFailure(Stage.PAGE, FailureKind.EMPTY)
    return Page(markdown, _title(about.get("title")))


def _title(told: object) -> str | None:
    """A text, or several of them, of which the first with something in it counts."""
    texts = map(as_text, told if isinstance(told, list) else [told])
    return next((text for text in texts if not is_blank(text)), None)


def _failure_of(answer: Answer) -> ProviderFailure:
    code = as_text(answer.body.get("code"))
    meaning = _PAGE_REFUSED if code.startswith(_PDF) else _ERRORS.get(code)
    if meaning is None and answer.ok and answer.body.get("success") is False:
        meaning = (Stage.ANSWER, FailureKind.UNAVAILABLE)
    return answer.failure(meaning or _STATUSES.get(answer.status))
