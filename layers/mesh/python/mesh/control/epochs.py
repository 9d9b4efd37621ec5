"""Owns the instance's epoch: which one it is in, and the condition that it still is.

Refuses to count: a backup knows nothing of the epochs that came after it, so a number that was
counted on could be given twice. An epoch is the second in which it began, or one more than the
last, whichever is greater.
"""

from __future__ import annotations

from mesh.control.rows import item_of, record_of
from mesh.kernel.errors import Conflict
from mesh.records.epoch import FIRST_EPOCH, Epoch
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.table import Table
from mesh.storage.writes import Write, check, put


def epoch_of(item: Item | None) -> Epoch:
    """The epoch that the row `EPOCH` tells, or its absence."""
    return Epoch() if item is None else record_of(item, Epoch)


def current_epoch(table: Table) -> Epoch:
    """The epoch that the instance is in, read consistently. Raises Failed."""
    return epoch_of(table.get(keys.epoch()))


def still(epoch: Epoch) -> Write:
    """Holds a transaction to the epoch that its caller read."""
    condition, values = _stands(epoch)
    return check(keys.epoch(), condition, **values)


def next_epoch(old: Epoch, now_ms: int) -> int:
    """The number of the epoch that begins now, unlike every one that a lost table may have seen."""
    return max(old.epoch + 1, now_ms // 1000)


def raise_write(old: Epoch, fresh: Epoch) -> Write:
    """Begins `fresh`, where the instance is still in `old`."""
    condition, values = _stands(old)
    return put(keys.epoch(), item_of(fresh), condition, **values)


def check_epoch(table: Table, agent_id: str) -> Epoch:
    """Whether an agent's connectors may open; answers the epoch in which they may.

    An agent that a restore has not reached still gives out numbers that may be used already.
    Epochs only rise, so what this finds holds until the next restore, which closes whatever is open
    when it comes by: what is opened on this belongs into a transaction that holds `still` of the
    answer. Raises Conflict `state_conflict`, Failed.
    """
    rows = table.get_many((keys.epoch(), keys.agent(agent_id)))
    instance, agent = rows.get(keys.epoch()), rows.get(keys.agent(agent_id))
    if instance is not None and (agent or {}).get("epoch", 0) < instance["epoch"]:
        raise Conflict(
            "state_conflict",
            "a restore is just being finished, and this agent's turn has not come;"
            f" wait for it with: mesh job wait {instance['job_id']}",
        )
    return epoch_of(instance)


def _stands(epoch: Epoch) -> tuple[str, dict[str, int]]:
    if epoch.epoch == FIRST_EPOCH:
        return "attribute_not_exists(#pk)", {}
    return "#epoch = :epoch", {"epoch": epoch.epoch}
