"""Owns the way from a function's name to its entry point, for every function of the operator API.

Refuses to import what the one function does not need: the authorizer runs without the layer that
holds pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from mesh.operator.deps import OperatorDeps

Entry = Callable[[Mapping[str, Any], object], dict[str, Any]]
"""A Lambda entry point: trigger document and context in, JSON document out."""

RESOURCES: Final = (
    "meta",
    "agents",
    "vault",
    "tools",
    "web_access",
    "connectors",
    "outbox",
    "runs",
    "conversations",
    "operators",
    "jobs",
    "audit",
    "instance",
    "instance_settings",
    "doctor",
)
"""The functions that have routes: each is one module of this package, its routes in `ROUTES`."""


def build(resource: str, deps: OperatorDeps) -> Entry:
    """The entry point of `operator_<resource>`. ValueError for a name that is none of them."""
    if resource == "authorizer":
        from mesh.operator.authorizer import authorizer

        return authorizer(deps)
    if resource == "bootstrap":
        from mesh.operator.bootstrap import entry

        return entry(deps)
    if resource not in RESOURCES:
        raise ValueError(f"there is no operator function {resource}")
    from mesh.operator.dispatch import Dispatcher

    module = import_module(f"mesh.operator.{resource}")
    return Dispatcher(module.ROUTES, deps)
