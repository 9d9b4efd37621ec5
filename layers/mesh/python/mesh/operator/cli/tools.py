"""Owns `mesh tool …`: the tools of an agent, why each is offered or not, and one call by hand.

Refuses to print what a tool brought back as anything but text: it is from outside.
"""

from __future__ import annotations

import json
from typing import Any

import click

from mesh.operator.cli.command import Invocation, common, read_text
from mesh.operator.cli.failure import REFUSED, CommandError
from mesh.operator.cli.terminal import clean
from mesh.operator.client import Json, segment

of_agent = click.option("--agent", required=True, metavar="SLUG", help="Whose tools.")


@click.group("tool")
def group() -> None:
    """An agent's tools: list, enable, disable, probe."""


@group.command("list")
@of_agent
@common
def list_tools(invocation: Invocation, *, agent: str) -> None:
    """Every tool that there is, and why the agent is not offered the others."""
    with invocation.client() as client:
        page = client.call("GET", _path(agent))
    if invocation.as_json:
        invocation.terminal.document(page)
        return
    invocation.terminal.table(
        ("TOOL", "CLASS", "OFFERED", "REASON", "ACTS AS", "PAYER"),
        (
            (
                each["name"],
                each["class"],
                each["offered"],
                each["reason"],
                each["acting"],
                each["payer"],
            )
            for each in page["items"]
        ),
    )


@group.command("enable")
@click.argument("tool")
@of_agent
@common
def enable(invocation: Invocation, *, tool: str, agent: str) -> None:
    """Let the agent use a tool, from its next model call on."""
    _set(invocation, agent, tool, enabled=True)


@group.command("disable")
@click.argument("tool")
@of_agent
@common
def disable(invocation: Invocation, *, tool: str, agent: str) -> None:
    """Take a tool away: every offer of it is void, and a call under way is cancelled."""
    _set(invocation, agent, tool, enabled=False)


@group.command("probe")
@click.argument("tool")
@of_agent
@click.option("--connector", "install_id", metavar="ID", help="In whose place the call is made.")
@click.option(
    "--arguments",
    default="{}",
    metavar="JSON|@FILE",
    help="The arguments, a JSON object.",
    show_default=True,
)
@common
def probe(
    invocation: Invocation, *, tool: str, agent: str, install_id: str | None, arguments: str
) -> int:
    """Call a tool once, without a model. It is a run of its own, metered and audited.

    It waits for the call for 22 seconds at most: one that takes longer counts, and is told as
    failed or uncertain. Exit 1 when the call did not come to a result.
    """
    body: dict[str, Any] = {"arguments": _object(read_text(arguments))}
    if install_id is not None:
        body["install_id"] = install_id
    with invocation.client() as client:
        probed = client.call("POST", f"{_path(agent)}/{segment(tool)}/probe", body=body)
    good = probed["observation_kind"] == "result"
    if invocation.as_json:
        invocation.terminal.document(probed)
        return 0 if good else REFUSED
    invocation.terminal.fields(
        [
            ("run", probed["run_id"]),
            ("came to", probed["observation_kind"]),
            ("acts as", probed["acting"]),
            ("payer", probed["payer"]),
            *sorted(probed["provenance"].items()),
            *(("source", url) for url in probed["sources"]),
        ]
    )
    click.echo()
    for line in probed["text"].splitlines():
        click.echo(clean(line))
    return 0 if good else REFUSED


def _set(invocation: Invocation, agent: str, tool: str, *, enabled: bool) -> None:
    """Reads the version that stands, and puts the other state over it."""
    with invocation.client() as client:
        tools: list[Json] = client.call("GET", _path(agent))["items"]
        stands = next((each for each in tools if each["name"] == tool), None)
        if stands is None:
            raise CommandError(
                f"there is no tool {tool}. See: mesh tool list --agent {agent}", exit_code=REFUSED
            )
        body = {"enabled": enabled, "version": stands["version"]}
        kept = client.call("PUT", f"{_path(agent)}/{segment(tool)}", body=body)
    if invocation.as_json:
        invocation.terminal.document(kept)
        return
    invocation.terminal.fields(
        [
            ("tool", kept["name"]),
            ("offered", kept["offered"]),
            ("reason", kept["reason"]),
            ("version", kept["version"]),
        ]
    )


def _object(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError:
        raise CommandError("--arguments is not JSON", exit_code=2) from None
    if not isinstance(given, dict):
        raise CommandError("--arguments is not a JSON object", exit_code=2)
    return given


def _path(agent: str) -> str:
    return f"/api/agents/{segment(agent)}/tools"
