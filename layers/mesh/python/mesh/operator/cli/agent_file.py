"""Owns the file of an agent: its settings, its tools, what it has set for the web and its
connectors' settings, as one instance gives them and another takes them.

Refuses what binds to one instance (ids, versions, secrets, keys), and a file of a form that it does
not know. A delivery URL cannot be read back: what is shown of it is there for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from mesh.operator.cli.failure import CommandError
from mesh.operator.cli.reading import bytes_of
from mesh.operator.client import Json

FORMAT: Final = "mesh.agent"
VERSION: Final = 1

AGENT: Final = ("name", "handle", "instructions", "model", "limits", "retention_days")
CONNECTOR: Final = ("name", "allow_hosts", "engagement", "caps", "failure_replies")
MODEL: Final = ("kind", "name", "base_url")
SHOWN: Final = "delivery_url_shown"
HAS_KEY: Final = "model_key_present"
TOOLS: Final = "tools"
"""Tool → whether the agent may use it. A file of before there were tools has none."""
WEB: Final = "web_access"
"""Capability → what the agent has set for it; what it inherits untouched is not named."""
WEB_ACCESS: Final = ("mode", "provider", "config", "limits")


def document_of(
    agent: Json, tools: Iterable[Json], web: Iterable[Json], connectors: Iterable[Json]
) -> dict[str, Any]:
    """The file's document, from what the API shows."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "agent": {"slug": agent["slug"], **agent_settings(agent)},
        HAS_KEY: bool(agent["model"].get("credential_present")),
        TOOLS: {each["name"]: each["enabled"] for each in tools},
        WEB: {
            each["capability"]: web_settings(each["settings"])
            for each in web
            if each["settings"] is not None
        },
        "connectors": [
            {
                "kind": each["kind"],
                **connector_settings(each),
                SHOWN: each.get("delivery_url"),
            }
            for each in connectors
        ],
    }


def agent_settings(agent: Json) -> dict[str, Any]:
    """What may be set of an agent, from what is shown of it."""
    settings = {name: agent[name] for name in AGENT if name in agent}
    return settings | {"model": {name: agent["model"].get(name) for name in MODEL}}


def web_settings(settings: Json) -> dict[str, Any]:
    """What may be set for one capability of the web, from what is shown of it."""
    return {name: settings.get(name) for name in WEB_ACCESS}


def connector_settings(connector: Json) -> dict[str, Any]:
    """What may be set of a connector, from what is shown of it."""
    return {name: connector[name] for name in CONNECTOR if name in connector}


def read(path: Path) -> dict[str, Any]:
    """The document of a file. CommandError (2) for what is none, or of a newer form."""
    try:
        data = bytes_of(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", exit_code=2) from None
    try:
        document = json.loads(data)
    except ValueError:
        raise CommandError(f"{path} is no JSON", exit_code=2) from None
    problem = _problem(document)
    if problem is not None:
        raise CommandError(f"{path} {problem}", exit_code=2)
    checked: dict[str, Any] = document
    return checked


def _problem(document: Json) -> str | None:
    """What keeps a document from being taken; the settings themselves are the API's to judge."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return "is no agent's file; make one with: mesh agent export SLUG --output FILE"
    if document.get("version") != VERSION:
        return (
            f"is of version {document.get('version')}, and this command knows {VERSION}:"
            " use a newer mesh"
        )
    known = {"format", "version", "agent", "connectors", HAS_KEY, TOOLS, WEB}
    for where, given, names in (
        ("it", document, known),
        ("agent", document.get("agent"), {"slug", *AGENT}),
    ):
        if not isinstance(given, dict):
            return f"has no object {where}"
        if unknown := sorted(given.keys() - names):
            return f"holds what is not known: {where}.{unknown[0]}"
    if (problem := _tools_problem(document.get(TOOLS, {}))) is not None:
        return problem
    if (problem := _web_problem(document.get(WEB, {}))) is not None:
        return problem
    connectors = document.get("connectors")
    if not isinstance(connectors, list):
        return "has no list connectors"
    for number, each in enumerate(connectors):
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            return f"has no name for connectors.{number}"
        if unknown := sorted(each.keys() - {"kind", SHOWN, *CONNECTOR}):
            return f"holds what is not known: connectors.{number}.{unknown[0]}"
    return None if isinstance(document["agent"].get("slug"), str) else "has no agent.slug"


def _tools_problem(tools: object) -> str | None:
    if not isinstance(tools, dict):
        return "has no object tools"
    if wrong := sorted(name for name, enabled in tools.items() if not isinstance(enabled, bool)):
        return f"says neither true nor false: tools.{wrong[0]}"
    return None


def _web_problem(web: object) -> str | None:
    if not isinstance(web, dict):
        return f"has no object {WEB}"
    for name, each in sorted(web.items()):
        if not isinstance(each, dict) or not isinstance(each.get("mode"), str):
            return f"has no mode for {WEB}.{name}"
        if unknown := sorted(each.keys() - set(WEB_ACCESS)):
            return f"holds what is not known: {WEB}.{name}.{unknown[0]}"
    return None
