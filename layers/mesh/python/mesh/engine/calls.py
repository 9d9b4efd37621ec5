"""Owns the calls of tools that a model asked for: admitted, made, watched, and told.

Refuses a call without its reservation, and to make one again whose end nobody knows, unless it may
be made any number of times.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Final

from mesh.engine import endings
from mesh.engine.contract import HandOver, Holding, Materials, Revoked
from mesh.engine.ledger import Ledger
from mesh.engine.watch import OutOfTime, Watch
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed
from mesh.kernel.limits import OBSERVATION_BYTES_MAX, TOOL_CALL_S_MAX
from mesh.kernel.text import bounded
from mesh.records.run import Asked, Step, StepKind
from mesh.tools.admission import Demand, demands
from mesh.tools.arguments import problems
from mesh.tools.contract import Call, Observation, ObservationKind, Replay
from mesh.tools.gate import Gate
from mesh.tools.offers import Offer

_REPLAYABLE: Final = frozenset({Replay.OBSERVE, Replay.METERED})
"""Calls of these classes are made at once where several are asked for: their order changes
nothing."""


class Calls:
    """Makes calls for one run, under one lease."""

    def __init__(
        self,
        materials: Materials,
        *,
        ledger: Ledger,
        gate: Gate,
        watch: Watch,
        holding: Holding,
        clock: Clock,
    ) -> None:
        self._of = materials
        self._ledger = ledger
        self._gate = gate
        self._watch = watch
        self._holding = holding
        self._clock = clock

    def make(self, left: Sequence[tuple[int, Asked]], steps: list[Step]) -> None:
        """Makes the calls of an answer that have no end yet, `left` by their numbers: at once where
        all may be made again or are metered, else the first of them alone. Their steps are put
        among `steps`.

        Raises HandOver before anything is admitted, LostLease, and Failed where the table is
        unreachable.
        """
        # Before the first is admitted: one that was, and was not made, would be uncertain.
        self._demand()
        admitted: list[tuple[Step, Offer]] = []
        together = all(self._replay_of(asked) in _REPLAYABLE for _, asked in left)
        for number, asked in left if together else left[:1]:
            place = self._admitted(number, asked, steps)
            if isinstance(place, Step):
                note(steps, place)
            else:
                note(steps, place[0])  # it counts for the next of them
                admitted.append(place)
        if not admitted:
            return
        failed: Failed | None = None
        for (step, offer), came_to in zip(admitted, self._called(admitted), strict=True):
            if isinstance(came_to, Failed):
                failed = came_to
            else:
                note(steps, self._observed(step, offer, came_to))
        if failed is not None:  # what others came to is kept
            raise failed

    def _replay_of(self, asked: Asked) -> Replay | None:
        definition = self._gate.definitions.get(asked.name)
        return None if definition is None else definition.replay

    def _admitted(
        self, number: int, asked: Asked, steps: Sequence[Step]
    ) -> Step | tuple[Step, Offer]:
        """The call's step once it is admitted, with its offer; or its end, where it is not made."""
        begun = next((step for step in steps if step.number == number), None)
        now = self._clock.now_ms()
        definition = self._gate.definitions.get(asked.name)
        if begun is not None and begun.replay != Replay.OBSERVE:
            return self._ledger.uncertain(begun, now)
        if definition is None or asked.binding_version is None or asked.agent_version is None:
            return self._ledger.refuse(
                number,
                asked,
                now,
                endings.no(ObservationKind.NOT_OFFERED, "there is no such tool here"),
            )
        arguments = None if asked.arguments is None else json.loads(asked.arguments)
        wrong = problems(definition.input_schema, arguments)
        if wrong:
            return self._ledger.refuse(
                number, asked, now, endings.no(ObservationKind.INVALID_ARGUMENTS, "; ".join(wrong))
            )
        if _admitted_calls(steps, but=number) >= self._of.agent.limits.tool_calls:
            return self._ledger.refuse(
                number,
                asked,
                now,
                endings.no(ObservationKind.EXHAUSTED, "no tool call is left for this run"),
            )
        assert arguments is not None, "the schema wants an object"
        offer = Offer(definition, asked.agent_version, asked.binding_version, asked.grant)
        against = self._gate.judge(offer, arguments)
        if against is not None:
            return self._ledger.refuse(
                number, asked, now, endings.no(ObservationKind.INVALID_ARGUMENTS, against)
            )
        place = self._ledger.admit(
            number,
            asked,
            offer,
            now,
            sources=self._gate.sources(offer, arguments),
            demands=partial(self._demands, offer),
        )
        if isinstance(place, Observation):
            return self._ledger.refuse(number, asked, self._clock.now_ms(), place)
        return place, offer

    def _demands(self, offer: Offer) -> Sequence[Demand]:
        """What the admission of a call demands at this moment."""
        now = self._clock.now_ms()
        story = self._of.run_id.removeprefix("run_")
        return demands(self._of.agent.agent_id, offer, story, now, self._ledger.ttl(now))

    def _called(self, admitted: Sequence[tuple[Step, Offer]]) -> list[Observation | Failed]:
        """What each call came to; Failed where Mesh's own table could not be reached."""
        offers = [offer for _, offer in admitted]
        works = [partial(self._made, step, offer) for step, offer in admitted]

        def look() -> None:
            self._holding.look()
            if not self._gate.stand(self._of.agent.agent_id, offers):
                raise Revoked

        try:
            return list(self._watch.calls(works, look, TOOL_CALL_S_MAX))
        except Revoked:
            told = endings.CANCELLED
        except OutOfTime:
            told = endings.TOO_LONG
        return [endings.not_waited_for(offer.definition.replay, told) for offer in offers]

    def _made(self, step: Step, offer: Offer) -> Observation | Failed:
        call = Call(
            call_id=str(step.call_id),
            agent_id=self._of.agent.agent_id,
            run_id=self._of.run_id,
            install_id=self._of.install_id,
            conversation_id=self._of.conversation_id,
            before=self._of.before,
            order=self._of.order,
            grant=offer.grant,
        )
        try:
            return self._gate.make(offer, json.loads(step.arguments or "{}"), call)
        except Failed as failed:
            return failed

    def _observed(self, step: Step, offer: Offer, observation: Observation) -> Step:
        """The end of a call's step. What came in a race with a revocation is withheld."""
        if not self._gate.stand(self._of.agent.agent_id, [offer]):
            observation = endings.withheld(offer.definition.replay)
        return self._ledger.observe(
            step,
            endings.status_of(observation.kind),
            self._clock.now_ms(),
            observation,
            bounded(observation.text, OBSERVATION_BYTES_MAX),
        )

    def _demand(self) -> None:
        """Raises HandOver where a call that begins now could outlast this invocation."""
        if self._clock.now_ms() + TOOL_CALL_S_MAX * 1000 > self._of.stop_at:
            raise HandOver


def note(steps: list[Step], step: Step) -> None:
    """Puts a step into its place among those that are known."""
    steps[:] = sorted(
        [*(s for s in steps if s.number != step.number), step], key=lambda s: s.number
    )


def _admitted_calls(steps: Sequence[Step], *, but: int) -> int:
    return sum(s.kind is StepKind.TOOL and s.replay is not None and s.number != but for s in steps)
