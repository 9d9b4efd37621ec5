"""Owns enabling from the command line: what it came to, and what is said and printed of it.

Refuses to lose a minted secret: whatever becomes of enabling, the minted document is printed.
"""

from __future__ import annotations

import click

from mesh.operator.cli.command import Invocation
from mesh.operator.cli.failure import LATER, REFUSED, CommandError, of_api, of_silence
from mesh.operator.client import ApiError, Json, OperatorClient, UnreachableError, segment


def path_of(install_id: str) -> str:
    """The path of one install."""
    return f"/api/connectors/{segment(install_id)}"


def enable_made(
    invocation: Invocation, client: OperatorClient, made: Json, *, skip_ping: bool
) -> int:
    """Enables what was just minted. Whatever comes of it, the minted document is printed."""
    failure: CommandError | None = None
    reached: Json = {}
    try:
        reached = ask_to_enable(invocation, client, made["install_id"], skip_ping=skip_ping)
    except ApiError as error:
        failure = of_api(error)
    except UnreachableError as error:
        failure = of_silence(error)
    if invocation.as_json:
        invocation.terminal.document(
            {**made, **{k: v for k, v in reached.items() if k in made and k != "secret"}}
        )
    if failure is not None:
        next_command = f"mesh connector enable {made['install_id']}"
        raise CommandError(f"{failure}; then: {next_command}", failure.exit_code)
    return outcome(invocation, reached)


def ask_to_enable(
    invocation: Invocation, client: OperatorClient, install_id: str, *, skip_ping: bool
) -> Json:
    """Runs the steps of enabling; the answer tells the state that was reached."""
    body = {"skip_ping": True} if skip_ping else {}
    with invocation.terminal.waiting("enabling: checking the URL, pinging the receiver"):
        return client.call("POST", f"{path_of(install_id)}/enable", body=body)


def outcome(invocation: Invocation, connector: Json) -> int:
    """The exit code of a state; what comes next is said on standard error unless it is enabled."""
    install_id, state = connector["install_id"], connector["state"]
    if state == "enabled":
        invocation.terminal.say(f"\n{install_id} is enabled")
        return 0
    if state == "enabling":
        click.echo(
            f"mesh: still enabling; go on with: mesh connector enable {install_id}", err=True
        )
        return LATER
    reason = connector.get("state_reason") or "enabling ended in error"
    hint = "" if "mesh connector" in reason else f"; then: mesh connector enable {install_id}"
    click.echo(f"mesh: {reason}{hint}", err=True)
    return REFUSED
