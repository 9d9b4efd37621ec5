"""Owns how what a provider found is bounded before a model is told it, and the form of that.

Refuses to cut within what readers see as one character, and to cut in silence. What counts is what
the model gets: bytes of UTF-8, once JSON and Mesh's own marks have escaped what they escape.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from mesh.kernel.limits import (
    PAGE_OBSERVATION_BYTES_MAX,
    SEARCH_OBSERVATION_BYTES_MAX,
    WEB_EXCERPT_BYTES_MAX,
    WEB_TITLE_BYTES_MAX,
)
from mesh.security.pages import is_page_url
from mesh.security.untrusted import shown
from mesh.tools.web.contract import FailureKind, Hit, Page, ProviderFailure, Stage

_MORE: Final = "…"
"""What a title ends with that was cut."""
_CHARACTER_BYTES: Final = 4
_BLANK: Final = r"[\s\u2800\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}]*+"


def size_of(told: object) -> int:
    """How many bytes of UTF-8 a model is shown for `told`, a text or anything else in JSON."""
    return len(shown(_json(told)).encode("utf-8"))


def is_blank(text: str) -> bool:
    """Whether there is nothing to be seen in a text: white space of any script, Braille's among
    it, and what has no width."""
    return _pattern(_BLANK).fullmatch(text) is not None


def cut(text: str, bytes_max: int, size_max: int) -> tuple[str, bool]:
    """As much of the beginning of `text` as has at most `bytes_max` bytes and, as a text in JSON, a
    size of at most `size_max`; and whether that is less than all of it.

    It ends where a character ends, as readers see them: between two grapheme clusters (UAX 29).
    `size_max` is at least the size of an empty text.
    """

    def fits(part: str) -> bool:
        return len(part.encode("utf-8")) <= bytes_max and size_of(part) <= size_max

    most = min(bytes_max, size_max)  # a character has a byte at least
    if len(text) <= most and fits(text):
        return text, False
    # The one that is too many tells whether a cut before it parts what belongs together. No more
    # is looked at: a long row of flags is read anew for each of them.
    head = text[: most + 1].encode("utf-8")[: most + _CHARACTER_BYTES].decode("utf-8", "ignore")
    ends = [0, *(found.end() for found in _pattern(r"\X").finditer(head))][:-1]
    fit, beyond = 0, len(ends)
    while beyond - fit > 1:  # the end at `fit` fits, and none from `beyond` on is known to
        middle = (fit + beyond) // 2
        if fits(head[: ends[middle]]):
            fit = middle
        else:
            beyond = middle
    return head[: ends[fit]], True


def search_observation(hits: Sequence[Hit]) -> tuple[str, tuple[str, ...]]:
    """What a model is told of a search, of a size of at most SEARCH_OBSERVATION_BYTES_MAX; and the
    URLs in it.

    A result whose address is no URL of the web, or too long for one, is left out, and counted. So
    are the last ones, where URLs and titles alone do not fit.
    """
    kept = [hit for hit in hits if is_page_url(hit.url)]
    told = [_told(rank, hit) for rank, hit in enumerate(kept, start=1)]
    found: dict[str, Any] = {"results": told}
    if len(told) < len(hits):
        found["left_out"] = len(hits) - len(told)
    while size_of(found) > SEARCH_OBSERVATION_BYTES_MAX:
        told.pop()
        found["left_out"] = len(hits) - len(told)
    kept = kept[: len(told)]
    room = SEARCH_OBSERVATION_BYTES_MAX - size_of(found) + len(kept) * size_of("")
    longest = (cut(hit.excerpt, WEB_EXCERPT_BYTES_MAX, room)[0] for hit in kept)
    shares = _shares([size_of(excerpt) for excerpt in longest], room)
    for each, hit, share in zip(told, kept, shares, strict=True):
        each["excerpt"], was_cut = cut(hit.excerpt, WEB_EXCERPT_BYTES_MAX, share)
        each["truncated"] = was_cut or not hit.whole
    return _json(found), tuple(hit.url for hit in kept)


def page_observation(url: str, page: Page, retrieved_at: str, bytes_max: int) -> str:
    """What a model is told of a page, of a size of at most PAGE_OBSERVATION_BYTES_MAX, with at most
    `bytes_max` bytes of its content.

    Raises ProviderFailure where nothing of the content fits, for its first character is larger.
    """
    found: dict[str, Any] = {"requested_url": url}
    if page.title is not None:
        found["title"] = _title(page.title)
    found |= {"content": "", "retrieved_at": retrieved_at, "truncated": False}
    room = PAGE_OBSERVATION_BYTES_MAX - size_of(found) + size_of("")
    found["content"], found["truncated"] = cut(page.markdown, bytes_max, room)
    if page.markdown and not found["content"]:
        raise ProviderFailure(Stage.PAGE, FailureKind.TOO_LARGE)
    return _json(found)


def _told(rank: int, hit: Hit) -> dict[str, Any]:
    """A result, with an excerpt still to come."""
    told: dict[str, Any] = {"rank": rank, "url": hit.url, "title": _title(hit.title)}
    if hit.date is not None:
        told["date"] = hit.date
    return told | {"excerpt": "", "truncated": False}


def _title(text: str) -> str:
    whole, was_cut = cut(text, WEB_TITLE_BYTES_MAX, WEB_TITLE_BYTES_MAX)
    if not was_cut:
        return whole
    room = WEB_TITLE_BYTES_MAX - len(_MORE.encode("utf-8"))
    return cut(text, room, room)[0] + _MORE


def _shares(wanted: Sequence[int], room: int) -> list[int]:
    """How much of the room each may have: what it wants, or an even part of what those leave that
    want less."""
    shares = list(wanted)
    left = len(wanted)
    for place in sorted(range(len(wanted)), key=lambda place: wanted[place]):
        shares[place] = min(wanted[place], room // left)
        room -= shares[place]
        left -= 1
    return shares


def _json(told: object) -> str:
    return json.dumps(told, ensure_ascii=False)


@cache
def _pattern(text: str) -> Any:  # the package has no types
    """A pattern with what the standard library's do not have. Imported here: a function starts
    without it."""
    import regex

    return regex.compile(text)
