"""Owns the steps of a run: written before a call and again with its result, so that nothing is
repeated.

Refuses a write by a worker that was overtaken: a step row bears the number of the lease that wrote
it, and a higher number never yields to a lower one. What may be made once only is admitted under
the run's own row besides: the next holder reads the steps behind its lease, so it sees every call
that was admitted before, and none is admitted after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from mesh.kernel.clock import DAY_MS
from mesh.kernel.errors import Failed
from mesh.kernel.limits import ADMISSION_TRIES
from mesh.models.contract import Usage
from mesh.outbox.commit import LostLease
from mesh.records.conversation import Pending
from mesh.records.run import Asked, Step, StepKind, StepStatus
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.table import Cancelled, ConditionFailed, Table, Why
from mesh.storage.writes import Write, check, put
from mesh.tools.admission import Demand
from mesh.tools.contract import Observation, ObservationKind, Replay, provenance_of
from mesh.tools.offers import Offer

_FREE: Final = "attribute_not_exists(#pk)"
"""A step's place is free."""
_UNFINISHED: Final = f"{_FREE} OR (#lease_no < :mine AND #status = :running)"
"""It is free, or its writer was overtaken before there was an end: an end is never written over."""
_UNCERTAIN: Final = (
    "the worker that was about to make this call died: it may have been made, or not, and it is "
    "not made again by itself"
)


