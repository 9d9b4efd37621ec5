"""Owns Cloudflare's Markdown of a page: its address in Cloudflare's words, and its content and
errors in ours.

Refuses the cache, HTML and cookies of its own making. Neither the address after redirects nor,
mostly, the page's status is told, so a site's block page may come as content.
Source: developers.cloudflare.com/browser-run, Markdown endpoint and reference of errors.
"""

from __future__ import annotations

import re
from typing import Final

from mesh.kernel import strict_json
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Invalid
from mesh.kernel.foreign_json import Json, as_object, as_text
from mesh.kernel.limits import PAGE_LOAD_MS, PROVIDER_READ_S, WEB_FRONT_MATTER_CHARS_MAX
from mesh.records.connection import Provider
from mesh.security.egress.contract import Egress
from mesh.tools.web.catalogue import CLOUDFLARE
from mesh.tools.web.contract import Access, FailureKind, Page, ProviderFailure, Stage
from mesh.tools.web.cutting import is_blank
from mesh.tools.web.exchange import Answer, Exchange, Meaning, bearer, fits
from mesh.tools.web.reading import error_status

_PAGE_UNREACHABLE: Final = (Stage.PAGE, FailureKind.UNREACHABLE)
_PAGE_UNAVAILABLE: Final = (Stage.PAGE, FailureKind.UNAVAILABLE)

_ERRORS: Final[dict[int, Meaning]] = {
    10000: (Stage.ANSWER, FailureKind.AUTHORIZATION),
    2000: (Stage.ANSWER, FailureKind.UNAVAILABLE),
    2001: (Stage.ANSWER, FailureKind.RATE),
}

_PAGE_ERRORS: Final[dict[int, Meaning]] = {
    5000: _PAGE_UNREACHABLE,  # its certificate
    5001: _PAGE_UNREACHABLE,
    5002: (Stage.PAGE, FailureKind.TIMEOUT),
    5003: _PAGE_UNREACHABLE,  # too many redirects
    5004: _PAGE_UNREACHABLE,
    5005: _PAGE_UNREACHABLE,  # its name does not resolve
    5006: _PAGE_UNREACHABLE,
    5007: (Stage.PAGE, FailureKind.HTTP_ERROR),
    5008: _PAGE_UNREACHABLE,
    5009: _PAGE_UNREACHABLE,
    5010: (Stage.PAGE, FailureKind.REFUSED),
    5011: (Stage.PAGE, FailureKind.EMPTY),
    6000: _PAGE_UNAVAILABLE,  # it went away while it was read
    6001: _PAGE_UNAVAILABLE,
    6002: (Stage.PAGE, FailureKind.TIMEOUT),
    6003: _PAGE_UNAVAILABLE,
}

_MALFORMED_TOKEN: Final = 6003
"""Of the whole API: headers that are invalid. With a status of 400, for no page was looked at."""

_STATUSES: Final[dict[int, Meaning]] = {
    408: (Stage.PAGE, FailureKind.TIMEOUT),
    413: (Stage.PAGE, FailureKind.TOO_LARGE),
    422: _PAGE_UNAVAILABLE,
}

_RATE_S_MAX: Final = 15 * 60
"""A limit of pace passes sooner: whoever is to wait for longer has used up the day's time."""

_LINE: Final = r"(?:[A-Za-z_][\w.-]*:|[ \t]|-[ \t])[^\n]*\n|\r?\n"
_FRONT_MATTER: Final = re.compile(
    rf"---[ \t]*\r?\n(?P<lines>(?:{_LINE})*?)---[ \t]*(?:\r?\n|\Z)", re.ASCII
)
_TITLE: Final = re.compile(
    r"^title:[ \t]*(?P<first>[^\r\n]*)(?P<more>(?:\r?\n[ \t]+[^\r\n]*)*)", re.MULTILINE
)
_BLOCK: Final = re.compile(r"[>|][+-]?\Z")


class CloudflareReader:
    """Implements `ReadAdapter`."""

    provider: Provider = CLOUDFLARE

    def __init__(self, egress: Egress, clock: Clock) -> None:
        self._exchange = Exchange(CLOUDFLARE, egress, clock)

    def read(self, url: str, access: Access) -> Page:
        """See `ReadAdapter`."""
        if not fits(CLOUDFLARE, access.config):
            raise ProviderFailure(Stage.CREDENTIAL, FailureKind.REFUSED)
        account = access.config["account_id"]
        answer = self._exchange.post(
            f"/client/v4/accounts/{account}/browser-rendering/markdown?cacheTTL=0",
            bearer(access),
            {"url": url, "gotoOptions": {"timeout": PAGE_LOAD_MS}},
            PROVIDER_READ_S,
        )
        found = answer.body.get("result")
        if not answer.ok or answer.body.get("success") is not True or not isinstance(found, str):
            raise _failure_of(answer)
        return _page(found, as_object(answer.body.get("meta")) or {})


def read_adapter(egress: Egress, clock: Clock) -> CloudflareReader:
    """The adapter, over a way out."""
    return CloudflareReader(egress, clock)


def _page(found: str, about: Json) -> Page:
    status = error_status(about.get("status"))
    if status is not None:
        raise ProviderFailure(Stage.PAGE, FailureKind.HTTP_ERROR, page_status=status)
    markdown, title = _parted(found)
    if is_blank(markdown):
        raise ProviderFailure(Stage.PAGE, FailureKind.EMPTY)
    told = (as_text(about.get("title")), title)
    return Page(markdown, next((each for each in told if not is_blank(each)), None))


def _parted(found: str) -> tuple[str, str]:
    """The content and the title. They come apart where lines of YAML with a title stand first;
    anything else that begins with a rule is the page's own."""
    front = _FRONT_MATTER.match(found, 0, WEB_FRONT_MATTER_CHARS_MAX)
    title = None if front is None else _TITLE.search(front["lines"])
    if front is None or title is None:
        return found, ""
    if front.end() < len(found) and not front[0].endswith("\n"):
        return found, ""  # the bound of what is looked at cut a line, and made a rule of it
    return found[front.end() :], _text_of(title)


def _text_of(found: re.Match[str]) -> str:
    """A title's text: plain, quoted in either way, or as a block."""
    first = found["first"].strip()
    if _BLOCK.match(first):
        first = ""
    whole = " ".join([first, *found["more"].split()]).strip()
    if whole.startswith("'") and whole.endswith("'"):
        return whole[1:-1].replace("''", "'")
    if whole.startswith('"'):
        try:
            return as_text(strict_json.decode(whole.encode("utf-8"), mended=True))
        except Invalid:  # an escape that is YAML's alone
            return whole.strip('"')
    return whole


def _failure_of(answer: Answer) -> ProviderFailure:
    given = answer.body.get("errors")
    codes = [
        (as_object(each) or {}).get("code") for each in (given if isinstance(given, list) else [])
    ]
    if answer.status == 400 and _MALFORMED_TOKEN in codes:
        return answer.failure((Stage.ANSWER, FailureKind.AUTHORIZATION))
    known = _ERRORS | (_PAGE_ERRORS if answer.status not in (400, 401, 403) else {})
    meaning = next((known[code] for code in codes if isinstance(code, int) and code in known), None)
    if meaning is None and answer.ok and answer.body.get("success") is False:
        meaning = (Stage.ANSWER, FailureKind.UNAVAILABLE)
    failure = answer.failure(meaning or _STATUSES.get(answer.status))
    if failure.kind is FailureKind.RATE and (failure.retry_after_s or 0) > _RATE_S_MAX:
        return answer.failure((Stage.ANSWER, FailureKind.QUOTA))
    return failure
