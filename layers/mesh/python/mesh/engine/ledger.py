"""Owns the steps of a run: written before a call and again with its result, so that nothing is
repeated.

Refuses a write by a worker that was overtaken: a step row bears the number of the lease that wrote
it, and a higher number never yields to a lower one.
"""

from __future__ import annotations

import msgspec

from mesh.kernel.clock import DAY_MS
from mesh.outbox.commit import LostLease
from mesh.records.conversation import Pending
from mesh.records.run import Step, StepKind, StepStatus
from mesh.storage import keys
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import put


class Ledger:
    """The steps of one run, under one lease."""

    def __init__(self, table: Table, pending: Pending, kept_days: int) -> None:
        self._table = table
        self._pending = pending
        self._kept_days = pending.kept_days or kept_days

    def steps(self) -> list[Step]:
        """What earlier leases did, in order. A run that was leased once before has none. Raises
        Failed."""
        if self._pending.lease_no <= 1:
            return []
        page = self._table.query(keys.story_partition(self._pending.story), prefix=keys.STEP)
        return [msgspec.convert(item, Step) for item in page.items]

    def begin(self, number: int, kind: StepKind, now_ms: int) -> Step:
        """Writes that a call is about to be made. Raises LostLease, Failed."""
        step = Step(
            number=number,
            kind=kind,
            status=StepStatus.RUNNING,
            lease_no=self._pending.lease_no,
            started_at=now_ms,
        )
        self._put(step, "attribute_not_exists(#pk) OR #lease_no < :mine")
        return step

    def finish(
        self,
        step: Step,
        status: StepStatus,
        now_ms: int,
        *,
        text: str | None = None,
        error: str | None = None,
    ) -> Step:
        """Writes a call's result. Raises LostLease, Failed."""
        done = msgspec.structs.replace(step, status=status, ended_at=now_ms, text=text, error=error)
        self._put(done, "#lease_no = :mine")
        return done

    def _put(self, step: Step, condition: str) -> None:
        ttl = (step.started_at + self._kept_days * DAY_MS) // 1000
        write = put(
            keys.step(self._pending.story, step.number),
            {**msgspec.to_builtins(step), "ttl": ttl},
            condition,
            mine=self._pending.lease_no,
        )
        try:
            self._table.write(write)
        except ConditionFailed as failed:
            # An SDK retry of our own write finds it there already.
            old = failed.old
            if old is not None and msgspec.convert(old, Step) == step:
                return
            raise LostLease from None


def progress(steps: list[Step]) -> int:
    """The number of the last lease under which a step was completed; 0 when none was."""
    return max((s.lease_no for s in steps if s.status is StepStatus.COMPLETED), default=0)
