"""Owns `mesh outbox …`: replies on their way, and an operator's way with them.

Refuses to show a body, and to send or give up many without asking.
"""

from __future__ import annotations

from typing import Any, Final

import click

from mesh.operator.cli.command import Invocation, common
from mesh.operator.cli.lists import (
    Paging,
    of_agents,
    paged,
    parameters,
    show_happened,
    show_list,
)
from mesh.operator.cli.terminal import when
from mesh.operator.client import segment

ENTRY_STATES: Final = ("pending", "delivered", "dead", "discarded", "undeliverable")


@click.group("outbox")
def group() -> None:
    """Replies on their way: list, attempts, replay, discard."""


@group.command("list")
@of_agents
@click.option("--status", type=click.Choice(ENTRY_STATES))
@paged
@common
def list_entries(invocation: Invocation, **given: Any) -> None:
    """List outbox entries, newest first."""
    show_happened(
        invocation,
        "outbox",
        ("ENTRY", "STATUS", "TRIES", "CREATED"),
        lambda entry: (
            entry["outbound_id"],
            entry["status"],
            entry["attempts"],
            when(entry["created_at"]),
        ),
        **given,
    )


@group.command("attempts")
@click.argument("outbound_id", metavar="OUT_ID")
@paged
@common
def attempts(invocation: Invocation, outbound_id: str, **given: Any) -> None:
    """List the attempts to deliver one entry."""
    paging = Paging(**given)
    with invocation.client() as client:
        show_list(
            invocation,
            client.pages(f"{entry_path(outbound_id)}/attempts", parameters(paging)),
            paging,
            ("#", "AT", "END", "HTTP", "DETAIL"),
            lambda each: (
                each.get("number"),
                when(each["at"]),
                each["end"] or "in flight",
                each["http_status"],
                each["detail"],
            ),
        )


@group.command("replay")
@click.argument("outbound_id", metavar="OUT_ID")
@common
def replay(invocation: Invocation, outbound_id: str) -> None:
    """Send an entry that has ended once more, beside the order."""
    act(invocation, outbound_id, "replay", "goes out again")


@group.command("discard")
@click.argument("outbound_id", metavar="OUT_ID")
@common
def discard(invocation: Invocation, outbound_id: str) -> None:
    """End a waiting entry undelivered, so that the next one can go."""
    act(invocation, outbound_id, "discard", "is discarded")


def act(invocation: Invocation, outbound_id: str, action: str, done: str) -> None:
    """One of the two actions on an entry."""
    with invocation.client() as client:
        answer = client.call("POST", f"{entry_path(outbound_id)}/{action}")
    if invocation.as_json:
        invocation.terminal.document(answer)
        return
    invocation.terminal.say(f"{outbound_id} {done}\nnext: mesh outbox attempts {outbound_id}")


def entry_path(outbound_id: str) -> str:
    """The path of one entry."""
    return f"/api/outbox/{segment(outbound_id)}"
