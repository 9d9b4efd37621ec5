"""Owns `mesh web …`: what the instance, or one agent, has set for the web, and whose key pays.

Refuses a key as an argument, where the shell's history and the process list would show it; to
change what it was not told; and to say that disabling undid a request that was already sent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mesh.kernel.limits import (
    REQUESTS_MAX,
    REQUESTS_PER_MINUTE_DEFAULT,
    REQUESTS_PER_RUN_DEFAULT,
)
from mesh.operator.cli import web_shown
from mesh.operator.cli.command import Invocation, common, read_secret, read_secret_file
from mesh.operator.cli.failure import CommandError
from mesh.operator.cli.web_shown import named, of_agent
from mesh.operator.client import Json, segment
from mesh.records.connection import Capability, Mode

_F = TypeVar("_F", bound=Callable[..., Any])

CAPABILITIES: Final = tuple(each.value for each in Capability)
NOT_UNDONE: Final = (
    "No further call is admitted on it. One that was admitted before is cancelled, and its result"
    " withheld; a request that was already sent is not undone, and may have cost."
)
requests = click.IntRange(1, REQUESTS_MAX)
capability_argument = click.argument("capability", type=click.Choice(CAPABILITIES))


def of_owner(function: _F) -> _F:
    """The option that says whose settings a command is about."""
    return click.option(
        "--agent", metavar="SLUG", help="This agent's; else the instance's, for every agent."
    )(function)


@click.group("web")
def group() -> None:
    """Search and page reading by hosted providers: show, set, disable, inherit, forget."""


@group.command("show")
@click.argument("capability", type=click.Choice(CAPABILITIES), required=False)
@of_owner
@common
def show(invocation: Invocation, *, capability: str | None, agent: str | None) -> None:
    """Show what is set, by which provider and whose key, and what is missing.

    With a CAPABILITY also its providers, what each needs and what it does not enforce.
    """
    with invocation.client() as client:
        shown = client.call("GET", _path(agent, capability))
    if invocation.as_json:
        invocation.terminal.document(shown)
    elif capability is None:
        web_shown.show_every(invocation.terminal, shown["capabilities"], agent)
    else:
        web_shown.show_one(invocation.terminal, shown, agent)


@group.command("set")
@capability_argument
@of_owner
@click.option("--provider", metavar="NAME", help="Left out, the one that is set stays.")
@click.option(
    "--config",
    "given_config",
    multiple=True,
    metavar="NAME=VALUE",
    help="What the provider needs beside its key; what is not named stays.",
)
@click.option(
    "--requests-per-minute",
    type=requests,
    help=f"Over all that use the connection; {REQUESTS_PER_MINUTE_DEFAULT} at first.",
)
@click.option(
    "--requests-per-run", type=requests, help=f"Of one run; {REQUESTS_PER_RUN_DEFAULT} at first."
)
@click.option("--key-stdin", is_flag=True, help="Read the provider's key from standard input.")
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read the provider's key from a file.",
)
@click.option("--key-prompt", is_flag=True, help="Ask for the provider's key, unseen.")
@common
def set_access(
    invocation: Invocation,
    *,
    capability: str,
    agent: str | None,
    provider: str | None,
    given_config: tuple[str, ...],
    requests_per_minute: int | None,
    requests_per_run: int | None,
    key_stdin: bool,
    key_file: Path | None,
    key_prompt: bool,
) -> None:
    """Use a provider with the owner's own configuration and key.

    What is not named stays as it is. A key is kept by provider and owner: another provider never
    gets it. It is asked for where none is kept; a fresh one takes its place.
    """
    if provider is not None and not provider.strip():
        raise CommandError("--provider takes a name", exit_code=2)
    if sum((key_stdin, key_file is not None, key_prompt)) > 1:
        raise CommandError("give one of --key-stdin, --key-file and --key-prompt", exit_code=2)
    given = _Given(
        provider=provider,
        config=_pairs(given_config),
        limits={
            "requests_per_minute": requests_per_minute,
            "requests_per_run": requests_per_run,
        },
        key=_key(key_stdin, key_file, key_prompt),
    )
    with invocation.client() as client:
        before = client.call("GET", _path(agent, capability))
        body = _custom(before, given, agent)
        if "api_key" not in body and not _kept(before, body["provider"]):
            body["api_key"] = _asked(before, body["provider"], agent)
        after = client.call("PUT", _path(agent, capability), body=body)
    web_shown.show_changed(invocation, after, agent)


@group.command("disable")
@capability_argument
@of_owner
@common
def disable(invocation: Invocation, *, capability: str, agent: str | None) -> None:
    """Turn it off, and keep the key. For an agent it is an opt-out that stays.

    No call is admitted on it once the command has returned. A request that was already sent is not
    undone, and may have cost.
    """
    with invocation.client() as client:
        before = client.call("GET", _path(agent, capability))
        body = _off(before) | {"version": _version(before)}
        after = client.call("PUT", _path(agent, capability), body=body)
    web_shown.show_changed(invocation, after, agent, NOT_UNDONE)


@group.command("inherit")
@capability_argument
@click.option("--agent", required=True, metavar="SLUG", help="The agent.")
@click.option(
    "--requests-per-run", type=requests, help="Below the instance's; left out, the instance's."
)
@common
def inherit(
    invocation: Invocation, *, capability: str, agent: str, requests_per_run: int | None
) -> None:
    """Have an agent follow the instance: its provider, its key, its limits.

    A key that the agent has of its own is kept, and not used.
    """
    limits = None if requests_per_run is None else {"requests_per_run": requests_per_run}
    with invocation.client() as client:
        before = client.call("GET", _path(agent, capability))
        body = {
            "mode": Mode.INHERIT.value,
            "provider": None,
            "config": {},
            "limits": limits,
            "version": _version(before),
        }
        after = client.call("PUT", _path(agent, capability), body=body)
    web_shown.show_changed(invocation, after, agent)


@group.command("forget")
@capability_argument
@of_owner
@click.option("--provider", metavar="NAME", help="Whose key; left out, that of the one set.")
@common
def forget(
    invocation: Invocation, *, capability: str, agent: str | None, provider: str | None
) -> None:
    """Delete the owner's key for a provider and turn the capability off, in one step.

    The key stays valid where it was issued: revoke it there. A request that was already sent is not
    undone, and may have cost.
    """
    with invocation.client() as client:
        before = client.call("GET", _path(agent, capability))
        name = _to_forget(before, provider, agent)
        off = _off(before)
        if off.get("provider") != name:
            off = {"mode": off["mode"], "provider": name}
        body = off | {"clear_key": True, "version": _version(before)}
        after = client.call("PUT", _path(agent, capability), body=body)
    text = f"The key for {name} is deleted here; where it was issued it stays valid: revoke it"
    web_shown.show_changed(invocation, after, agent, f"{text} there.\n{NOT_UNDONE}")


# ---- what is put


@dataclass(frozen=True, slots=True)
class _Given:
    """What `set` was told."""

    provider: str | None
    config: dict[str, str]
    limits: dict[str, int | None]
    key: str | None


_FIRST: Final = {
    "requests_per_minute": REQUESTS_PER_MINUTE_DEFAULT,
    "requests_per_run": REQUESTS_PER_RUN_DEFAULT,
}


def _custom(before: Json, given: _Given, agent: str | None) -> dict[str, Any]:
    """The whole settings: what was given, over what stands. CommandError."""
    stands: Json = before["settings"] or {}
    is_on = stands.get("mode") == Mode.CUSTOM
    nothing = not given.config and given.key is None and not any(given.limits.values())
    if is_on and nothing and given.provider is None:
        raise CommandError("nothing to change: give at least one option", exit_code=2)
    name = given.provider or stands.get("provider")
    descriptor = _descriptor(before, name, agent)
    of_before = stands["config"] if stands.get("provider") == name else {}
    config = of_before | given.config
    for each in descriptor["config"]:
        if each["name"] not in config:
            raise CommandError(
                f"{descriptor['title']} needs --config {each['name']}=VALUE: {each['hint']}",
                exit_code=2,
            )
    limits = (stands.get("limits") if is_on else None) or _FIRST
    body: dict[str, Any] = {
        "mode": Mode.CUSTOM.value,
        "provider": name,
        "config": config,
        "limits": {each: given.limits[each] or limits[each] for each in _FIRST},
        "version": _version(before),
    }
    return body if given.key is None else body | {"api_key": given.key}


def _off(before: Json) -> dict[str, Any]:
    """What turns a capability off and keeps what it is turned on with again."""
    stands: Json = before["settings"] or {}
    name = stands.get("provider")
    if name not in {each["name"] for each in before["providers"]}:
        return {"mode": Mode.DISABLED.value}
    return {"mode": Mode.DISABLED.value, "provider": name, "config": stands["config"]}


def _descriptor(before: Json, name: str | None, agent: str | None) -> Json:
    known = {each["name"]: each for each in before["providers"]}
    if name is not None and name in known:
        return known[name]
    one_of = f"one of {', '.join(known)}"
    wrong = "no provider is set" if name is None else f"{name} serves no {before['capability']}"
    command = f"mesh web set {before['capability']}{of_agent(agent)}"
    raise CommandError(f"{wrong}: {command} --provider NAME, {one_of}", exit_code=2)


def _to_forget(before: Json, provider: str | None, agent: str | None) -> str:
    """Whose key is forgotten: it is kept, and nothing else is in use. CommandError."""
    stands: Json = before["settings"] or {}
    what, used = before["capability"], stands.get("provider")
    kept = [str(each["provider"]) for each in before["kept_keys"]]
    if not kept:
        raise CommandError(f"no key for {what} is kept for {named(agent)}: nothing to forget")
    name = provider or used or (kept[0] if len(kept) == 1 else None)
    if name is None:
        raise CommandError(f"whose key? give --provider: one of {', '.join(kept)}", exit_code=2)
    if name not in kept:
        raise CommandError(
            f"no key of {name} is kept for {named(agent)}; there is one of {', '.join(kept)}"
        )
    if stands.get("mode") == Mode.CUSTOM and used != name:
        raise CommandError(
            f"{what} goes by {used}, and a key is forgotten only with the capability off. Next:"
            f" mesh web disable {what}{of_agent(agent)}, then this command again, then"
            f" mesh web set {what}{of_agent(agent)} --provider {used}"
        )
    return str(name)


def _version(before: Json) -> int:
    return 0 if before["settings"] is None else int(before["settings"]["version"])


def _kept(before: Json, provider: str) -> bool:
    return any(each["provider"] == provider for each in before["kept_keys"])


def _key(from_stdin: bool, file: Path | None, prompt: bool) -> str | None:
    if file is not None:
        return read_secret_file(file)
    if from_stdin or prompt:
        return read_secret(from_stdin, "Provider's key", "--key-stdin")
    return None


def _asked(before: Json, provider: str, agent: str | None) -> str:
    """The key that is missing, asked for where somebody can be."""
    descriptor = _descriptor(before, provider, agent)
    if not sys.stdin.isatty():
        raise CommandError(
            f"no key of {descriptor['title']} is kept for {named(agent)}: give --key-stdin or"
            " --key-file FILE",
            exit_code=2,
        )
    click.echo(descriptor["key_hint"], err=True)
    return read_secret(False, "Provider's key", "--key-stdin")


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in map(_pair, given):
        if name in found:
            raise CommandError(f"--config {name} is given twice", exit_code=2)
        found[name] = value
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise CommandError("--config takes NAME=VALUE", exit_code=2)
    return name, value


def _path(agent: str | None, capability: str | None = None) -> str:
    base = "/api" if agent is None else f"/api/agents/{segment(agent)}"
    return f"{base}/web-access" + ("" if capability is None else f"/{segment(capability)}")
