"""Owns the minting of an admin token by invocation: the first one, and the way back after the last.

Refuses HTTP: the function has no route, and whoever may invoke it was let in by IAM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mesh.control.operators import bootstrap
from mesh.kernel.clock import rfc3339
from mesh.operator.authorizer import operators_of
from mesh.operator.deps import OperatorDeps

_NAME_CHARS_MAX = 128


def entry(deps: OperatorDeps) -> Callable[[Mapping[str, Any], object], dict[str, Any]]:
    """The entry point: `{"name"?}` in, `{"id","name","role","token","expires_at"}` out."""
    operators = operators_of(deps)

    def mint(event: Mapping[str, Any], _: object) -> dict[str, Any]:
        name = event.get("name", "bootstrap")
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARS_MAX:
            raise ValueError("name must be text of 1 to 128 characters")
        deps.instance_keys.ensure()
        minted = bootstrap(operators, deps.ids.mint("req"), name)
        return {
            "id": minted.record.operator_id,
            "name": minted.record.name,
            "role": minted.record.role.value,
            "token": minted.token,
            "expires_at": rfc3339(minted.record.expires_at),
        }

    return mint
