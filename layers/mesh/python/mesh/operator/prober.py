"""Owns the probe of a tool: one call without a model, as a run of its own, with an operator as its
cause.

Refuses what the gate refuses, and to keep what the call brought back: the operator has it, and no
deletion of a conversation would find it here. The run is written down as one that was cut short
before the call is made, and as what it came to after it: so whatever dies, it is told truly. A call
that would outlast the gateway's patience is not waited for, and told as just that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.engine.contract import Revoked
from mesh.engine.endings import no, not_waited_for, status_of, withheld
from mesh.engine.watch import OutOfTime, Watch
from mesh.kernel.clock import DAY_MS, Clock, rfc3339
from mesh.kernel.errors import Conflict, Failed, FieldProblem, Invalid, MeshError, Refused
from mesh.kernel.ids import Ids
from mesh.kernel.limits import OBSERVATION_BYTES_MAX, PROBE_S
from mesh.kernel.text import bounded
from mesh.records.agent import Agent
from mesh.records.run import RunStatus, Step, StepKind, StepStatus, Story
from mesh.storage import keys
from mesh.storage.table import Cancelled, Table, Why
from mesh.storage.writes import put, update
from mesh.tools.admission import Demand, demands
from mesh.tools.arguments import problems
from mesh.tools.contract import Call, Definition, Observation, ObservationKind, provenance_of
from mesh.tools.gate import Gate
from mesh.tools.offers import Offer, offering_of

VERDICT: Final = "probe"
"""What stands for the gate's verdict on a message, where there was none."""
_CUT_SHORT: Final = "cut_short"
_TOO_LONG: Final = no(
    ObservationKind.FAILED,
    f"the call was admitted, and took longer than the {PROBE_S:.0f} s that a probe has: it was"
    " not waited for",
)


