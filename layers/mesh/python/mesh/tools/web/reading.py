"""Owns what providers' results are read by, whoever they come from: dates, statuses, and text in
HTML.

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
_BREAK: Final = re.compile(rf"</?(?:{'|'.join(sorted(_BREAKS))})>")


def date_of(value: object) -> str | None:
    """The day, as `YYYY-MM-DD`, that a date or a date with a time begins with."""
    found = _DATE.match(value) if isinstance(value, str) else None
    if found is None:
        return None
    try:
        return dt.date.fromisoformat(found[0]).isoformat()
    except ValueError:
        return None


def error_status(value: object) -> int | None:
    """The status that a page is reported with, where it is one of an error: any from 400 on, for
    some sites make up their own, and however it is written."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 400:
        return None
    return int(min(value, 999))


def plain(markup: str) -> tuple[str, bool]:
    """The text of a piece of HTML as a browser reads it, and whether all of it was read."""
    if "<" not in markup and "&" not in markup:
        return markup, True
    import nh3  # here: a function starts without it

    # What is left is text in its escaped form, and breaks in their shortest: `<p>` and `</p>`.
    kept = nh3.clean(markup[:WEB_MARKUP_CHARS_MAX], tags=set(_BREAKS), attributes={})
    return html.unescape(_BREAK.sub(" ", kept)), len(markup) <= WEB_MARKUP_CHARS_MAX
