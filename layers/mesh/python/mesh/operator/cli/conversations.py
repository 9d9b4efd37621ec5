"""Owns `mesh conversation …`: which conversations there are, what was heard and said in one, and
how one is deleted.

Refuses to let what was said act on a terminal: it is printed as escaped text.
"""

from __future__ import annotations

from typing import Any

import click

from mesh.operator.cli.command import Invocation, common
from mesh.operator.cli.deleting import asked, make_sure, order, waited
from mesh.operator.cli.lists import Paging, of_agents, paged, parameters, show_happened, show_list
from mesh.operator.cli.terminal import when
from mesh.operator.client import Json, segment


@click.group("conversation")
def group() -> None:
    """Conversations: what an agent heard and said; delete one."""


@group.command("list")
@of_agents
@paged
@common
def list_conversations(invocation: Invocation, **given: Any) -> None:
    """List conversations, those that began last first."""
    show_happened(
        invocation,
        "conversations",
        ("CONVERSATION", "KEY AND INSTALL", "WAITING", "LAST"),
        lambda each: (
            each["conversation_id"],
            (each["conversation_key"], each["install_id"]),
            each["waiting"],
            when(each["last_at"]),
        ),
        **given,
    )


@group.command("show")
@click.argument("conversation_id", metavar="ID")
@paged
@common
def show(invocation: Invocation, conversation_id: str, **given: Any) -> None:
    """Show a conversation's messages, newest first; what was only observed is marked.

    With --json and --jsonl the messages alone are printed.
    """
    paging = Paging(**given)
    path = f"/api/conversations/{segment(conversation_id)}"
    with invocation.client() as client:
        if not (invocation.as_json or paging.jsonl):
            one = client.call("GET", path)
            invocation.terminal.fields(
                [
                    ("conversation", one["conversation_id"]),
                    ("install", one["install_id"]),
                    ("key", one["conversation_key"]),
                    ("began", when(one["created_at"])),
                    ("last", when(one["last_at"])),
                    ("waiting", one["waiting"]),
                ]
            )
            invocation.terminal.say()
        show_list(
            invocation,
            client.pages(f"{path}/messages", parameters(paging)),
            paging,
            ("MESSAGE", "AT", "WHAT"),
            _row,
        )


@group.command("delete")
@click.argument("conversation_id", metavar="ID")
@asked
@waited
@common
def delete(invocation: Invocation, conversation_id: str, yes: bool, wait: bool) -> int:
    """Delete what was said in a conversation so far, with its runs and replies.

    What is said from then on is kept, and is answered without what was before.
    """
    make_sure(f"everything that was said in {conversation_id}, and what waits in it,", yes)
    with invocation.client() as client:
        return order(invocation, client, f"/api/conversations/{segment(conversation_id)}", wait)


def _row(each: Json) -> tuple[object, ...]:
    who = "the agent" if each["role"] == "reply" else each["display_name"] or each["actor_id"]
    mark = " (observed)" if each["observed"] else ""
    return each["id"], when(each["at"]), (f"{who}{mark}:", *each["body"].splitlines())