class Ledger:
    """The steps of one run, under one lease."""

    def __init__(
        self,
        table: Table,
        conversation_id: str,
        pending: Pending,
        kept_days: int,
        keep_answer: Callable[[Write, int], None] | None = None,
    ) -> None:
        """`keep_answer` applies the write that keeps an answer and counts its tokens with it; left
        out where nobody counts them."""
        self._keep_answer = keep_answer
        self._table = table
        self._run = keys.pending(conversation_id, pending.order)
        self._pending = pending
        self._kept_days = pending.kept_days or kept_days

    def steps(self) -> list[Step]:
        """What earlier leases did, in order. A run that was leased once before has none. Raises
        Failed."""
        if self._pending.lease_no <= 1:
            return []
        found: list[Step] = []
        after: dict[str, Any] | None = None
        while True:  # a page ends at a megabyte, which some dozen long answers fill
            page = self._table.query(
                keys.story_partition(self._pending.story), prefix=keys.STEP, after=after
            )
            found += [msgspec.convert(item, Step) for item in page.items]
            after = page.last
            if after is None:
                return found

    def begin(self, number: int, kind: StepKind, now_ms: int) -> Step:
        """Writes that a call is about to be made. Raises LostLease, Failed."""
        step = Step(
            number=number,
            kind=kind,
            status=StepStatus.RUNNING,
            lease_no=self._pending.lease_no,
            started_at=now_ms,
        )
        self._put(step, _UNFINISHED, running="running")
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
        asked: tuple[Asked, ...] = (),
        left_out: int = 0,
        keep: str | None = None,
        final: bool = False,
    ) -> Step:
        """Writes what a model call came to, and with it what it cost. Raises LostLease, Failed."""
        done = msgspec.structs.replace(
            step,
            status=status,
            ended_at=now_ms,
            text=text,
            error=error,
            input_tokens=None if usage is None else usage.input_tokens,
            output_tokens=None if usage is None else usage.output_tokens,
            asked=asked,
            left_out=left_out,
            keep=keep,
            final=final,
        )
        if usage is None or self._keep_answer is None:
            self._put(done, "#lease_no = :mine")
        else:
            # Only a step that is under way can be kept with its cost, so that none counts twice.
            write = self._write(done, "#lease_no = :mine AND #status = :running", running="running")
            self._keep_answer(write, usage.input_tokens + usage.output_tokens)
        return done

    # ---- calls of tools

    def admit(
        self,
        number: int,
        asked: Asked,
        offer: Offer,
        now_ms: int,
        *,
        sources: tuple[str, ...],
        demands: Callable[[], Sequence[Demand]],
    ) -> Step | Observation:
        """Reserves a call's place, with its evidence, in one transaction with what it demands and
        with the lease of the run; where a demand does not hold nothing was written, and what the
        model is told of it is answered.

        `demands` is asked before every try. From here on the call may have been made, and is
        counted. Raises LostLease, Failed.
        """
        step = Step(
            number=number,
            kind=StepKind.TOOL,
            status=StepStatus.RUNNING,
            lease_no=self._pending.lease_no,
            started_at=now_ms,
            tool=asked.name,
            call_id=asked.call_id,
            replay=offer.definition.replay.value,
            arguments=asked.arguments,
            agent_version=asked.agent_version,
            binding_version=asked.binding_version,
            acting=offer.definition.acting,
            payer=offer.payer,
            provenance=None if offer.grant is None else provenance_of(offer.grant),
            sources=sources,
            grant=offer.grant,
        )
        again = offer.definition.replay is Replay.OBSERVE
        write = (
            self._write(step, _UNFINISHED, running="running") if again else self._write(step, _FREE)
        )
        fence = check(self._run, "#lease_no = :mine", mine=self._pending.lease_no)
        asks: Sequence[Demand] = ()

        def build() -> list[Write]:
            nonlocal asks
            asks = demands()
            return [write, fence, *(demand.write for demand in asks)]

        try:
            self._table.transact_settled(build, ADMISSION_TRIES)
        except Cancelled as cancelled:
            place, lease = cancelled.reasons[:2]
            if place.why is Why.CONDITION and _is(place.old, step):
                return step  # an earlier try was applied, and its answer lost
            if Why.CONDITION in (place.why, lease.why):
                raise LostLease from None
            for demand, reason in zip(asks, cancelled.reasons[2:], strict=True):
                if reason.why is Why.CONDITION:
                    return demand.otherwise
            raise Failed("unavailable", "the agent's rows are contended; try again") from None
        except Failed:
            if not _is(self._table.get(keys.step(self._pending.story, number)), step):
                raise
        return step

    def refuse(self, number: int, asked: Asked, now_ms: int, observation: Observation) -> Step:
        """Writes that a call was not made, and why. Raises LostLease, Failed."""
        step = Step(
            number=number,
            kind=StepKind.TOOL,
            status=StepStatus.REFUSED,
            lease_no=self._pending.lease_no,
            started_at=now_ms,
            ended_at=now_ms,
            tool=asked.name,
            text=observation.text,
            call_id=asked.call_id,
            arguments=asked.arguments,
            agent_version=asked.agent_version,
            binding_version=asked.binding_version,
            observation_kind=observation.kind.value,
        )
        self._put(step, _UNFINISHED, running="running")
        return step

    def observe(
        self, step: Step, status: StepStatus, now_ms: int, observation: Observation, text: str
    ) -> Step:
        """Writes what a call came to. `text` is the observation's, bounded. Raises LostLease,
        Failed."""
        done = msgspec.structs.replace(
            step,
            status=status,
            ended_at=now_ms,
            text=text,
            observation_kind=observation.kind.value,
            provenance=dict(observation.provenance) or step.provenance,
            sources=observation.sources or step.sources,
        )
        self._put(done, "#lease_no = :mine")
        return done

    def uncertain(self, step: Step, now_ms: int) -> Step:
        """Writes of a call that an earlier lease was about to make that nobody can know whether it
        was. Raises LostLease, Failed."""
        done = msgspec.structs.replace(
            step,
            status=StepStatus.UNCERTAIN,
            lease_no=self._pending.lease_no,
            ended_at=now_ms,
            text=_UNCERTAIN,
            observation_kind=ObservationKind.UNCERTAIN.value,
        )
        self._put(done, "#lease_no < :mine AND #status = :running", running="running")
        return done

    def ttl(self, at_ms: int) -> int:
        """Until when a row of the run that is written at `at_ms` is kept, in Unix seconds."""
        return (at_ms + self._kept_days * DAY_MS) // 1000

    def _write(self, step: Step, condition: str, **values: str | int) -> Write:
        ttl = self.ttl(step.started_at)
        if ":mine" in condition:
            values = {**values, "mine": self._pending.lease_no}
        return put(
            keys.step(self._pending.story, step.number),
            {**msgspec.to_builtins(step), "ttl": ttl},
            condition,
            **values,
        )

    def _put(self, step: Step, condition: str, **values: str) -> None:
        try:
            self._table.write(self._write(step, condition, **values))
        except ConditionFailed as failed:
            # An SDK retry of our own write finds it there already.
            if not _is(failed.old, step):
                raise LostLease from None


def _is(item: Item | None, step: Step) -> bool:
    """Whether a row is this very step, which an earlier try of its write has put down."""
    return item is not None and msgspec.convert(item, Step) == step


def progress(steps: list[Step]) -> int:
    """The number of the last lease under which a step came to its end; 0 when none did."""
    return max((s.lease_no for s in steps if s.status is not StepStatus.RUNNING), default=0)
