"""Owns the opening of the key that an agent's model is asked with, for one use.

Refuses to keep it, and to open one that was saved for another kind or origin than the agent's model
has now: that is judged by the row as it is when the call is made.
"""

from __future__ import annotations

from mesh.control.instance_model_keys import sealed_model_key
from mesh.records.agent import Agent
from mesh.security.sealing import DataKey, KeyWrapper, open_text
from mesh.storage.table import Table


def open_model_key(table: Table, wrapper: KeyWrapper, agent: Agent) -> str | None:
    """The key in the clear; None where neither the agent nor the instance has one for its model.

    Raises Failed: `secret_unopenable` for a row that was moved or damaged, `unavailable` where KMS
    or the table cannot be reached.
    """
    found = sealed_model_key(table, agent)
    if found is None:
        return None
    row, context = found
    assert row.wrapped is not None, "a value that is present has its key beside it"
    assert row.blob is not None, "a value that is present has one"
    material = wrapper.unwrap(row.wrapped, context.encryption_context())
    return open_text(DataKey(material), context, row.blob)
