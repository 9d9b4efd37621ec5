"""Owns how a notice is put down: one write, for the transaction of what it tells of.

Refuses to send it: the sweep finds its mark and rings, and `mesh.notices` sends. So a notice
exists exactly when what it tells of happened, and once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mesh.control.rows import item_of
from mesh.kernel.clock import DAY_MS
from mesh.kernel.errors import Failed, Phase
from mesh.kernel.limits import NOTICES_KEPT_DAYS, TRANSACTION_TRIES
from mesh.records.notice import Notice, NoticeKind
from mesh.storage import keys
from mesh.storage.table import Cancelled, ConditionFailed, Table, Why
from mesh.storage.writes import Write, put


def notice_write(
    ulid: str,
    kind: NoticeKind,
    now_ms: int,
    *,
    agent_id: str,
    subject: str,
    install_id: str | None = None,
    reason: str | None = None,
    figures: Mapping[str, int] | None = None,
) -> Write:
    """Puts a notice down, under the fresh `ulid`."""
    notice = Notice(
        notice_id=f"ntc_{ulid}",
        kind=kind,
        at=now_ms,
        agent_id=agent_id,
        install_id=install_id,
        subject=subject,
        reason=reason,
        figures=dict(figures or {}),
        due_pk=keys.due(ulid),
        due_at=now_ms,
    )
    kept = {"ttl": (now_ms + NOTICES_KEPT_DAYS * DAY_MS) // 1000}
    return put(keys.notice(ulid), item_of(notice) | kept, "attribute_not_exists(#pk)")


def write_and_tell(table: Table, write: Write, notices: Sequence[Write]) -> None:
    """Applies one conditional write together with the notices that tell of it, or nothing.

    Raises ConditionFailed, with the item that stood in the way, where somebody else was first (and
    told); Failed.
    """
    try:
        table.transact_settled(lambda: [write, *notices], TRANSACTION_TRIES)
    except Cancelled as cancelled:
        first = cancelled.reasons[0]
        if first.why is Why.CONDITION:
            raise ConditionFailed(first.old) from None
        raise Failed("unavailable", "the rows are contended; try again", Phase.BEFORE) from None
