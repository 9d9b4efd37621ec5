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

from mesh.operator.cli.failure import CommandError
from mesh.operator.cli.reading import bytes_of
from mesh.operator.client import BadNameError, Json, segment
from mesh.records.connection import Mode

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
WEB_LIMITS: Final = ("requests_per_minute", "requests_per_run")
_MODES: Final = tuple(each.value for each in Mode)


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
    return (
        _form_problem(document)
        or _agent_problem(document.get("agent"))
        or _tools_problem(document.get(TOOLS, {}))
        or _web_problem(document.get(WEB, {}))
        or _connectors_problem(document.get("connectors"))
    )


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


def _form_problem(document: Json) -> str | None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return "is no agent's file; make one with: mesh agent export SLUG --output FILE"
    if document.get("version") != VERSION:
        return (
            f"is of version {document.get('version')}, and this command knows {VERSION}:"
            " use a newer mesh"
        )
    known = ("format", "version", "agent", "connectors", HAS_KEY, TOOLS, WEB)
    return _unknown("it", document, known)


def _agent_problem(agent: object) -> str | None:
    if not isinstance(agent, dict):
        return "has no object agent"
    if problem := _unknown("agent", agent, ("slug", *AGENT)):
        return problem
    if not isinstance(agent.get("slug"), str):
        return "has no agent.slug"
    return _no_object("agent", agent, ("model", "limits"))


def _connectors_problem(connectors: object) -> str | None:
    if not isinstance(connectors, list):
        return "has no list connectors"
    for number, each in enumerate(connectors):
        where = f"connectors.{number}"
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            return f"has no name for {where}"
        problem = _unknown(where, each, ("kind", SHOWN, *CONNECTOR))
        if problem := problem or _no_object(where, each, ("engagement", "caps")):
            return problem
    return None


def _tools_problem(tools: object) -> str | None:
    if not isinstance(tools, dict):
        return "has no object tools"
    if wrong := sorted(name for name, enabled in tools.items() if not isinstance(enabled, bool)):
        return f"says neither true nor false: tools.{wrong[0]}"
    return _unnameable(TOOLS, tools)


def _web_problem(web: object) -> str | None:
    if not isinstance(web, dict):
        return f"has no object {WEB}"
    for name, each in sorted(web.items()):
        if problem := _one_web_problem(f"{WEB}.{name}", each):
            return problem
    return _unnameable(WEB, web)


def _one_web_problem(where: str, settings: object) -> str | None:
    if not isinstance(settings, dict) or not isinstance(settings.get("mode"), str):
        return f"has no mode for {where}"
    if settings["mode"] not in _MODES:
        return f"has none of {', '.join(_MODES)} as {where}.mode"
    return (
        _unknown(where, settings, WEB_ACCESS)
        or _provider_problem(where, settings)
        or _config_problem(f"{where}.config", settings.get("config", {}))
        or _limits_problem(f"{where}.limits", settings.get("limits"))
    )


def _provider_problem(where: str, settings: dict[str, Any]) -> str | None:
    provider = settings.get("provider")
    if isinstance(provider, str) or (provider is None and settings["mode"] != Mode.CUSTOM):
        return None
    return f"has no text as {where}.provider"


def _config_problem(where: str, config: object) -> str | None:
    if not isinstance(config, dict):
        return f"has no object {where}"
    if wrong := sorted(name for name, value in config.items() if not isinstance(value, str)):
        return f"has no text as {where}.{wrong[0]}"
    return None


def _limits_problem(where: str, limits: object) -> str | None:
    if limits is None:
        return None
    if not isinstance(limits, dict):
        return f"has no object {where}"
    for name, value in sorted(limits.items()):
        # True and false are integers to Python, and to nobody else.
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            return f"has no whole number as {where}.{name}"
    return _unknown(where, limits, WEB_LIMITS)


def _unknown(where: str, given: dict[str, Any], names: Iterable[str]) -> str | None:
    unknown = sorted(given.keys() - set(names))
    return f"holds what is not known: {where}.{unknown[0]}" if unknown else None


def _no_object(where: str, given: dict[str, Any], names: Iterable[str]) -> str | None:
    """What is named may be left out; else it is an object."""
    wrong = [name for name in names if not isinstance(given.get(name, {}), dict)]
    return f"has no object {where}.{wrong[0]}" if wrong else None


def _unnameable(where: str, given: dict[str, Any]) -> str | None:
    """Names become part of an address: one that cannot would stop what was begun."""
    for name in sorted(given):
        try:
            segment(name)
        except BadNameError:
            return f"holds what no name can be: {where}.{name}"
    return None
