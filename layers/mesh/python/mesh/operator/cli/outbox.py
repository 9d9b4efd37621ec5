"""Owns `mesh outbox …`: replies on their way, and an operator's way with them.

Refuses to show a body, and to send or give up many without asking.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from mesh.operator.cli.command import Invocation, common
from mesh.operator.cli.enabling import path_of
from mesh.operator.cli.failure import CommandError
from mesh.operator.cli.jobs import ended, tell
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
_DEFAULT: Final = {"replay": "dead", "discard": "pending"}

_F = TypeVar("_F", bound=Callable[..., Any])


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


def _many(states: tuple[str, ...]) -> Callable[[_F], _F]:
    """The options that choose entries of a connector, in the place of one entry's id."""

    def choose(function: _F) -> _F:
        for option in (
            click.option("--wait", is_flag=True, help="Wait for the end of the job."),
            click.option("--yes", is_flag=True, help="Do not ask."),
            click.option("--until", metavar="TIME", help="Made before this time (RFC 3339)."),
            click.option("--since", metavar="TIME", help="Made at this time (RFC 3339) or later."),
            click.option(
                "--status",
                multiple=True,
                type=click.Choice(states),
                help=f"In this state; may be given again. [default: {states[0]}]",
            ),
            click.option("--connector", metavar="ID", help="Many entries of this install."),
            click.argument("outbound_id", metavar="[OUT_ID]", required=False),
        ):
            function = option(function)
        return function

    return choose


@group.command("replay")
@_many(("dead", "discarded", "undeliverable", "delivered"))
@common
def replay(invocation: Invocation, *, outbound_id: str | None, **given: Any) -> int:
    """Send an entry that has ended once more, beside the order; or many, with --connector."""
    if outbound_id is None:
        return _order(invocation, "replay", "Send again", **given)
    _only_one(given)
    return _act(invocation, outbound_id, "replay", "is ordered to go out again", "explain")


@group.command("discard")
@_many(("pending",))
@common
def discard(invocation: Invocation, *, outbound_id: str | None, **given: Any) -> int:
    """End a waiting entry undelivered, so that the next can go; or many, with --connector."""
    if outbound_id is None:
        return _order(invocation, "discard", "Give up", **given)
    _only_one(given)
    return _act(invocation, outbound_id, "discard", "is discarded", "outbox attempts")


def _only_one(given: Mapping[str, Any]) -> None:
    """Refuses the options of many entries beside the id of one."""
    for name, value in given.items():
        if value and name != "yes":
            raise CommandError(f"OUT_ID and --{name} do not go together", exit_code=2)


def _act(invocation: Invocation, outbound_id: str, action: str, done: str, see: str) -> int:
    """One of the two actions on an entry; what came of it is told by the command `see`."""
    with invocation.client() as client:
        answer = client.call("POST", f"{entry_path(outbound_id)}/{action}")
    if invocation.as_json:
        invocation.terminal.document(answer)
    else:
        invocation.terminal.say(f"{outbound_id} {done}\nnext: mesh {see} {outbound_id}")
    return 0


def _order(
    invocation: Invocation,
    action: str,
    does: str,
    *,
    connector: str | None,
    status: tuple[str, ...],
    since: str | None,
    until: str | None,
    yes: bool,
    wait: bool,
) -> int:
    """One of the two actions on many entries: a job; its exit code."""
    if connector is None:
        raise CommandError(
            f"give the id of an entry, or --connector ID. See: mesh outbox {action} --help",
            exit_code=2,
        )
    body = {"status": list(status), "since": since, "until": until}
    if not yes:
        if not sys.stdin.isatty():
            raise CommandError("this is about many entries: give --yes", exit_code=2)
        states = " or ".join(status or (_DEFAULT[action],))
        span = "".join(f" {name} {at}" for name, at in (("from", since), ("to", until)) if at)
        click.confirm(
            f"{does} every entry of {connector} that is {states}{span}?", abort=True, err=True
        )
    with invocation.client() as client:
        job = client.call(
            "POST",
            f"{path_of(connector)}/outbox/{action}",
            body={name: value for name, value in body.items() if value},
        )
        if wait:
            job = ended(invocation, client, job)
    return tell(invocation, job)


def entry_path(outbound_id: str) -> str:
    """The path of one entry."""
    return f"/api/outbox/{segment(outbound_id)}"
