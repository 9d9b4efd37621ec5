"""Owns the steps of a run: written before a call and again with its result, so that nothing is
repeated.

Refuses a write by a worker that was overtaken: a step row bears the number of the lease that wrote
it, and a higher number never yields to a lower one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mesh.kernel.clock import DAY_MS
from mesh.models.contract import Usage
from mesh.outbox.commit import LostLease
from mesh.records.conversation import Pending
from mesh.records.run import Step, StepKind, StepStatus
from mesh.storage import keys
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import Write, put


class Ledger:
    """The steps of one run, under one lease."""

    def __init__(
        self,
        table: Table,
        pending: Pending,
        kept_days: int,
        keep_answer: Callable[[Write, int], None] | None = None,
    ) -> None:
        """`keep_answer` applies the write that keeps an answer and counts its tokens with it; left
        out where nobody counts them."""
        self._keep_answer = keep_answer
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
        usage: Usage | None = None,
    ) -> Step:
        """Writes a call's result, and with it what it cost. Raises LostLease, Failed."""
        done = msgspec.structs.replace(
            step,
            status=status,
            ended_at=now_ms,
            text=text,
            error=error,
            input_tokens=None if usage is None else usage.input_tokens,
            output_tokens=None if usage is None else usage.output_tokens,
        )
        if usage is None or self._keep_answer is None:
            self._put(done, "#lease_no = :mine")
        else:
            # Only a step that is under way can be kept with its cost, so that none counts twice.
            write = self._write(done, "#lease_no = :mine AND #status = :running", running="running")
            self._keep_answer(write, usage.input_tokens + usage.output_tokens)
        return done

    def _write(self, step: Step, condition: str, **values: str) -> Write:
        ttl = (step.started_at + self._kept_days * DAY_MS) // 1000
        return put(
            keys.step(self._pending.story, step.number),
            {**msgspec.to_builtins(step), "ttl": ttl},
            condition,
            mine=self._pending.lease_no,
            **values,
        )

    def _put(self, step: Step, condition: str) -> None:
        try:
            self._table.write(self._write(step, condition))
        except ConditionFailed as failed:
            # An SDK retry of our own write finds it there already.
            old = failed.old
            if old is not None and msgspec.convert(old, Step) == step:
                return
            raise LostLease from None


def progress(steps: list[Step]) -> int:
    """The number of the last lease under which a step was completed; 0 when none was."""
    return max((s.lease_no for s in steps if s.status is StepStatus.COMPLETED), default=0)
