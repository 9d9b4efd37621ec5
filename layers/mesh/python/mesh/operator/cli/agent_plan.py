"""Owns what it takes to make an agent match a file: the steps, each with what it would change.

Refuses to take away: a connector that the file does not name is left as it is, and so is every
setting.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from mesh.operator.cli.agent_file import (
    SHOWN,
    TOOLS,
    WEB,
    WEB_LIMITS,
    agent_settings,
    connector_settings,
    web_settings,
)
from mesh.operator.client import Json
from mesh.records.connection import Mode

_NEW: Final[dict[str, Any]] = {"enabled": True, "version": 1}
_UNKNOWN: Final[dict[str, Any]] = {"enabled": False, "version": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call that would be made."""

    verb: Literal["create", "update"]
    what: Literal["agent", "tool", "web access", "connector"]
    subject: str
    """The slug, the capability, or the tool's or connector's name."""
    body: dict[str, Any]
    """What the call takes, but for the version."""
    changes: tuple[str, ...] = ()
    """What an update changes, by path."""
    version: int | None = None
    """The version that it was worked out from."""
    install_id: str | None = None
    shown_url: str | None = None
    """What the file shows of the delivery URL, which it cannot hold."""
    awaits_key_of: str | None = None
    """The provider whose key web access waits for, disabled."""

    def told(self) -> str:
        """The step in one line."""
        if self.verb == "create":
            return f"create {self.what} {self.subject}"
        if self.awaits_key_of is not None:
            return (
                f"update {self.what} {self.subject} at version {self.version}: disabled until a"
                f" key of {self.awaits_key_of} is given"
            )
        return (
            f"update {self.what} {self.subject} at version {self.version}:"
            f" {', '.join(self.changes)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A provider's key that the file says the agent has, and that it has not."""

    capability: str
    provider: str
    config: dict[str, str]
    limits: dict[str, int | None]

    def command(self, slug: str) -> list[str]:
        """The command that gives it, in parts that a line may end after; a shell takes each as it
        is meant, whatever the file holds."""
        of_agent = f"{shlex.quote(self.capability)} --agent {shlex.quote(slug)}"
        return [
            f"mesh web set {of_agent} --provider {shlex.quote(self.provider)}",
            *(
                f"--config {shlex.quote(f'{name}={value}')}"
                for name, value in sorted(self.config.items())
            ),
            *(
                f"--{name.replace('_', '-')} {self.limits[name]}"
                for name in WEB_LIMITS
                if self.limits.get(name) is not None
            ),
            "--key-stdin",
        ]


def agent_step(document: Json, slug: str, stands: Json | None) -> Step | None:
    """The step that makes the agent's own settings match; None where they do."""
    wanted = {name: value for name, value in document["agent"].items() if name != "slug"}
    if stands is None:
        body = {"slug": slug, **wanted}
        return Step(verb="create", what="agent", subject=slug, body=body)
    return _update("agent", slug, wanted, agent_settings(stands), version=stands["version"])


def tool_steps(document: Json, stand: Sequence[Json] | None) -> Iterator[Step]:
    """The steps that let it use the tools that the file says, and not those that it says not.

    `stand` is None for an agent that is to be made: it begins with every tool, at version 1. What
    the instance does not have need not be taken away.
    """
    tools: dict[str, dict[str, Any]] | None
    tools = None if stand is None else {each["name"]: each for each in stand}
    for name, enabled in sorted(document.get(TOOLS, {}).items()):
        found = _NEW if tools is None else tools.get(name, _UNKNOWN)
        if found["enabled"] != enabled:
            yield Step(
                verb="update",
                what="tool",
                subject=name,
                body={"enabled": enabled},
                changes=("enabled",),
                version=found["version"],
            )


def web_steps(document: Json, stand: Sequence[Json], awaited: Sequence[Awaited]) -> Iterator[Step]:
    """The steps that set for the web what the file says.

    A provider's key is in no file. Where it is `awaited`, the agent's own connection is put down
    disabled: left out, the agent would go by the instance's key, which the file says it does not.
    """
    stored = {each["capability"]: each["settings"] for each in stand}
    without = {each.capability for each in awaited}
    for capability, wanted in sorted(document.get(WEB, {}).items()):
        awaits = capability in without
        stands = stored.get(capability)
        settings = {} if stands is None else web_settings(stands)
        body = {**wanted, "mode": "disabled", "limits": None} if awaits else wanted
        changes = tuple(_changes(body, settings))
        if changes:
            yield Step(
                verb="update",
                what="web access",
                subject=capability,
                body=body,
                changes=changes,
                version=0 if stands is None else stands["version"],
                awaits_key_of=wanted["provider"] if awaits else None,
            )


def awaited_keys(document: Json, stand: Sequence[Json]) -> list[Awaited]:
    """The keys that the file says the agent has, and that it has not: also where no step is left to
    be made, for the agent is then still without what the file says."""
    kept = {each["capability"]: {key["provider"] for key in each["kept_keys"]} for each in stand}
    return [
        Awaited(
            capability=capability,
            provider=wanted["provider"],
            config=wanted.get("config", {}),
            limits=wanted.get("limits") or {},
        )
        for capability, wanted in sorted(document.get(WEB, {}).items())
        if wanted["mode"] == Mode.CUSTOM
        and wanted["provider"] not in kept.get(capability, frozenset())
    ]


def connector_steps(document: Json, stand: Sequence[Json]) -> Iterator[Step]:
    """The steps that make its connectors match, in the file's order.

    Names need not be of one connector alone: the first of a name in the file is the oldest of that
    kind and name that there is, and so on.
    """
    left = list(stand)
    for each in document["connectors"]:
        kind, name = each.get("kind", "generic"), each["name"]
        wanted = {key: value for key, value in each.items() if key not in ("kind", SHOWN)}
        found = next((c for c in left if (c["kind"], c["name"]) == (kind, name)), None)
        if found is None:
            yield Step(
                verb="create",
                what="connector",
                subject=name,
                body={"kind": kind, **wanted},
                shown_url=each.get(SHOWN),
            )
            continue
        left.remove(found)
        settings = connector_settings(found)
        step = _update(
            "connector",
            name,
            wanted,
            settings,
            version=found["version"],
            install_id=found["install_id"],
        )
        if step is not None:
            yield step


def _update(
    what: Literal["agent", "connector"],
    subject: str,
    wanted: dict[str, Any],
    settings: dict[str, Any],
    *,
    version: int,
    install_id: str | None = None,
) -> Step | None:
    changes = tuple(_changes(wanted, settings))
    if not changes:
        return None
    return Step(
        verb="update",
        what=what,
        subject=subject,
        body=_merged(settings, wanted),
        changes=changes,
        version=version,
        install_id=install_id,
    )


def _merged(settings: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The settings with what is wanted put in their place; what the file does not name stays."""
    return settings | {
        name: _merged(settings[name], value)
        if isinstance(value, dict) and isinstance(settings.get(name), dict)
        else value
        for name, value in wanted.items()
    }


def _changes(wanted: dict[str, Any], settings: dict[str, Any]) -> Iterator[str]:
    """Paths of what differs."""
    for name, value in wanted.items():
        before = settings.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            yield from (f"{name}.{path}" for path in _changes(value, before))
        elif value != before:
            yield name
