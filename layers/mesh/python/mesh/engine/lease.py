"""Owns the lease of a run: who works on it, fenced by a number.

Refuses to trust the queue: exclusion is this row's lease and nothing else. Clocks of two functions
may differ by the grace; a holder that was overtaken cannot write, because each write names its
number.
"""

from __future__ import annotations

import msgspec

from mesh.kernel.clock import Clock
from mesh.kernel.ids import Ids
from mesh.kernel.limits import LEASE_GRACE_MS
from mesh.outbox.commit import LostLease
from mesh.records.conversation import Merged, Pending
from mesh.storage import keys
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import Write, update


def is_live(pending: Pending, now_ms: int) -> bool:
    """Whether somebody else's lease still counts."""
    return pending.lease_until > 0 and now_ms < pending.lease_until + LEASE_GRACE_MS


def taken(
    ids: Ids,
    clock: Clock,
    pending: Pending,
    until: int,
    *,
    counted: bool = False,
    merged: tuple[Merged, ...] = (),
) -> Pending:
    """The row as it is once its lease is taken, until `until` (Unix ms).

    `counted` says that the run is counted among its agent's turns of the day, in the same write;
    `merged` are the messages that it answers beside its own, which its first lease settles.
    """
    return msgspec.structs.replace(
        pending,
        lease_no=pending.lease_no + 1,
        lease_until=until,
        first_leased_at=pending.first_leased_at or clock.now_ms(),
        counted=counted or pending.counted,
        merged=merged or pending.merged,
        token=ids.token(),
    )


def taking(conversation_id: str, before: Pending, after: Pending) -> Write:
    """The write that takes the lease of a run that nobody holds: from `before` to `after`."""
    return update(
        keys.pending(conversation_id, before.order),
        "SET #lease_no = :next, #lease_until = :until, #token = :token,"
        " #first_leased_at = if_not_exists(#first_leased_at, :first), #counted = :counted,"
        " #merged = :merged",
        "attribute_exists(#pk) AND #lease_no = :seen AND #lease_until = :seen_until",
        next=after.lease_no,
        until=after.lease_until,
        token=after.token,
        first=after.first_leased_at,
        counted=after.counted,
        merged=msgspec.to_builtins(after.merged),
        seen=before.lease_no,
        seen_until=before.lease_until,
    )


def take(table: Table, conversation_id: str, before: Pending, after: Pending) -> Pending:
    """Takes the lease of a run that nobody holds, from `before` to `after`; answers the row as it
    then is.

    Raises LostLease when another worker was faster, Failed when the table is unreachable.
    """
    try:
        item = table.write(taking(conversation_id, before, after), after.token)
    except ConditionFailed:
        raise LostLease from None
    return msgspec.convert(item, Pending)


def renew(table: Table, conversation_id: str, pending: Pending, until: int) -> Pending:
    """Prolongs a lease that the caller holds to `until` (Unix ms). Raises LostLease, Failed."""
    return _set_until(table, conversation_id, pending, until)


def give_back(table: Table, conversation_id: str, pending: Pending) -> None:
    """Ends a lease before its time, through no fault of the run: it does not count as lost. Raises
    Failed."""
    try:
        table.write(
            update(
                keys.pending(conversation_id, pending.order),
                "SET #lease_until = :zero, #excused = :excused",
                "#lease_no = :mine",
                zero=0,
                excused=pending.excused + 1,
                mine=pending.lease_no,
            )
        )
    except ConditionFailed:
        raise LostLease from None


def _set_until(table: Table, conversation_id: str, pending: Pending, until: int) -> Pending:
    try:
        item = table.write(
            update(
                keys.pending(conversation_id, pending.order),
                "SET #lease_until = :until",
                "#lease_no = :mine",
                until=until,
                mine=pending.lease_no,
            )
        )
    except ConditionFailed:
        raise LostLease from None
    return msgspec.convert(item, Pending)
