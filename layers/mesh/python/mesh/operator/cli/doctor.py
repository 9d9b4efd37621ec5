"""Owns `mesh doctor`: what is not as it should be, and the command that mends each.

Refuses to mend anything itself.
"""

from __future__ import annotations

from collections import Counter

import click

from mesh.operator.cli.command import Invocation, common
from mesh.operator.cli.failure import REFUSED
from mesh.operator.cli.terminal import clean
from mesh.operator.client import Json

DOCTOR = "/api/instance/doctor"
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.command("doctor")
@common
def doctor(invocation: Invocation) -> int:
    """Look at the whole instance, and say what to do. Changes nothing.

    Exit 1 when an error was found; warnings and notes alone are 0.
    """
    findings: list[Json] = []
    with invocation.client() as client, invocation.terminal.waiting("looking"):
        for page in client.pages(DOCTOR):
            findings += page["items"]
    found = Counter(each["severity"] for each in findings)
    findings.sort(key=lambda each: list(_COLOURS).index(each["severity"]))
    if invocation.as_json:
        invocation.terminal.document({"findings": findings, "errors": found["error"]})
    else:
        for each in findings:
            _tell(each)
        counted = ", ".join(_count(found[name], name) for name in _COLOURS if found[name])
        invocation.terminal.say(counted or "nothing found")
    return REFUSED if found["error"] else 0


def _tell(each: Json) -> None:
    severity = click.style(clean(each["severity"]), fg=_COLOURS.get(each["severity"]))
    click.echo(f"{severity}  {clean(each['code'])}  {clean(each['subject'])}")
    click.echo(click.wrap_text(clean(each["text"]), 78, "  ", "  "))
    if each["command"] is not None:
        click.echo(f"  then: {clean(each['command'])}")
    click.echo()


def _count(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"
