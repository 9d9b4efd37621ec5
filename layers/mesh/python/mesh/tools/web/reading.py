"""Owns what providers' results are read by, whoever they come from: dates, and text in HTML.

Refuses to make a text of what is none: scripts, styles and comments.
"""

from __future__ import annotations

import datetime as dt
import html
import re
from typing import Final

from mesh.kernel.limits import WEB_MARKUP_CHARS_MAX

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}(?![^T ])", re.ASCII)
_BREAKS: Final = frozenset({"br", "p", "div", "li", "tr", "td", "h1", "h2", "h3", "h4", "h5", "h6"})

_WITHIN: Final = r"""(?:[^>=]++|=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z))?+)*+"""
"""A tag behind its name: only the values of attributes are quoted, and only there may a `>` be."""
_TOKEN: Final = re.compile(
    r"(?P<text>[^<]++|<(?![A-Za-z/!?]))"
    r"|<!--(?:>|->|.*?(?:--!?>|\Z))"
    rf"|<(?P<silent>script|style)(?![^\s/>]){_WITHIN}>(?:.*?(?=</(?P=silent)(?![^\s/>]))|.*)"
    rf"|<(?:(?P<start>[A-Za-z][^\s/>]*+)|/[A-Za-z]){_WITHIN}(?:>|(?P<open>\Z))"
    r"|<[/!?][^>]*+(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
"""What HTML is made of: text, comments, what is silent with its content, tags, and what browsers
take for comments."""
_NUMBER_DIGITS: Final = 8
_LONG_NUMBER: Final = re.compile(rf"&#(?P<digits>[0-9]{{{_NUMBER_DIGITS},}}+);?")


def date_of(value: object) -> str | None:
    """The day, as `YYYY-MM-DD`, that a date or a date with a time begins with."""
    found = _DATE.match(value) if isinstance(value, str) else None
    if found is None:
        return None
    try:
        return dt.date.fromisoformat(found[0]).isoformat()
    except ValueError:
        return None


def plain(markup: str) -> tuple[str, bool]:
    """The text of a piece of HTML, and whether all of it was read.

    Each character is looked at once, whoever wrote it: what does not end, ends with the piece.
    """
    if "<" not in markup and "&" not in markup:
        return markup, True
    found = _TOKEN.finditer(markup[:WEB_MARKUP_CHARS_MAX])
    return "".join(map(_text_of, found)), len(markup) <= WEB_MARKUP_CHARS_MAX


def _text_of(token: re.Match[str]) -> str:
    # What does not end is a sign of less, more likely than a tag.
    if token["text"] is not None or token["open"] is not None:
        return html.unescape(_LONG_NUMBER.sub(_shorter, token[0]))
    return " " if token["start"] is not None and token["start"].lower() in _BREAKS else ""


def _shorter(reference: re.Match[str]) -> str:
    """A character by its number, in no more digits than a number is read with."""
    digits = reference["digits"].lstrip("0")
    return f"&#{digits or 0};" if len(digits) < _NUMBER_DIGITS else "\ufffd"
