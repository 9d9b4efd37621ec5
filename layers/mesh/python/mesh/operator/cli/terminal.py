"""Owns what a command prints: one JSON document, or text and tables for people.

Refuses to let a name from outside act on a terminal: control characters, and those that turn the
direction of writing, are shown as escapes. Colour comes only on a terminal.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

WIDTH: Final = 80
_GOOD: Final = frozenset(
    {"enabled", "active", "delivered", "completed", "ok", "verifies", "accepted"}
)
_BAD: Final = frozenset(
    {"error", "dead", "failed", "refused", "expired", "unknown", "undeliverable"}
)
_WAITING: Final = frozenset({"enabling", "pending", "queued", "running", "degraded", "paused"})


def clean(value: object) -> str:
    """`value` as text that is safe to print; `–` for nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(clean(each) for each in value) or "–"
    return "".join(
        char
        if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
        else ascii(char)[1:-1]
        for char in str(value)
    )


def when(text: object) -> str:
    """An RFC 3339 time as people read it, to the second, in UTC."""
    return clean(text)[:19].replace("T", " ") if text else "–"


class Terminal:
    """Standard output of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def document(self, value: Any) -> None:
        """The one JSON document of a command run with `--json`."""
        indent = 2 if sys.stdout.isatty() else None
        click.echo(json.dumps(value, ensure_ascii=not _utf8(), indent=indent))

    def line(self, value: Any) -> None:
        """One line of JSON, for lists that stream."""
        click.echo(json.dumps(value, ensure_ascii=not _utf8()))

    def say(self, text: str = "") -> None:
        """A line for people; nothing with `--json`."""
        if not self.as_json:
            click.echo(text)

    def fields(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Names and values below each other."""
        shown = [(name, clean(value)) for name, value in pairs]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            click.echo(f"{name.ljust(width)}  {_coloured(value)}")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table that fits the terminal, or 80 columns; long values go on below, none is cut.

        A cell that is a tuple has a line for each of its members.
        """
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for number, column in enumerate(columns):
            # The first column holds what is copied into the next command: it stays whole.
            table.add_column(column, overflow="fold", no_wrap=number == 0)
        count = 0
        for row in rows:
            cells = [
                "\n".join(map(clean, cell)) if isinstance(cell, tuple) else clean(cell)
                for cell in row
            ]
            table.add_row(*(Text(cell, style=_style(cell)) for cell in cells))
            count += 1
        console = Console(highlight=False, soft_wrap=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=WIDTH, no_color=True)
        if count:
            console.print(table)
        else:
            click.echo("nothing here")

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Says on standard error that something takes a moment, on a terminal only."""
        if self.as_json or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console

        with Console(stderr=True).status(text):
            yield


def _utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _style(text: str) -> str:
    if text in _GOOD:
        return "green"
    if text in _BAD:
        return "red"
    return "yellow" if text in _WAITING else ""


def _coloured(text: str) -> str:
    style = _style(text)
    return click.style(text, fg=style) if style else text  # click takes it out off a terminal
