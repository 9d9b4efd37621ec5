"""Owns what a replacement of the master key calls for each secret.

Refuses clocks: the calls are counted.
"""

from __future__ import annotations

from typing import Final

from tests.benchmarks.figures import Figure, count
from tests.fakes.operators import admin
from tests.fakes.system import System

SECRETS: Final = 50


def figures() -> dict[str, Figure]:
    """KMS calls and table calls of a whole rewrap, for each value that is kept."""
    system = System(lag=False)
    api = admin(system)
    for number in range(SECRETS):
        api.ok("PUT", f"/api/agents/ada/vault/v{number}", {"value": f"canary-{number:020d}"})
    with system.aws.recording() as calls:
        state = api.ok("POST", "/api/instance/rewrap")
    assert state["status"] == "done"
    own = [call for call in calls if call.caller == "operator_instance"]
    kms = sum(call.service == "kms" for call in own)
    table = sum(call.service == "dynamodb" for call in own)
    return {
        "rewrap_kms_calls": count(kms / SECRETS, "KMS calls of a rewrap for each secret of 50"),
        "rewrap_table_calls": count(table / SECRETS, "table calls, the same"),
    }