class Prober:
    """Probes tools."""

    def __init__(
        self,
        table: Table,
        clock: Clock,
        ids: Ids,
        *,
        audit: AuditTrail,
        gate: Gate,
        watch: Watch,
        kept_days: int,
    ) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids
        self._audit = audit
        self._gate = gate
        self._watch = watch
        self._kept_days = kept_days

    def probe(
        self,
        agent: Agent,
        definition: Definition,
        arguments: Mapping[str, Any],
        *,
        install_id: str | None,
        cause: Cause,
    ) -> dict[str, object]:
        """What the call came to, as it is shown.

        Raises Invalid for arguments that do not fit, Conflict `state_conflict` where the tool is
        not offered, Failed.
        """
        until = self._clock.monotonic() + PROBE_S
        wrong = problems(definition.input_schema, arguments)
        if wrong:
            raise _misfit(wrong)
        offering = offering_of(self._table, agent, self._gate.definitions)
        offer = offering.offers.get(definition.name)
        if offer is None:
            raise _not_offered(offering.absent[definition.name].value)
        against = self._gate.judge(offer, arguments)
        if against is not None:
            raise _misfit((against,))
        story, step = self._begin(agent, offer, arguments, install_id, cause)
        call = Call(
            call_id=str(step.call_id),
            agent_id=agent.agent_id,
            run_id=f"run_{story.story}",
            install_id=install_id,
            conversation_id=None,
            grant=offer.grant,
        )
        observation = self._called(offer, arguments, call, until)
        ended = self._end(story, step, observation)
        return {
            "run_id": call.run_id,
            "tool": definition.name,
            "observation_kind": observation.kind.value,
            "text": bounded(observation.text, OBSERVATION_BYTES_MAX),
            "provenance": dict(observation.provenance) or (step.provenance or {}),
            "sources": list(observation.sources or step.sources),
            "acting": definition.acting,
            "payer": offer.payer,
            "started_at": rfc3339(step.started_at),
            "ended_at": rfc3339(ended),
        }

    def _called(
        self, offer: Offer, arguments: Mapping[str, Any], call: Call, until: float
    ) -> Observation:
        """What the admitted call came to, or what is told where it is not waited for, or withheld.

        What it rests on is looked at each second meanwhile, as in a run. Raises Failed.
        """
        replay = offer.definition.replay

        def look() -> None:
            if not self._gate.stand(call.agent_id, [offer]):
                raise Revoked

        work = partial(self._gate.make, offer, arguments, call)
        within_s = until - self._clock.monotonic()
        try:
            (observation,) = self._watch.calls([work], look, within_s)
        except OutOfTime:
            observation = not_waited_for(replay, _TOO_LONG)
        except Revoked:
            return withheld(replay)
        return observation if self._gate.stand(call.agent_id, [offer]) else withheld(replay)

    def _begin(
        self,
        agent: Agent,
        offer: Offer,
        arguments: Mapping[str, Any],
        install_id: str | None,
        cause: Cause,
    ) -> tuple[Story, Step]:
        """Admits the call: its run, its step, its audit row, and what must hold for it."""
        now, ulid = self._clock.now_ms(), self._ids.ulid()
        story = Story(
            story=ulid,
            conversation_id="",
            conversation_key="",
            install_id=install_id or "",
            agent_id=agent.agent_id,
            message_id="",
            actor_id=cause.actor,
            received_at=now,
            secret_version=0,
            verdict=VERDICT,
            reason="operator",
            status=RunStatus.FAILED,
            run_reason=_CUT_SHORT,
            started_at=now,
            ended_at=now,
            leases=1,
        )
        step = Step(
            number=1,
            kind=StepKind.TOOL,
            status=StepStatus.RUNNING,
            lease_no=1,
            started_at=now,
            tool=offer.definition.name,
            call_id=self._ids.mint("cal"),
            replay=offer.definition.replay.value,
            arguments=json.dumps(dict(arguments)),
            agent_version=offer.agent_version,
            binding_version=offer.binding_version,
            acting=offer.definition.acting,
            payer=offer.payer,
            provenance=None if offer.grant is None else provenance_of(offer.grant),
            sources=self._gate.sources(offer, arguments),
            grant=offer.grant,
        )
        ttl = (now + self._kept_days * DAY_MS) // 1000
        listed = {"list_pk": keys.runs_list(agent.agent_id, now, ulid), "list_sk": ulid}
        writes = [
            put(keys.story(ulid), {**msgspec.to_builtins(story), **listed, "ttl": ttl}),
            put(keys.step(ulid, 1), {**msgspec.to_builtins(step), "ttl": ttl}),
        ]
        asks = demands(agent.agent_id, offer, ulid, now, ttl)
        deed = Deed(
            action="tool.probe",
            target=f"{agent.slug}/tools/{offer.definition.name}",
            agent_id=agent.agent_id,
        )
        try:
            self._audit.commit([*writes, *(demand.write for demand in asks)], cause, deed)
        except Cancelled as cancelled:
            for demand, reason in zip(asks, cancelled.reasons[len(writes) :], strict=False):
                if reason.why is Why.CONDITION:
                    raise _not_admitted(demand) from None
            raise Failed("unavailable", "the agent's rows are contended; try again") from None
        return story, step

    def _end(self, story: Story, step: Step, observation: Observation) -> int:
        """Writes what the call came to; when that was (Unix ms)."""
        now = self._clock.now_ms()
        good = observation.kind is ObservationKind.RESULT
        self._table.transact_settled(
            lambda: [
                update(
                    keys.step(story.story, 1),
                    "SET #status = :status, #ended_at = :now, #observation_kind = :kind,"
                    " #provenance = :provenance, #sources = :sources",
                    status=status_of(observation.kind).value,
                    now=now,
                    kind=observation.kind.value,
                    provenance=dict(observation.provenance) or (step.provenance or {}),
                    sources=list(observation.sources or step.sources),
                ),
                update(
                    keys.story(story.story),
                    "SET #status = :status, #run_reason = :reason, #ended_at = :now",
                    status=(RunStatus.COMPLETED if good else RunStatus.FAILED).value,
                    reason=VERDICT if good else observation.kind.value,
                    now=now,
                ),
            ],
            3,
        )
        return now


def _misfit(problems_found: Sequence[str]) -> Invalid:
    fields = tuple(FieldProblem("arguments", problem) for problem in problems_found)
    return Invalid("invalid_request", "the arguments do not fit the tool", fields)


def _not_admitted(demand: Demand) -> MeshError:
    if demand.otherwise.kind is ObservationKind.LIMITED:
        return Refused("rate_limited", demand.otherwise.text, retry_after_s=demand.retry_after_s)
    return _not_offered("changed")


def _not_offered(reason: str) -> Conflict:
    return Conflict(
        "state_conflict",
        f"the tool is not offered to this agent now ({reason}); see mesh tool list --agent SLUG",
    )
