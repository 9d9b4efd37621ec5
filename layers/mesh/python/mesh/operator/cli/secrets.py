"""Owns `mesh secret …`: the rotation of the master key that wraps every secret.

Refuses to stop half-way for a request's sake: it calls again until the rewrap has ended.
"""

from __future__ import annotations

import click

from mesh.operator.cli.command import Invocation, common
from mesh.operator.cli.failure import REFUSED
from mesh.operator.cli.terminal import when
from mesh.operator.client import Json

REWRAP = "/api/instance/rewrap"


@click.group("secret")
def group() -> None:
    """The instance's secrets: rewrap."""


@group.command("rewrap")
@click.option("--status", "only_look", is_flag=True, help="Show how far it is, and change nothing.")
@common
def rewrap(invocation: Invocation, *, only_look: bool) -> int:
    """Wrap every data key by the newest master key.

    What was stopped goes on where it was. Exit 1 when a key did not open in its place.
    """
    with invocation.client() as client:
        if only_look:
            state = client.call("GET", REWRAP)
        else:
            state = client.call("POST", REWRAP, body={})
            while state["status"] == "running":
                if not invocation.as_json:
                    click.echo(f"{state['done']} of {state['total']}", err=True)
                state = client.call("POST", REWRAP, body={})
    _show(invocation, state)
    return REFUSED if state["status"] == "failed" else 0


def _show(invocation: Invocation, state: Json) -> None:
    if invocation.as_json:
        invocation.terminal.document(state)
        return
    invocation.terminal.fields(
        [
            ("status", state["status"]),
            ("done", f"{state['done']} of {state['total']}"),
            ("rewrapped", state["rewrapped"]),
            ("unopenable", state["unopenable"]),
            ("started", when(state["started_at"])),
            ("ended", when(state["ended_at"])),
        ]
    )
