"""Owns `mesh connector …`: an agent's installs, from minting to deleting.

Refuses to lose a secret: it is printed as soon as it is minted, before anything else is tried.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from mesh.operator.cli.command import Invocation, common, fresh_key
from mesh.operator.cli.connector_settings import changed, settings, span
from mesh.operator.cli.connector_shown import (
    NOT_AGAIN,
    ONCE,
    show_action,
    show_connector,
    show_minted,
)
from mesh.operator.cli.deleting import asked, make_sure, waited
from mesh.operator.cli.enabling import ask_to_enable, enable_made, outcome, path_of
from mesh.operator.cli.failure import REFUSED, CommandError
from mesh.operator.cli.foresight import payload_of, show_plan, show_simulation
from mesh.operator.cli.jobs import ended, tell
from mesh.operator.cli.lists import Paging, paged, pages_of_agents, parameters, show_list
from mesh.operator.cli.terminal import when
from mesh.operator.client import ApiError, OperatorClient, segment

KINDS: Final = ("generic",)


@click.group("connector")
def group() -> None:
    """Connectors: where third parties' messages come in and replies go out."""


@group.command("create")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--agent", required=True, metavar="SLUG", help="Whose install it is.")
@settings
@click.option("--enable", is_flag=True, help="Enable it at once: check the URL, ping, open.")
@click.option("--skip-ping", is_flag=True, help="Enable without the signed ping.")
@click.option("--idempotency-key", metavar="K", help="Makes a repeated call harmless.")
@common
def create(
    invocation: Invocation,
    *,
    kind: str,
    agent: str,
    enable: bool,
    skip_ping: bool,
    idempotency_key: str | None,
    **given: Any,
) -> int:
    """Create an install of KIND for an agent, and show its secret once.

    With --enable the secret is shown first, so that the receiver can be given it before the ping.
    """
    key = idempotency_key or fresh_key()
    terminal = invocation.terminal
    body = changed(given, {"kind": kind})
    with invocation.client(key=key) as client:
        path = f"/api/agents/{segment(agent)}/connectors"
        made = client.call("POST", path, body=body, idempotency_key=key)
        if not invocation.as_json:
            show_minted(invocation, made)
        if not enable:
            if invocation.as_json:
                terminal.document(made)
            else:
                terminal.say(
                    "\nnext: give the secret to the receiver, then "
                    f"mesh connector enable {made['install_id']}"
                )
            return 0
        pings = given["delivery_url"] is not None and not skip_ping
        if pings and not invocation.as_json and sys.stdin.isatty():
            click.prompt(
                "\nGive the secret to the receiver, then press Enter to ping it",
                default="",
                show_default=False,
                prompt_suffix=" ",
            )
        return enable_made(invocation, client, made, skip_ping=skip_ping)


@group.command("list")
@click.option("--agent", metavar="SLUG", help="Of this agent alone.")
@paged
@common
def list_connectors(invocation: Invocation, agent: str | None, **given: Any) -> None:
    """List installs, of one agent or of all that the token reaches."""
    paging = Paging(**given)
    with invocation.client() as client:
        show_list(
            invocation,
            pages_of_agents(client, agent, "connectors", paging),
            paging,
            ("INSTALL", "NAME", "KIND", "STATE", "DELIVERY"),
            lambda each: (
                each["install_id"],
                each["name"],
                each["kind"],
                each["state"],
                (each.get("delivery") or {}).get("state"),
            ),
        )


@group.command("show")
@click.argument("install_id", metavar="ID")
@common
def show(invocation: Invocation, install_id: str) -> None:
    """Show one install: settings, state, and how delivery does."""
    with invocation.client() as client:
        show_connector(invocation, client.call("GET", path_of(install_id)))


