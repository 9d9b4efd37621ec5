"""Owns the commands that tell what happened: `run`, `explain`, `audit`.

Refuses to show a body: what was said belongs to the conversation, not to the story of its delivery.
"""

from __future__ import annotations

import textwrap
from typing import Any, Final

import click

from mesh.operator.cli.command import Invocation, common
from mesh.operator.cli.failure import CommandError
from mesh.operator.cli.lists import (
    Paging,
    of_agents,
    paged,
    parameters,
    show_happened,
    show_list,
)
from mesh.operator.cli.terminal import WIDTH, clean, when
from mesh.operator.client import Json, segment

RUN_STATES: Final = ("queued", "running", "completed", "failed", "cancelled", "expired")


@click.group("run")
def run() -> None:
    """Runs: what an agent did about a message."""


@run.command("list")
@of_agents
@click.option("--status", type=click.Choice(RUN_STATES))
@paged
@common
def run_list(invocation: Invocation, **given: Any) -> None:
    """List runs, newest first."""
    show_happened(
        invocation,
        "runs",
        ("RUN", "STATUS", "REASON", "RECEIVED"),
        lambda each: (
            each["run_id"],
            each["status"],
            each["reason"],
            when(each["received_at"]),
        ),
        **given,
    )


@run.command("show")
@click.argument("run_id", metavar="RUN_ID")
@common
def run_show(invocation: Invocation, run_id: str) -> None:
    """Show one run and its steps."""
    with invocation.client() as client:
        each = client.call("GET", f"/api/runs/{segment(run_id)}")
    if invocation.as_json:
        invocation.terminal.document(each)
        return
    invocation.terminal.fields(
        [
            ("run", each["run_id"]),
            ("status", each["status"]),
            ("reason", each["reason"]),
            ("install", each["install_id"]),
            ("conversation", each["conversation_id"]),
            ("message", each["message_id"]),
            ("reply", each["outbound_id"]),
            ("received", when(each["received_at"])),
            ("started", when(each["started_at"])),
            ("ended", when(each["ended_at"])),
            *(
                (f"budget {name}", f"{budget['used']} of {budget['limit']}")
                for name, budget in each["budgets"].items()
            ),
        ]
    )
    invocation.terminal.say()
    invocation.terminal.table(
        ("STEP", "TOOL", "STATUS", "STARTED", "ENDED"),
        [
            (
                step["kind"],
                step.get("tool"),
                step["status"],
                when(step.get("started_at")),
                when(step.get("ended_at")),
            )
            for step in each.get("steps") or ()
        ],
    )
    invocation.terminal.say(f"\nthe whole story: mesh explain {each['run_id']}")


@run.command("cancel")
@click.argument("run_id", metavar="RUN_ID")
@common
def run_cancel(invocation: Invocation, run_id: str) -> None:
    """End a run that is queued or running. It makes no reply; the next run goes on."""
    with invocation.client() as client:
        answer = client.call("POST", f"/api/runs/{segment(run_id)}/cancel")
    if invocation.as_json:
        invocation.terminal.document(answer)
        return
    invocation.terminal.say(f"{run_id} is cancelled\nthe whole story: mesh explain {run_id}")


@click.command("explain")
@click.argument("ident", metavar="ID")
@click.option("--connector", metavar="ID", help="With --conversation: ID is the caller's own.")
@click.option("--conversation", metavar="K", help="The caller's conversation key.")
@common
def explain(
    invocation: Invocation, ident: str, connector: str | None, conversation: str | None
) -> None:
    """Tell a message's whole story: why a turn did or did not happen, and what came of it.

    ID is a msg_, run_, out_ or req_ id; or, with --connector and --conversation, the message id
    that the caller gave.
    """
    if (connector is None) != (conversation is None):
        raise CommandError("--connector and --conversation go together", exit_code=2)
    with invocation.client() as client:
        if connector is None or conversation is None:
            story = client.call("GET", f"/api/explain/{segment(ident)}")
        else:
            asked = {
                "install_id": connector,
                "conversation_key": conversation,
                "message_id": ident,
            }
            story = client.call("GET", "/api/explain", params=asked)
    if invocation.as_json:
        invocation.terminal.document(story)
    else:
        tell(invocation, story)


def tell(invocation: Invocation, story: Json) -> None:
    """A story for people: each event with its time, and what comes next."""
    terminal = invocation.terminal
    subject = story["subject"]
    terminal.fields((name.replace("_", " "), value) for name, value in subject.items())
    told = {subject_id for subject_id in subject.values() if subject_id is not None}
    for event in story["events"]:
        reason = f" ({clean(event['reason'])})" if event.get("reason") else ""
        terminal.say()
        terminal.say(f"{when(event['at'])}  {clean(event['kind'])}{reason}")
        for line in textwrap.wrap(clean(event.get("text") or ""), WIDTH - 4):
            terminal.say(f"    {line}")
        for url in event.get("sources") or ():
            terminal.say(f"    source: {clean(url)}")
        for name, value in (event.get("ids") or {}).items():
            if value not in told:  # an id is told once
                terminal.say(f"    {clean(name).replace('_', ' ')}: {clean(value)}")
                told.add(value)
    terminal.say("\n" + textwrap.fill(f"next: {clean(story['next'])}", WIDTH))


@click.group("audit")
def audit() -> None:
    """What operators changed."""


@audit.command("list")
@click.option("--target", metavar="T", help="What was changed, by its id or slug.")
@click.option("--actor", metavar="A", help="Who changed it.")
@click.option("--action", metavar="A", help="Such as connector.rotate.")
@click.option("--since", metavar="TIME", help="RFC 3339, such as 2026-11-30T00:00:00Z.")
@click.option("--until", metavar="TIME", help="RFC 3339.")
@paged
@common
def audit_list(
    invocation: Invocation,
    *,
    target: str | None,
    actor: str | None,
    action: str | None,
    since: str | None,
    until: str | None,
    **given: Any,
) -> None:
    """List changes, newest first."""
    paging = Paging(**given)
    asked = parameters(paging, target=target, actor=actor, action=action, since=since, until=until)
    with invocation.client() as client:
        show_list(
            invocation,
            client.pages("/api/audit", asked),
            paging,
            ("AT", "ACTION", "TARGET AND ACTOR"),
            lambda each: (
                when(each["at"]),
                each["action"],
                (each["target"], f"by {each['actor']}"),
            ),
        )
