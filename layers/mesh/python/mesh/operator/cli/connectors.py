"""Owns `mesh connector …`: an agent's installs, from minting to deleting.

Refuses to lose a secret: it is printed as soon as it is minted, before anything else is tried.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, Final

import click

from mesh.operator.cli.command import (
    Invocation,
    Paging,
    common,
    fresh_key,
    paged,
    parameters,
    show_list,
)
from mesh.operator.cli.failure import LATER, REFUSED, CommandError, of_api, of_silence
from mesh.operator.cli.terminal import when
from mesh.operator.client import ApiError, Json, OperatorClient, UnreachableError, segment

KINDS: Final = ("generic",)
POLICIES: Final = ("addressed", "always", "never")
BUSY: Final = ("queue", "merge", "reject")
ONCE: Final = "This secret is shown once: keep it now. If it is lost: mesh connector rotate"
NOT_AGAIN: Final = "The same call was made before; its secret is not shown again."
CAPS: Final = (
    ("--max-conversations", "conversations", "Conversations active in 30 days."),
    ("--max-actors", "actors", "Actors active in 30 days."),
    ("--max-messages-per-minute", "messages_per_minute", "Messages accepted a minute."),
    ("--max-waiting", "waiting", "Messages waiting in one conversation."),
)
_SPAN: Final = re.compile(r"(\d+)([smhd]?)\Z")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def span(text: str) -> int:
    """Seconds of `24h`, `30m`, `90s`, `2d` or a plain number. CommandError (2)."""
    match = _SPAN.match(text)
    if match is None:
        raise CommandError(f"{text!r} is no span of time; write 24h, 30m, 90s or 0", exit_code=2)
    return int(match[1]) * _SECONDS[match[2]]


def settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `create` and `update` share."""
    for option, name, text in reversed(CAPS):
        function = click.option(option, name, type=click.IntRange(min=1), metavar="N", help=text)(
            function
        )
    for decorate in (
        click.option(
            "--failure-replies/--no-failure-replies",
            default=None,
            help="Whether a failed run says so to the third party.",
        ),
        click.option("--busy", type=click.Choice(BUSY), help="When it has work already."),
        click.option("--deny-actor", multiple=True, metavar="A", help="An actor never heard."),
        click.option("--allow-actor", multiple=True, metavar="A", help="Only these are heard."),
        click.option("--engage", type=click.Choice(POLICIES), help="Whose messages start a turn."),
        click.option(
            "--allow-host", multiple=True, metavar="H[:PORT]", help="Hosts that replies may go to."
        ),
        click.option("--delivery-url", metavar="URL", help="Where replies are posted."),
        click.option("--name", metavar="LABEL", help="A label for people."),
    ):
        function = decorate(function)
    return function


def changed(given: dict[str, Any], before: Json) -> Json:
    """The settings `before` with what was given put in."""
    body: dict[str, Any] = dict(before)
    for name in ("name", "delivery_url", "failure_replies"):
        if given[name] is not None:
            body[name] = given[name]
    if given["allow_host"]:
        body["allow_hosts"] = list(given["allow_host"])
    engagement: dict[str, Any] = {}
    if given["engage"] is not None:
        engagement["policy"] = given["engage"]
    if given["busy"] is not None:
        engagement["busy"] = given["busy"]
    for option, name in (("allow_actor", "allow_actors"), ("deny_actor", "deny_actors")):
        if given[option]:
            engagement[name] = list(given[option])
    if engagement:
        body["engagement"] = {**body.get("engagement", {}), **engagement}
    caps = {name: given[name] for _, name, _ in CAPS if given[name] is not None}
    if caps:
        body["caps"] = {**body.get("caps", {}), **caps}
    return body


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
        return client.call("POST", f"/api/connectors/{segment(install_id)}/enable", body=body)


def outcome(invocation: Invocation, connector: Json) -> int:
    """The exit code of a state; what comes next is said on standard error unless it is enabled."""
    install_id, state = connector["install_id"], connector["state"]
    if state == "enabled":
        invocation.terminal.say(f"\n{install_id} is enabled")
        return 0
    if state == "enabling":
        click.echo(
            f"mesh: still enabling; look again with: mesh connector show {install_id}", err=True
        )
        return LATER
    reason = connector.get("state_reason") or "enabling ended in error"
    hint = "" if "mesh connector" in reason else f"; then: mesh connector enable {install_id}"
    click.echo(f"mesh: {reason}{hint}", err=True)
    return REFUSED


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


