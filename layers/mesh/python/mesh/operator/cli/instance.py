"""Owns `mesh instance …`: what an admin sets for every agent at once.

Refuses to change what it was not told, and a URL or a key as an argument, where the shell's history
and the process list would show it.
"""

from __future__ import annotations

from typing import Any, Final

import click

from mesh.operator.cli.command import Invocation, common, read_secret
from mesh.operator.cli.failure import CommandError
from mesh.operator.cli.terminal import when
from mesh.operator.client import Json, segment

SETTINGS: Final = "/api/instance/settings"
DEFAULT: Final = "default"
KINDS: Final = ("anthropic", "openai")
ONCE: Final = (
    "This secret signs to the webhook and is shown once. Keep it now; a lost one is replaced by"
    " clearing the webhook and setting it again."
)

retention = click.option(
    "--retention-days",
    metavar=f"N|{DEFAULT}",
    help="How many days words are kept, from now on.",
)


def days_of(text: str) -> int | None:
    """The number of days; None for `default`. CommandError (2)."""
    if text == DEFAULT:
        return None
    if not (text.isascii() and text.isdigit()):
        raise CommandError(f"{text!r} is no number of days; write 30, or default", exit_code=2)
    return int(text)


def days(number: int | None, otherwise: str) -> str:
    """A number of days, for people."""
    return otherwise if number is None else f"{number} days"


@click.group("instance")
def group() -> None:
    """The instance's settings: show, set, model-key."""


@group.command("show")
@common
def show(invocation: Invocation) -> None:
    """Show the instance's settings, and which model keys it has."""
    with invocation.client() as client:
        show_settings(invocation, client.call("GET", SETTINGS))


@group.command("set")
@click.option("--allow-host", multiple=True, metavar="H[:PORT]", help="Replaces the list.")
@click.option("--clear-allow-hosts", is_flag=True, help="Any public host may be called.")
@click.option("--webhook-url-stdin", is_flag=True, help="Read the webhook's URL from stdin.")
@click.option("--clear-webhook", is_flag=True, help="Tell nobody by webhook.")
@retention
@common
def set_settings(
    invocation: Invocation,
    *,
    allow_host: tuple[str, ...],
    clear_allow_hosts: bool,
    webhook_url_stdin: bool,
    clear_webhook: bool,
    retention_days: str | None,
) -> None:
    """Change what is named, and nothing else."""
    if allow_host and clear_allow_hosts:
        raise CommandError("give --allow-host or --clear-allow-hosts, not both", exit_code=2)
    if webhook_url_stdin and clear_webhook:
        raise CommandError("give --webhook-url-stdin or --clear-webhook, not both", exit_code=2)
    given: dict[str, Any] = {}
    if allow_host or clear_allow_hosts:
        given["allow_hosts"] = list(allow_host)
    if clear_webhook:
        given["operator_webhook_url"] = None
    if webhook_url_stdin:
        given["operator_webhook_url"] = read_secret(True, "URL", "--webhook-url-stdin")
    if retention_days is not None:
        given["retention_days"] = days_of(retention_days)
    if not given:
        raise CommandError("nothing to change: give at least one option", exit_code=2)
    with invocation.client() as client:
        before = client.call("GET", SETTINGS)
        kept = {name: before[name] for name in ("allow_hosts", "retention_days", "version")}
        show_settings(invocation, client.call("PUT", SETTINGS, body=kept | given))


def show_settings(invocation: Invocation, settings: Json) -> None:
    """The settings, for people or as a document; a fresh webhook's secret with them, once."""
    if invocation.as_json:
        invocation.terminal.document(settings)
        return
    kept = f"{settings['retention_days_default']} days, as the environment says"
    invocation.terminal.fields(
        [
            ("allowed hosts", settings["allow_hosts"] or "any public host"),
            ("webhook", settings["operator_webhook_url"]),
            ("webhook secret", settings["webhook_secret"]),
            ("retention", days(settings["retention_days"], kept)),
            *(
                (f"model key {each['kind']}", f"set {when(each['updated_at'])}")
                for each in settings["model_keys"]
            ),
            ("version", settings["version"]),
        ]
    )
    if settings["webhook_secret"]:
        invocation.terminal.say(f"\n{ONCE}")


# ---- model keys


@group.group("model-key")
def model_key() -> None:
    """Keys of language models for agents that have none of their own: set, delete."""


@model_key.command("set")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--key-stdin", is_flag=True, help="Read the key from standard input.")
@common
def set_key(invocation: Invocation, kind: str, *, key_stdin: bool) -> None:
    """Keep the key for models of KIND at their provider's own address."""
    value = read_secret(key_stdin, "Model key", "--key-stdin")
    with invocation.client() as client:
        kept = client.call("PUT", _path(kind), body={"value": value})
    if invocation.as_json:
        invocation.terminal.document(kept)
        return
    invocation.terminal.fields(
        [
            ("kept for", kept["kept_for"]),
            ("version", kept["version"]),
            ("set", when(kept["updated_at"])),
        ]
    )


@model_key.command("delete")
@click.argument("kind", type=click.Choice(KINDS))
@common
def delete_key(invocation: Invocation, kind: str) -> None:
    """Forget the key for models of KIND."""
    with invocation.client() as client:
        client.call("DELETE", _path(kind))
    if invocation.as_json:
        invocation.terminal.document({"kind": kind, "state": "deleted"})
    else:
        invocation.terminal.fields([("kind", kind), ("state", "deleted")])


def _path(kind: str) -> str:
    return f"/api/instance/model-keys/{segment(kind)}"