@group.command("update")
@click.argument("install_id", metavar="ID")
@settings
@click.option("--no-delivery-url", is_flag=True, help="Remove the delivery URL.")
@click.option("--any-host", is_flag=True, help="Empty the list of allowed hosts.")
@click.option("--any-actor", is_flag=True, help="Empty the list of allowed actors.")
@click.option("--no-denied-actor", is_flag=True, help="Empty the list of denied actors.")
@click.option(
    "--pending",
    type=click.Choice(("send", "discard")),
    help="With another delivery host: what becomes of replies that wait.",
)
@common
def update(
    invocation: Invocation,
    *,
    install_id: str,
    no_delivery_url: bool,
    any_host: bool,
    any_actor: bool,
    no_denied_actor: bool,
    pending: str | None,
    **given: Any,
) -> None:
    """Change what is named, and nothing else. Lists that are named replace what was there."""
    named = any(value not in (None, ()) for value in given.values())
    if not (named or no_delivery_url or any_host or any_actor or no_denied_actor):
        raise CommandError("nothing to change: give at least one option", exit_code=2)
    with invocation.client() as client:
        before = client.call("GET", path_of(install_id))
        kept = {
            name: before[name]
            for name in ("name", "allow_hosts", "engagement", "caps", "failure_replies", "version")
        }
        body = changed(given, kept)
        if no_delivery_url:
            body["delivery_url"] = None
        if any_host:
            body["allow_hosts"] = []
        if any_actor:
            body["engagement"] = {**body["engagement"], "allow_actors": []}
        if no_denied_actor:
            body["engagement"] = {**body["engagement"], "deny_actors": []}
        if pending is not None:
            body["pending"] = pending
        show_connector(invocation, client.call("PUT", path_of(install_id), body=body))


@group.command("enable")
@click.argument("install_id", metavar="ID")
@click.option("--skip-ping", is_flag=True, help="Without the signed ping.")
@common
def enable_install(invocation: Invocation, install_id: str, skip_ping: bool) -> int:
    """Enable an install: check the URL, send a signed ping, open."""
    with invocation.client() as client:
        reached = ask_to_enable(invocation, client, install_id, skip_ping=skip_ping)
    if invocation.as_json:
        invocation.terminal.document(reached)
    return outcome(invocation, reached)


@group.command("plan")
@click.argument("install_id", metavar="ID")
@click.option("--skip-ping", is_flag=True, help="Plan an enabling without the signed ping.")
@common
def plan(invocation: Invocation, install_id: str, skip_ping: bool) -> None:
    """Show what enabling and disabling would do, step by step. Nothing is done."""
    body = {"skip_ping": True} if skip_ping else {}
    with invocation.client() as client:
        show_plan(invocation, client.call("POST", f"{path_of(install_id)}/plan", body=body))


@group.command("simulate")
@click.argument("install_id", metavar="ID")
@click.argument("file", required=False, type=click.File("rb"))
@click.option("--text", metavar="TEXT", help="Of a message made up here, in place of a payload.")
@click.option("--actor", default="operator", show_default=True, metavar="A", help="With --text.")
@click.option("--conversation", default="cli", show_default=True, metavar="K", help="With --text.")
@click.option("--topology", type=click.Choice(("direct", "group", "channel")), help="With --text.")
@click.option("--parent", metavar="ID", help="With --text: the message that it answers.")
@click.option("--cloudevent", is_flag=True, help="The payload is a CloudEvent.")
@common
def simulate(
    invocation: Invocation, *, install_id: str, file: Any, cloudevent: bool, **made_up: Any
) -> int:
    """Judge a payload as if a proven caller had posted it. Nothing is kept.

    The payload comes from FILE or standard input, or is made up with --text.
    """
    if cloudevent and made_up["text"] is not None:
        raise CommandError("what --text makes up is no CloudEvent: leave one out", exit_code=2)
    payload = payload_of(file, **made_up)
    kind = "application/cloudevents+json" if cloudevent else "application/json"
    with invocation.client() as client:
        path = f"{path_of(install_id)}/simulate"
        return show_simulation(
            invocation, client.call("POST", path, content=payload, content_type=kind)
        )


@group.command("disable")
@click.argument("install_id", metavar="ID")
@common
def disable(invocation: Invocation, install_id: str) -> None:
    """Refuse what comes in, hold what would go out. Answers when nothing is in flight."""
    waiting = invocation.terminal.waiting("waiting for attempts in flight")
    with invocation.client() as client, waiting:
        answer = client.call("POST", f"{path_of(install_id)}/disable")
    show_action(invocation, install_id, answer)


