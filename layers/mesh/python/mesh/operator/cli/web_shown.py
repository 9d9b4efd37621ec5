"""Owns how `mesh web …` tells people what is set, what counts, and which command comes next.

Refuses nothing: it prints what was answered, and no answer holds a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from mesh.operator.cli.command import Invocation
from mesh.operator.cli.terminal import Terminal, clean, when
from mesh.operator.client import Json
from mesh.records.connection import Missing, Mode

_NOTHING: Final[Json] = {}


def of_agent(agent: str | None) -> str:
    """The option that names the owner, as it stands in a command."""
    return "" if agent is None else f" --agent {agent}"


def named(agent: str | None) -> str:
    """The owner in a sentence."""
    return "the instance" if agent is None else agent


def show_every(terminal: Terminal, capabilities: list[Json], agent: str | None) -> None:
    """A line for each capability, and what each that is missing waits for."""
    terminal.table(
        ("WHAT", "MODE", "PROVIDER", "PAYS", "KEY", "A MINUTE", "A RUN", "STATE"),
        (
            (
                each["capability"],
                _mode(each, agent),
                _provider(each),
                each["credential_source"],
                "kept" if each["credential_present"] else None,
                *_limits(each),
                "available" if each["available"] else "off",
            )
            for each in capabilities
        ),
    )
    missing = [each for each in capabilities if not each["available"]]
    if missing:
        terminal.say()
    for each in missing:
        terminal.say(f"{each['capability']}: {_why(each, agent)}")


def show_one(terminal: Terminal, shown: Json, agent: str | None) -> None:
    """One capability, with its providers."""
    _fields(terminal, shown, agent)
    for each in shown["providers"]:
        terminal.say(f"\n{clean(each['name'])}: {clean(each['title'])}")
        for name, text in _described(each):
            click.echo(click.wrap_text(f"{name}: {clean(text)}", 78, "  ", "    "))
    if not shown["available"]:
        terminal.say(f"\n{_why(shown, agent)}")


def show_changed(
    invocation: Invocation, shown: Json, agent: str | None, text: str | None = None
) -> None:
    """What stands after a change, and what the change did not do."""
    terminal = invocation.terminal
    if invocation.as_json:
        terminal.document(shown)
        return
    _fields(terminal, shown, agent)
    if text is not None:
        terminal.say(f"\n{text}")
    if not shown["available"]:
        terminal.say(f"\n{_why(shown, agent)}")


def _fields(terminal: Terminal, shown: Json, agent: str | None) -> None:
    settings = shown["settings"] or _NOTHING
    minute, run = _limits(shown)
    terminal.fields(
        [
            ("capability", shown["capability"]),
            ("of", named(agent)),
            ("mode", _mode(shown, agent)),
            ("provider", _provider(shown)),
            *(
                (f"  {name}", value)
                for name, value in sorted((settings.get("config") or {}).items())
            ),
            ("who pays", shown["credential_source"]),
            ("key kept", shown["credential_present"]),
            ("requests a minute", minute),
            ("requests a run", run),
            ("available", shown["available"]),
            ("reason", shown["reason"]),
            *(
                (f"own key {each['provider']}", f"set {when(each['updated_at'])}")
                for each in shown["kept_keys"]
            ),
            ("version", settings.get("version", 0)),
        ]
    )


def _described(provider: Json) -> Iterator[tuple[str, object]]:
    yield "key", provider["key_hint"]
    for each in provider["config"]:
        yield f"--config {each['name']}=VALUE", each["hint"]
    yield "asked at", provider["origin"]
    yield "redirects", provider["redirects"]
    yield "what a page loads", provider["subrequests"]
    yield "can be held to hosts", provider["restricts_hosts"]


def _mode(shown: Json, agent: str | None) -> str:
    if shown["settings"] is not None:
        return str(shown["settings"]["mode"])
    return "not set" if agent is None else Mode.INHERIT.value


def _provider(shown: Json) -> object:
    """Which is used; where none is, which one would be turned on again."""
    return shown["effective_provider"] or (shown["settings"] or _NOTHING).get("provider")


def _limits(shown: Json) -> tuple[object, object]:
    """What counts; where nothing does, what is set."""
    limits = shown["effective_limits"] or (shown["settings"] or _NOTHING).get("limits")
    limits = limits or _NOTHING
    return limits.get("requests_per_minute"), limits.get("requests_per_run")


def _why(shown: Json, agent: str | None) -> str:
    """Why it is not available, and the command that makes it so."""
    what, reason = shown["capability"], shown["reason"]
    own = f"mesh web set {what}{of_agent(agent)}"
    name = _provider(shown)
    provider = f" --provider {'NAME' if name is None else clean(name)}"
    again = own + provider if agent is None else f"mesh web inherit {what}{of_agent(agent)}"
    match reason:
        case Missing.OPTED_OUT:
            return f"{named(agent)} opted out. To follow the instance again: {again}"
        case Missing.DISABLED if agent is None:
            return f"it is disabled, for every agent without a provider of its own. Next: {again}"
        case Missing.DISABLED:
            return (
                f"the instance has it disabled. Next: mesh web set {what}; or by a provider of the"
                f" agent's own: {own} --provider NAME --key-stdin"
            )
        case Missing.NOT_CONFIGURED:
            return f"no provider is set. Next: mesh web set {what} --provider NAME --key-stdin"
        case Missing.NO_CREDENTIAL:
            owner = "" if shown["credential_source"] == "instance" else of_agent(agent)
            return f"its key is missing. Next: mesh web set {what}{owner}{provider} --key-stdin"
        case _:
            return clean(reason)
