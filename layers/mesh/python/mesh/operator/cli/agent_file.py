"""Owns the file of an agent: its settings, its tools, what it has set for the web and its
connectors' settings, as one instance gives them and another takes them.

Refuses what binds to one instance (ids, versions, secrets, keys), a file of a form that it does
not know, and a value of a type that what comes after could not handle. A delivery URL cannot be
read back: what is shown of it is there for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from mesh.operator.cli.failure import CommandError
from mesh.operator.cli.reading import bytes_of
from mesh.operator.client import BadNameError, Json, segment
from mesh.records.connection import Mode

FORMAT: Final = "mesh.agent"
VERSION: Final = 1

MODEL: Final = ("kind", "name", "base_url")
SHOWN: Final = "delivery_url_shown"
HAS_KEY: Final = "model_key_present"
TOOLS: Final = "tools"
"""Tool → whether the agent may use it. A file of before there were tools has none."""
WEB: Final = "web_access"
"""Capability → what the agent has set for it; what it inherits untouched is not named."""


class _Limits(msgspec.Struct, forbid_unknown_fields=True):
    requests_per_minute: int | None = None
    requests_per_run: int | None = None


class _Web(msgspec.Struct, forbid_unknown_fields=True):
    mode: Mode
    provider: str | None = None
    config: dict[str, str] = {}
    limits: _Limits | None = None


class _Agent(msgspec.Struct, forbid_unknown_fields=True):
    slug: str
    name: object = None
    handle: object = None
    instructions: object = None
    model: dict[str, object] = {}
    limits: dict[str, object] = {}
    retention_days: object = None


class _Connector(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    kind: object = None
    allow_hosts: object = None
    engagement: dict[str, object] = {}
    caps: dict[str, object] = {}
    failure_replies: object = None
    delivery_url_shown: object = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The form of a file. What is an `object` here is the API's to judge."""

    format: str
    version: int
    agent: _Agent
    connectors: list[_Connector]
    model_key_present: object = None
    tools: dict[str, bool] = {}
    web_access: dict[str, _Web] = {}


AGENT: Final = tuple(name for name in _Agent.__struct_fields__ if name != "slug")
CONNECTOR: Final = tuple(
    name for name in _Connector.__struct_fields__ if name not in ("kind", SHOWN)
)
WEB_ACCESS: Final = _Web.__struct_fields__
WEB_LIMITS: Final = _Limits.__struct_fields__


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
    except (ValueError, RecursionError):
        raise CommandError(f"{path} is no JSON", exit_code=2) from None
    problem = _unsendable(document) or _problem(document)
    if problem is not None:
        raise CommandError(f"{path} {problem}", exit_code=2)
    checked: dict[str, Any] = document
    return checked


def _problem(document: Json) -> str | None:
    """What keeps a document from being taken; the settings themselves are the API's to judge.

    Types are judged here where a wrong one would stop the command halfway.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return "is no agent's file; make one with: mesh agent export SLUG --output FILE"
    if document.get("version") != VERSION:
        return (
            f"is of version {document.get('version')}, and this command knows {VERSION}:"
            " use a newer mesh"
        )
    try:
        file = msgspec.convert(document, _File)
    except msgspec.ValidationError as error:
        return f"does not fit: {error}"
    for capability, settings in sorted(file.web_access.items()):
        if settings.mode is Mode.CUSTOM and settings.provider is None:
            return f"does not fit: custom names no provider - at `$.web_access.{capability}`"
    return _unnameable((*file.tools, *file.web_access))


def _unsendable(document: Json) -> str | None:
    """Python reads numbers and characters of JSON that no request can carry."""
    try:
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return "holds half of a character"
    except ValueError:
        return "holds a number that is none"
    except RecursionError:
        return "is nested too deeply"
    return None


def _unnameable(names: Iterable[str]) -> str | None:
    """Names become part of an address: one that cannot would stop what was begun."""
    for name in names:
        try:
            segment(name)
        except BadNameError:
            return f"holds a tool or capability of a name that cannot be: {name!r}"
    return None
