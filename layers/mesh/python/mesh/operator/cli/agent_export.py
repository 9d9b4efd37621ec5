"""Owns `mesh agent export`: an agent's settings as a file, or what was said as lines of JSON.

Refuses to hold a conversation whole: each page is written before the next is asked for. A file
appears under its name when it is complete, and others on this machine cannot read it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from mesh.operator.cli.agent_file import document_of
from mesh.operator.cli.command import Invocation, common
from mesh.operator.cli.failure import CommandError
from mesh.operator.client import ApiError, OperatorClient, segment

_STDOUT = "-"


@click.command("export")
@click.argument("slug")
@click.option("--output", metavar="FILE", help="Where the settings go; standard output without.")
@click.option(
    "--conversations",
    metavar="FILE|-",
    help="What was heard and said, a message a line, in place of the settings.",
)
@common
def export(
    invocation: Invocation, *, slug: str, output: str | None, conversations: str | None
) -> None:
    """Export an agent's settings, tools, web access and connectors, or its conversations.

    Secrets, keys, delivery URLs and notes are never in it. `mesh agent apply` takes the settings
    elsewhere.
    """
    if output is not None and conversations is not None:
        raise CommandError("give --output or --conversations, not both", exit_code=2)
    with invocation.client() as client:
        if conversations is not None:
            count = _conversations(invocation, client, slug, conversations)
            if conversations != _STDOUT:
                _done(invocation, conversations, messages=count)
            return
        path = f"/api/agents/{segment(slug)}"
        agent = client.call("GET", path)
        document = document_of(
            agent,
            client.call("GET", f"{path}/tools")["items"],
            client.call("GET", f"{path}/web-access")["capabilities"],
            client.items(f"{path}/connectors"),
        )
    with _opened(output or _STDOUT) as file:
        file.write(json.dumps(document, indent=2, ensure_ascii=file is sys.stdout) + "\n")
    if output is not None:
        _done(invocation, output, connectors=len(document["connectors"]))


def _conversations(invocation: Invocation, client: OperatorClient, slug: str, target: str) -> int:
    """Writes every message of every conversation; how many there were."""
    count = 0
    shows = sys.stderr.isatty() and not invocation.as_json
    with _opened(target) as file:
        for one in client.items(f"/api/agents/{segment(slug)}/conversations"):
            of = {name: one[name] for name in ("conversation_id", "conversation_key", "install_id")}
            path = f"/api/conversations/{segment(one['conversation_id'])}/messages"
            try:
                for message in client.items(path):
                    line = json.dumps({**of, **message}, ensure_ascii=file is sys.stdout)
                    file.write(line + "\n")
                    count += 1
            except ApiError as error:
                if error.status != 404:
                    raise
                continue  # it was deleted meanwhile
            if shows:
                click.echo(f"\r{count} messages", nl=False, err=True)
        if shows:
            click.echo(err=True)
    return count


def _done(invocation: Invocation, file: str, **counts: int) -> None:
    if invocation.as_json:
        invocation.terminal.document({"file": file, **counts})
        return
    counted = ", ".join(f"{name}: {count}" for name, count in counts.items())
    invocation.terminal.say(f"{file} is written; {counted}")


@contextmanager
def _opened(target: str) -> Iterator[TextIO]:
    """Standard output, or a file that takes its name once it is whole."""
    if target == _STDOUT:
        yield sys.stdout
        return
    path = Path(target)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
