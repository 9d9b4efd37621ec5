"""Owns what providers' results are read by, whoever they come from: dates, and text in HTML.

Refuses to make a text of what is none: scripts, styles and comments.
"""

from __future__ import annotations

import datetime as dt
import re
from html.parser import HTMLParser
from typing import Final

from mesh.kernel.limits import WEB_MARKUP_CHARS_MAX

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}(?![^T ])", re.ASCII)
_SILENT: Final = frozenset({"script", "style"})
_BREAKS: Final = frozenset({"br", "p", "div", "li", "tr", "td", "h1", "h2", "h3", "h4", "h5", "h6"})


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
    """The text of a piece of HTML, and whether all of it was read."""
    if "<" not in markup and "&" not in markup:
        return markup, True
    reader = _Text()
    reader.feed(markup[:WEB_MARKUP_CHARS_MAX])
    reader.close()
    return reader.text(), len(markup) <= WEB_MARKUP_CHARS_MAX


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._found: list[str] = []
        self._silent = False

    def text(self) -> str:
        return "".join(self._found)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - the base class has it
        self._silent = tag in _SILENT
        if tag in _BREAKS:
            self._found.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._silent = self._silent and tag not in _SILENT

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self._found.append(data)
