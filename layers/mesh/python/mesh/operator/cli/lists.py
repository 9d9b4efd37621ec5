"""Owns lists on the command line: which page, which filter, lines or a table.

Refuses to hold more than it must: with `--jsonl` each page is printed before the next is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from mesh.operator.cli.command import Invocation
from mesh.operator.cli.enabling import path_of
from mesh.operator.cli.failure import CommandError
from mesh.operator.client import Json, OperatorClient, segment

_F = TypeVar("_F", bound=Callable[..., Any])


def paged(function: _F) -> _F:
    """The options of every list: how many, from where, all pages, and as lines."""
    for option in (
        click.option("--jsonl", is_flag=True, help="One JSON object a line, as it comes."),
        click.option("--all", "every", is_flag=True, help="Every page."),
        click.option("--cursor", help="Go on where an earlier page ended."),
        click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True),
    ):
        function = option(function)
    return function


def of_agents(function: _F) -> _F:
    """The options of every list of what happened: of one agent, of one install."""
    for option in (
        click.option("--connector", metavar="ID", help="Of this install alone."),
        click.option("--agent", metavar="SLUG", help="Of this agent alone."),
    ):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Paging:
    """What was asked of a list."""

    limit: int
    cursor: str | None
    every: bool
    jsonl: bool


def show_list(
    invocation: Invocation,
    pages: Iterator[Json],
    paging: Paging,
    columns: tuple[str, ...],
    row: Callable[[Json], tuple[object, ...]],
) -> None:
    """Prints a list: as lines while its pages come, as one document, or as a table."""
    terminal = invocation.terminal
    items: list[Json] = []
    cursor: str | None = None
    for page in pages:
        cursor = page.get("next_cursor")
        if paging.jsonl:
            for item in page["items"]:
                terminal.line(item)
        else:
            items += page["items"]
        if not paging.every:
            break
    if paging.jsonl:
        return
    if invocation.as_json:
        terminal.document({"items": items, "next_cursor": cursor})
        return
    terminal.table(columns, (row(item) for item in items))
    if cursor is not None:
        terminal.say(f"\nmore: --cursor {cursor}, or --all")


def show_happened(
    invocation: Invocation,
    what: str,
    columns: tuple[str, ...],
    row: Callable[[Json], tuple[object, ...]],
    *,
    agent: str | None,
    connector: str | None,
    status: str | None = None,
    **given: Any,
) -> None:
    """Prints a list of what happened: of an agent, of an install, or of every agent."""
    paging = Paging(**given)
    with invocation.client() as client:
        if agent is None and connector is not None:
            agent = str(client.call("GET", path_of(connector))["agent"])
        pages = pages_of_agents(client, agent, what, paging, status=status, install_id=connector)
        show_list(invocation, pages, paging, columns, row)


def parameters(paging: Paging, **filters: str | None) -> dict[str, str]:
    """The query of a list's first page."""
    asked = {"limit": str(200 if paging.every else paging.limit)}
    if paging.cursor:
        asked["cursor"] = paging.cursor
    return asked | {name: value for name, value in filters.items() if value}


def pages_of_agents(
    client: OperatorClient, agent: str | None, what: str, paging: Paging, **filters: str | None
) -> Any:
    """The pages of one agent's list or, without one, of every agent's, as one list's first page."""
    if agent is not None:
        return client.pages(f"/api/agents/{segment(agent)}/{what}", parameters(paging, **filters))
    if paging.cursor:
        raise CommandError("--cursor needs --agent", exit_code=2)
    return _merged(client, what, paging, filters)


def _merged(
    client: OperatorClient, what: str, paging: Paging, filters: dict[str, str | None]
) -> Any:
    asked = parameters(paging, **filters)
    paths = [f"/api/agents/{segment(each['slug'])}/{what}" for each in client.items("/api/agents")]
    if paging.every:
        for path in paths:
            yield from client.pages(path, asked)
        return
    items: list[Json] = []
    for path in paths:
        page = client.call("GET", path, params=asked)
        items += page["items"]
        if len(items) >= paging.limit:
            break
    yield {"items": items[: paging.limit], "next_cursor": None}
