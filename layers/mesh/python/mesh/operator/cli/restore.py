"""Owns `mesh restore …`: what follows when the table was restored from a backup.

Refuses to begin without a yes: it closes every connector, and ends every token but one.
"""

from __future__ import annotations

import sys

import click

from mesh.operator.cli.command import Invocation, common
from mesh.operator.cli.failure import CommandError
from mesh.operator.cli.jobs import ended, tell

FINISH = "/api/instance/restore/finish"


@click.group("restore")
def group() -> None:
    """A restored instance: finish."""


@group.command("finish")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--wait", is_flag=True, help="Wait for its end.")
@common
def finish(invocation: Invocation, *, yes: bool, wait: bool) -> int:
    """Make a restored instance safe to go on with.

    Ends every token but this one, holds every connector, drops old secrets that still counted, and
    begins a new epoch, so that receivers can tell numbers that are used again.
    """
    if not yes:
        if not sys.stdin.isatty():
            raise CommandError("it closes every connector: give --yes", exit_code=2)
        click.confirm(
            "Close every connector, and end every token but this one?", abort=True, err=True
        )
    with invocation.client() as client:
        job = client.call("POST", FINISH, body={})
        if wait:
            job = ended(invocation, client, job)
    code = tell(invocation, job)
    if job["status"] == "done":
        invocation.terminal.say("\nnext: mesh doctor, then mesh connector enable ID, one by one")
    return code
