"""Owns `mesh actor …`: what is deleted of one who spoke.

Refuses to look for one: an actor's id is worked out from the connector and the name that the third
party gives it, or is the act_… id that `mesh conversation show --json` tells.
"""

from __future__ import annotations

import click

from mesh.operator.cli.command import Invocation, common
from mesh.operator.cli.deleting import asked, make_sure, order, waited
from mesh.operator.cli.enabling import path_of
from mesh.operator.cli.failure import CommandError
from mesh.operator.client import segment
from mesh.storage import keys


@click.group("actor")
def group() -> None:
    """Actors: delete what one of them said."""


@group.command("delete")
@click.argument("actor", metavar="ACTOR")
@click.option("--connector", metavar="ID", help="Whose caller names the actor so.")
@click.option("--agent", metavar="SLUG", help="Whose agent it spoke to, for an act_… id.")
@asked
@waited
@common
def delete(
    invocation: Invocation,
    actor: str,
    *,
    connector: str | None,
    agent: str | None,
    yes: bool,
    wait: bool,
) -> int:
    """Delete what an actor said so far, with its runs and the replies to it.

    ACTOR is the caller's actor_id, with --connector; or an act_… id, with --agent.
    """
    if (connector is None) == (agent is None):
        raise CommandError("give --connector, or --agent with an act_… id", exit_code=2)
    make_sure(f"what {actor} said, in every conversation, and the replies to it,", yes)
    with invocation.client() as client:
        if connector is not None:
            agent = client.call("GET", path_of(connector))["agent"]
            actor = keys.actor_id(connector, actor)
        return order(
            invocation, client, f"/api/agents/{segment(str(agent))}/actors/{segment(actor)}", wait
        )