def pages_of_agents(
    client: OperatorClient, agent: str | None, what: str, paging: Paging, **filters: str | None
) -> Any:
    """The pages of one agent's list or, without one, of every agent's, as one list's first page."""
    if agent is not None:
        return client.pages(f"/api/agents/{segment(agent)}/{what}", parameters(paging, **filters))
    if paging.cursor:
        raise CommandError("--cursor needs --agent", exit_code=2)
    return _merged(client, what, paging, filters)


def _merged(
    client: OperatorClient, what: str, paging: Paging, filters: dict[str, str | None]
) -> Any:
    asked = parameters(paging, **filters)
    paths = [f"/api/agents/{segment(each['slug'])}/{what}" for each in client.items("/api/agents")]
    if paging.every:
        for path in paths:
            yield from client.pages(path, asked)
        return
    items: list[Json] = []
    for path in paths:
        page = client.call("GET", path, params=asked)
        items += page["items"]
        if len(items) >= paging.limit:
            break
    yield {"items": items[: paging.limit], "next_cursor": None}


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
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def delete(invocation: Invocation, install_id: str, yes: bool) -> None:
    """Delete an install for good."""
    if not yes:
        if not sys.stdin.isatty():
            raise CommandError("deleting is for good: give --yes", exit_code=2)
        click.confirm(f"Delete {install_id} for good?", abort=True, err=True)
    with invocation.client() as client:
        client.call("DELETE", path_of(install_id))
    if invocation.as_json:
        invocation.terminal.document({"install_id": install_id, "state": "deleted"})
    else:
        invocation.terminal.say(f"{install_id} is deleted")


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


def path_of(install_id: str) -> str:
    """The path of one install."""
    return f"/api/connectors/{segment(install_id)}"


def show_minted(invocation: Invocation, made: Json) -> None:
    """An install just made, its secret among it."""
    invocation.terminal.fields(
        [
            ("install", made["install_id"]),
            ("state", made["state"]),
            ("post to", made["ingress_url"]),
            ("secret", made["secret"]),
        ]
    )
    invocation.terminal.say(f"\n{ONCE if made['secret'] else NOT_AGAIN}")


def show_action(invocation: Invocation, install_id: str, answer: Json) -> None:
    """What an action on an install came to."""
    if invocation.as_json:
        invocation.terminal.document(answer)
    elif isinstance(answer, dict) and "state" in answer:
        show_connector(invocation, answer)
    else:
        invocation.terminal.say(f"{install_id}: done")


def show_connector(invocation: Invocation, each: Json) -> None:
    """One install, for people or as a document."""
    if invocation.as_json:
        invocation.terminal.document(each)
        return
    delivery, secret = each.get("delivery") or {}, each.get("secret") or {}
    engagement, caps = each.get("engagement") or {}, each.get("caps") or {}
    secret = secret if isinstance(secret, dict) else {}
    invocation.terminal.fields(
        [
            ("install", each["install_id"]),
            ("kind", each.get("kind")),
            ("name", each.get("name")),
            ("state", each["state"]),
            ("reason", each.get("state_reason")),
            ("post to", each.get("ingress_url")),
            ("delivery url", each.get("delivery_url")),
            ("allowed hosts", each.get("allow_hosts")),
            ("delivery", delivery.get("state")),
            ("  reason", delivery.get("reason")),
            ("  failing since", when(delivery.get("failing_since"))),
            ("  oldest waiting", when(delivery.get("oldest_pending_at"))),
            ("  waiting", delivery.get("pending")),
            ("  dead", delivery.get("dead")),
            ("engages", engagement.get("policy")),
            ("  allowed actors", engagement.get("allow_actors")),
            ("  denied actors", engagement.get("deny_actors")),
            ("  when busy", engagement.get("busy")),
            *((f"cap {name}", value) for name, value in caps.items()),
            ("failure replies", each.get("failure_replies")),
            ("secret version", secret.get("version")),
            ("  created", when(secret.get("created_at"))),
            ("  previous until", when(secret.get("previous_valid_until"))),
            ("  previous used", when(secret.get("previous_last_used_at"))),
            ("version", each.get("version")),
        ]
    )
