"""Owns the answer of the gateway's authorizer: who sends the request, or nobody.

Refuses to deny: a gateway's own refusals cannot be given Mesh's form, so the functions refuse. What
it passes on is proven; nothing else of an event may be taken for a principal.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from mesh.control.audit import AuditTrail
from mesh.control.operators import Operators, Proven
from mesh.kernel.errors import Failed, Phase
from mesh.operator.deps import OperatorDeps
from mesh.records.operator import Principal

NOBODY: Final = "none"
UNKNOWN: Final = "unknown"
"""What is handed on where the table did not answer: the function then says 503, and not 401."""


def authorizer(deps: OperatorDeps) -> Callable[[Mapping[str, Any], object], dict[str, Any]]:
    """The entry point of the authorizer: HTTP API, payload 2.0, simple response."""
    operators = operators_of(deps)

    def authorize(event: Mapping[str, Any], _: object) -> dict[str, Any]:
        headers: Mapping[str, str] = event.get("headers") or {}
        found = [value for name, value in headers.items() if name.lower() == "authorization"]
        try:
            proven = operators.authenticate(found[0] if len(found) == 1 else None)
        except Failed as failed:
            deps.log("authorizer.failed", code=failed.code)
            return {"isAuthorized": True, "context": {"principal": UNKNOWN}}
        return {"isAuthorized": True, "context": context_of(proven)}

    return authorize


def operators_of(deps: OperatorDeps) -> Operators:
    """Operators alone, without the rest of the control plane."""
    audit = AuditTrail(deps.table, deps.clock, deps.ids, deps.settings.audit_kept_days)
    return Operators(deps.table, deps.clock, deps.ids, deps.random, audit)


def context_of(proven: Proven | None) -> dict[str, str]:
    """What the gateway hands on to the function."""
    if proven is None:
        return {"principal": NOBODY}
    return {
        "principal": json.dumps(msgspec.to_builtins(proven.principal)),
        "cursor_key": b64encode(proven.cursor_key).decode(),
    }


def proven_by(event: Mapping[str, Any]) -> Proven | None:
    """Who the authorizer says sends `event`; None for nobody, and where it said nothing.

    Raises Failed when the authorizer could not tell.
    """
    context = (event.get("requestContext") or {}).get("authorizer") or {}
    told: Mapping[str, str] = context.get("lambda") or {}
    principal = told.get("principal", NOBODY)
    if principal == NOBODY:
        return None
    if principal == UNKNOWN:
        raise Failed("unavailable", "the token could not be checked; try again", Phase.BEFORE)
    return Proven(
        msgspec.json.decode(principal, type=Principal), b64decode(told.get("cursor_key", ""))
    )
