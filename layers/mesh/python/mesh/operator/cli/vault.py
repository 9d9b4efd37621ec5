"""Owns `mesh vault …`: the values that an agent keeps, and where the command line reads them from.

Refuses a value as an argument, where the shell's history and the process list would show it, and
has no command that shows one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mesh.operator.cli.command import Invocation, common, read_secret, read_secret_file
from mesh.operator.cli.failure import CommandError
from mesh.operator.cli.lists import Paging, paged, parameters, show_list
from mesh.operator.cli.terminal import when
from mesh.operator.client import Json, segment

of_agent = click.option("--agent", required=True, metavar="SLUG", help="Whose vault.")


@click.group("vault")
def group() -> None:
    """An agent's own secrets: set, list, delete."""


@group.command("set")
@click.argument("name")
@of_agent
@click.option("--value-stdin", is_flag=True, help="Read the value from standard input.")
@click.option(
    "--value-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read the value from a file.",
)
@click.option(
    "--account",
    nargs=2,
    metavar="ORIGIN NAME",
    help="The account that the agent acts by with it, such as https://github.com ada-bot.",
)
@common
def set_value(
    invocation: Invocation,
    name: str,
    agent: str,
    *,
    value_stdin: bool,
    value_file: Path | None,
    account: tuple[str, str] | None,
) -> None:
    """Keep a value under NAME, in the place of the one that is there.

    It is asked for, or read from standard input or a file, less one line's end. With --account it
    is the credential of an account that belongs to this agent alone, and goes to ORIGIN alone.
    """
    if value_stdin and value_file is not None:
        raise CommandError("give --value-stdin or --value-file, not both", exit_code=2)
    if value_file is not None:
        value = read_secret_file(value_file)
    else:
        value = read_secret(value_stdin, "Value", "--value-stdin")
    with invocation.client() as client:
        body: dict[str, Any] = {"value": value}
        if account is not None:
            body["account"] = {"origin": account[0], "name": account[1]}
        kept = client.call("PUT", _path(agent, name), body=body)
    if invocation.as_json:
        invocation.terminal.document(kept)
        return
    invocation.terminal.fields(
        [
            ("name", kept["name"]),
            ("version", kept["version"]),
            ("set", when(kept["updated_at"])),
            ("account", _account(kept)),
        ]
    )


@group.command("list")
@of_agent
@paged
@common
def list_values(invocation: Invocation, agent: str, **given: Any) -> None:
    """List the names in a vault, with versions and ages."""
    paging = Paging(**given)
    with invocation.client() as client:
        show_list(
            invocation,
            client.pages(f"/api/agents/{segment(agent)}/vault", parameters(paging)),
            paging,
            ("NAME", "VERSION", "SET", "FIRST SET", "ACCOUNT"),
            lambda value: (
                value["name"],
                value["version"],
                when(value["updated_at"]),
                when(value["created_at"]),
                _account(value),
            ),
        )


@group.command("delete")
@click.argument("name")
@of_agent
@common
def delete(invocation: Invocation, name: str, agent: str) -> None:
    """Forget the value under NAME."""
    with invocation.client() as client:
        client.call("DELETE", _path(agent, name))
    if invocation.as_json:
        invocation.terminal.document({"name": name, "state": "deleted"})
    else:
        invocation.terminal.fields([("name", name), ("state", "deleted")])


def _account(value: Json) -> str | None:
    account = value["account"]
    return None if account is None else f"{account['name']} at {account['origin']}"


def _path(agent: str, name: str) -> str:
    return f"/api/agents/{segment(agent)}/vault/{segment(name)}"