@group.command("delete")
@click.argument("install_id", metavar="ID")
@asked
@waited
@common
def delete(invocation: Invocation, install_id: str, yes: bool, wait: bool) -> int:
    """Delete an install for good; a job erases what was said through it."""
    make_sure(f"{install_id}, with its conversations and what waits in them,", yes)
    with invocation.client() as client:
        job_id = deleted(client, path_of(install_id))
        if wait and job_id is not None:
            path = f"/api/jobs/{segment(job_id)}"
            return tell(invocation, ended(invocation, client, client.call("GET", path)))
    if invocation.as_json:
        told = {"install_id": install_id, "state": "deleted", "job_id": job_id}
        invocation.terminal.document(told)
    else:
        invocation.terminal.say(f"{install_id} is deleted")
        if job_id is not None:
            invocation.terminal.say(f"What was said is being erased: mesh job wait {job_id}")
    return 0


def deleted(client: OperatorClient, path: str) -> str | None:
    """Deletes what the path names; the id of the job that the answer tells of."""
    answer = client.send("DELETE", path)
    if not 200 <= answer.status < 300:
        raise ApiError(answer, path)
    return answer.headers.get("x-mesh-job")


@group.command("ping")
@click.argument("install_id", metavar="ID")
@common
def ping(invocation: Invocation, install_id: str) -> int:
    """Send a signed ping to the delivery URL."""
    with invocation.client() as client, invocation.terminal.waiting("pinging"):
        answer = client.call("POST", f"{path_of(install_id)}/ping")
    if invocation.as_json:
        invocation.terminal.document(answer)
    else:
        invocation.terminal.fields(
            (name.replace("_", " "), value) for name, value in answer.items()
        )
    return 0 if answer["delivered"] else REFUSED


@group.command("rotate")
@click.argument("install_id", metavar="ID")
@click.option(
    "--overlap", default="24h", show_default=True, help="How long the old one still works."
)
@click.option("--force", is_flag=True, help="Also inside an overlap: the oldest is dropped.")
@click.option("--idempotency-key", metavar="K", help="Makes a repeated call harmless.")
@common
def rotate(
    invocation: Invocation,
    install_id: str,
    overlap: str,
    force: bool,
    idempotency_key: str | None,
) -> None:
    """Mint a new secret. The previous one still works until the overlap ends."""
    key = idempotency_key or fresh_key()
    body: dict[str, Any] = {"overlap_seconds": span(overlap)}
    if force:
        body["force"] = True
    with invocation.client(key=key) as client:
        answer = client.call(
            "POST", f"{path_of(install_id)}/rotate", body=body, idempotency_key=key
        )
    if invocation.as_json:
        invocation.terminal.document(answer)
        return
    invocation.terminal.fields(
        [
            ("secret", answer["secret"]),
            ("version", answer["version"]),
            ("previous until", when(answer.get("previous_valid_until"))),
        ]
    )
    invocation.terminal.say(f"\n{ONCE if answer['secret'] else NOT_AGAIN}")


@group.command("end-overlap")
@click.argument("install_id", metavar="ID")
@common
def end_overlap(invocation: Invocation, install_id: str) -> None:
    """Let the previous secret stop working at once."""
    with invocation.client() as client:
        answer = client.call("POST", f"{path_of(install_id)}/end-overlap")
    show_action(invocation, install_id, answer)


@group.command("resume-delivery")
@click.argument("install_id", metavar="ID")
@common
def resume_delivery(invocation: Invocation, install_id: str) -> None:
    """Let a paused delivery go on."""
    with invocation.client() as client:
        answer = client.call("POST", f"{path_of(install_id)}/resume-delivery")
    show_action(invocation, install_id, answer)


@group.command("refusals")
@click.argument("install_id", metavar="ID")
@paged
@common
def refusals(invocation: Invocation, install_id: str, **given: Any) -> None:
    """List what proven callers were refused, by reason and minute."""
    paging = Paging(**given)
    with invocation.client() as client:
        show_list(
            invocation,
            client.pages(f"{path_of(install_id)}/refusals", parameters(paging)),
            paging,
            ("MINUTE", "REASON AND LAST REQUESTS", "COUNT", "SKEW (s)"),
            lambda each: (
                when(each["minute"])[:16],
                (each["reason"], *each["last_request_ids"]),
                each["count"],
                each["clock_skew_s"],
            ),
        )
