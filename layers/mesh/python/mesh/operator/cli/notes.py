"""Owns `mesh note …`: what an agent keeps in mind, where it is seen, and dropping it.

Refuses to print a note as anything but text: an agent wrote it, of what others told it.
"""

from __future__ import annotations

from typing import Any, Final

import click

from mesh.operator.cli.command import Invocation, common
from mesh.operator.cli.lists import Paging, paged, parameters, show_list
from mesh.operator.cli.terminal import when
from mesh.operator.client import segment

_EVERYWHERE: Final = "everywhere"

of_agent = click.option("--agent", required=True, metavar="SLUG", help="Whose notes.")
of_install = click.option(
    "--connector", "install_id", metavar="ID", help="Those that this install's runs alone see."
)
at_version = click.option(
    "--version",
    type=click.IntRange(min=1),
    required=True,
    help="The version that you read: nothing is done to a later one.",
)


@click.group("note")
def group() -> None:
    """An agent's notes: list, widen, narrow, delete."""


@group.command("list")
@of_agent
@of_install
@paged
@common
def list_notes(invocation: Invocation, *, agent: str, install_id: str | None, **given: Any) -> None:
    """List what an agent keeps in mind: without --connector, what all its installs' runs see."""
    paging = Paging(**given)
    with invocation.client() as client:
        show_list(
            invocation,
            client.pages(_path(agent), parameters(paging, install_id=install_id)),
            paging,
            ("NOTE", "VERSION", "WRITTEN", "TEXT"),
            lambda note: (
                note["name"],
                note["version"],
                when(note["updated_at"]),
                tuple(note["text"].split("\n")),
            ),
        )


@group.command("widen")
@click.argument("name")
@of_agent
@click.option(
    "--connector", "install_id", required=True, metavar="ID", help="The install that it is of."
)
@at_version
@common
def widen(invocation: Invocation, *, name: str, agent: str, install_id: str, version: int) -> None:
    """Let the runs of every install of the agent see a note, as you read it."""
    _move(invocation, f"{_note(agent, install_id, name)}/widen", version)


@group.command("narrow")
@click.argument("name")
@of_agent
@at_version
@common
def narrow(invocation: Invocation, *, name: str, agent: str, version: int) -> None:
    """Let only the runs of the install that made a note see it again."""
    _move(invocation, f"{_note(agent, _EVERYWHERE, name)}/narrow", version)


@group.command("delete")
@click.argument("name")
@of_agent
@of_install
@common
def delete(invocation: Invocation, *, name: str, agent: str, install_id: str | None) -> None:
    """Drop a note; without --connector, one that all installs' runs see."""
    place = install_id or _EVERYWHERE
    with invocation.client() as client:
        client.call("DELETE", _note(agent, place, name))
    if invocation.as_json:
        invocation.terminal.document({"name": name, "state": "deleted"})
    else:
        invocation.terminal.fields([("note", name), ("state", "deleted")])


def _move(invocation: Invocation, path: str, version: int) -> None:
    with invocation.client() as client:
        note = client.call("POST", path, body={"version": version})
    if invocation.as_json:
        invocation.terminal.document(note)
        return
    seen = "in every install" if note["everywhere"] else f"in {note['install_id']}"
    invocation.terminal.fields(
        [("note", note["name"]), ("seen", seen), ("version", note["version"])]
    )


def _path(agent: str) -> str:
    return f"/api/agents/{segment(agent)}/notes"


def _note(agent: str, place: str, name: str) -> str:
    return f"{_path(agent)}/{segment(place)}/{segment(name)}"
