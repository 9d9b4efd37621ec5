"""Owns the loop of a run: ask the model, make the calls that it asks for, tell it what they came
to, until it answers.

Refuses to do anything twice. Whatever it does is a step that was written before, and again with
what came of it; where it begins is read from the steps, so that another worker goes on exactly
there. And it refuses to go on for ever: each budget that is used up lets the model answer once more
with what it has, and then the run ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from mesh.engine.context import Line
from mesh.engine.framing import Frames
from mesh.engine.ledger import Ledger
from mesh.engine.prompt import keep_of, model_request
from mesh.engine.watch import Watch
from mesh.kernel.clock import Clock
from mesh.kernel.ids import Ids
from mesh.kernel.limits import (
    ANSWER_ARGUMENT_BYTES_MAX,
    FINISH_RESERVE_S,
    MODEL_CALL_S_MAX,
    MODEL_OUTPUT_TOKENS_MAX,
    MODEL_RETRY_S,
    MODEL_TEXT_BYTES_MAX,
    MODEL_WAIT_HERE_S_MAX,
    OBSERVATION_BYTES_MAX,
    TOOL_CALL_S_MAX,
    TOOL_NAME_CHARS_MAX,
)
from mesh.kernel.text import bounded
from mesh.models.contract import (
    PASSING,
    ModelAnswer,
    ModelConnector,
    ModelFailure,
    Stop,
    ToolUse,
)
from mesh.records.agent import Agent
from mesh.records.note import Note
from mesh.records.run import Asked, Step, StepKind, StepStatus
from mesh.tools.arguments import problems
from mesh.tools.contract import Call, Observation, ObservationKind, Replay
from mesh.tools.gate import Gate
from mesh.tools.offers import Offer

_REPLAYABLE: Final = frozenset({Replay.OBSERVE, Replay.METERED})
"""Calls of these classes are made at once where several are asked for: their order changes
nothing."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the run is to answer, or why it has no answer."""

    text: str
    failure: str | None = None


class HandOver(Exception):
    """What is left does not fit into this invocation: another one goes on, after `delay_s`."""

    def __init__(self, delay_s: float = 0) -> None:
        super().__init__("the run is handed over")
        self.delay_s = delay_s


class Revoked(Exception):
    """What a call under way rests on was changed."""


class Holding(Protocol):
    """The lease under which a run is worked on."""

    def look(self) -> None:
        """Prolongs it where that is due. Raises LostLease where it, or its run, is gone; Failed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """What one run is made of, as its worker read it."""

    agent: Agent
    install_id: str
    conversation_id: str
    run_id: str
    before: int
    """The order key of the message that is answered."""
    lines: Sequence[Line]
    notes: Sequence[Note]
    started_at: int
    """When the run was first leased (Unix ms)."""
    stop_at: int
    """When this invocation must let go (Unix ms)."""


class Run:
    """One worker's part of one run."""

    def __init__(
        self,
        materials: Materials,
        *,
        ledger: Ledger,
        model: ModelConnector,
        gate: Gate,
        watch: Watch,
        holding: Holding,
        offers: Callable[[Agent], Mapping[str, Offer]],
        over: Callable[[], str | None],
        frames: Frames,
        clock: Clock,
        ids: Ids,
    ) -> None:
        """`offers` reads what the agent may be offered now; `over` names the day's budget that is
        used up, where one is."""
        self._of = materials
        self._ledger = ledger
        self._model = model
        self._gate = gate
        self._watch = watch
        self._holding = holding
        self._offers = offers
        self._over = over
        self._frames = frames
        self._clock = clock
        self._ids = ids

    def go(self, steps: Sequence[Step]) -> Said:
        """Goes on behind `steps` until the run has an answer.

        Raises HandOver, LostLease, and Failed where the table is unreachable.
        """
        done = list(steps)
        tries = 0
        while True:
            last = _last_answer(done)
            if last is not None:
                left = [
                    (last.number + 1 + offset, asked)
                    for offset, asked in enumerate(last.asked)
                    if not _ended(done, last.number + 1 + offset)
                ]
                if left:
                    self._make(left, done)
                    continue
                if not last.asked:
                    return _said(last)
            ended = self._ended_by(done)
            if ended is not None:
                return ended
            try:
                self._ask(done)
                tries = 0
            except ModelFailure as failure:
                tries += 1
                said = self._after(failure, tries)
                if said is not None:
                    return said

    # ---- budgets

    def _left_s(self) -> float:
        """How much of the run's own time is left."""
        end = self._of.started_at + self._of.agent.limits.seconds * 1000
        return (end - self._clock.now_ms()) / 1000

    def _ended_by(self, steps: Sequence[Step]) -> Said | None:
        """Why no model call may be made any more, where that is so."""
        if self._left_s() <= 0:
            return Said("", "deadline")
        if _final(steps) or len(steps) >= self._of.agent.limits.steps:
            return Said("", "budget_spent")
        over = self._over()
        return None if over is None else Said("", over)

    def _spent(self, steps: Sequence[Step]) -> str | None:
        """The budget that is used up, so that the next model call is the last."""
        limits = self._of.agent.limits
        if len(steps) + 1 >= limits.steps:
            return "steps"
        if sum(step.input_tokens or 0 for step in steps) >= limits.input_tokens:
            return "input_tokens"
        if self._output_left(steps) <= 0:
            return "output_tokens"
        if any(step.observation_kind == ObservationKind.EXHAUSTED for step in steps):
            return "tool_calls"
        if self._left_s() < min(FINISH_RESERVE_S, limits.seconds / 4):
            return "seconds"
        return None

    def _output_left(self, steps: Sequence[Step]) -> int:
        return self._of.agent.limits.output_tokens - sum(s.output_tokens or 0 for s in steps)

    # ---- the model

    def _ask(self, steps: list[Step]) -> None:
        """One model call, as a step. Raises ModelFailure, when it is kept as failed."""
        spent = self._spent(steps)
        timeout_s = min(self._left_s(), MODEL_CALL_S_MAX)
        self._demand(timeout_s)
        offers = self._offers(self._of.agent)
        request = model_request(
            agent=self._of.agent,
            frames=self._frames,
            lines=self._of.lines,
            notes=self._of.notes,
            steps=steps,
            tools=[offer.definition for offer in offers.values()],
            spent=spent,
            max_output_tokens=max(1, min(self._output_left(steps), MODEL_OUTPUT_TOKENS_MAX)),
        )
        number = _next_number(steps)
        step = self._ledger.begin(number, StepKind.MODEL, self._clock.now_ms())
        try:
            (answer,) = self._watch.calls(
                [partial(self._model.answer, request, timeout_s)], self._holding.look
            )
        except ModelFailure as failure:
            now = self._clock.now_ms()
            _note(steps, self._ledger.finish(step, StepStatus.FAILED, now, error=failure.code))
            raise
        _note(steps, self._kept(step, answer, offers, final=spent is not None))

    def _kept(
        self, step: Step, answer: ModelAnswer, offers: Mapping[str, Offer], *, final: bool
    ) -> Step:
        """The answer as its step: its words, cut; and its calls, each under an id of Mesh's own."""
        refused = answer.stop is Stop.REFUSED and not answer.text.strip()
        asked = () if final else self._asked(answer.calls, offers)
        return self._ledger.finish(
            step,
            StepStatus.COMPLETED,
            self._clock.now_ms(),
            text=bounded(answer.text, MODEL_TEXT_BYTES_MAX),
            error="model_refused" if refused else None,
            usage=answer.usage,
            asked=asked,
            left_out=answer.calls_left_out,
            keep=keep_of(answer.keep) if asked else None,
            final=final,
        )

    def _asked(self, calls: Sequence[ToolUse], offers: Mapping[str, Offer]) -> tuple[Asked, ...]:
        """The calls as the ledger keeps them. Arguments that go beyond what an answer's may have
        together are not kept: the model is told that they were none."""
        kept: list[Asked] = []
        left = ANSWER_ARGUMENT_BYTES_MAX
        for use in calls:
            arguments = None if use.arguments is None else _compact(use.arguments)
            size = 0 if arguments is None else len(arguments.encode("utf-8", "replace"))
            offer = offers.get(use.name)
            kept.append(
                Asked(
                    call_id=self._ids.mint("cal"),
                    model_call_id=use.call_id,
                    name=use.name[:TOOL_NAME_CHARS_MAX],
                    arguments=arguments if size <= left else None,
                    agent_version=None if offer is None else offer.agent_version,
                    binding_version=None if offer is None else offer.binding_version,
                )
            )
            left -= size
        return tuple(kept)

    def _after(self, failure: ModelFailure, tries: int) -> Said | None:
        """What follows a model call that failed: another try, after a wait, or the run's end."""
        if failure.kind not in PASSING or tries > len(MODEL_RETRY_S):
            return Said("", failure.code)
        wait_s = max(failure.retry_after_s or 0.0, MODEL_RETRY_S[tries - 1])
        if wait_s >= self._left_s():
            return Said("", failure.code)
        if wait_s > MODEL_WAIT_HERE_S_MAX:
            raise HandOver(wait_s)
        self._clock.sleep(wait_s)
        self._holding.look()
        return None

    def _demand(self, timeout_s: float) -> None:
        """Raises HandOver where a call that begins now could outlast this invocation."""
        if self._clock.now_ms() + timeout_s * 1000 > self._of.stop_at:
            raise HandOver

    # ---- tools

    def _make(self, left: Sequence[tuple[int, Asked]], steps: list[Step]) -> None:
        """The calls of an answer that have no end yet: at once where all may be made again or are
        metered, else the first of them alone."""
        admitted: list[tuple[Step, Offer, Asked]] = []
        together = all(self._replay_of(asked) in _REPLAYABLE for _, asked in left)
        for number, asked in left if together else left[:1]:
            self._demand(TOOL_CALL_S_MAX)
            place = self._admitted(number, asked, steps)
            if isinstance(place, Step):
                _note(steps, place)
            else:
                admitted.append((*place, asked))
        if not admitted:
            return
        came_to = self._called(admitted)
        for (step, offer, _), observation in zip(admitted, came_to, strict=True):
            _note(steps, self._observed(step, offer, observation))

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
                number, asked, now, _no(ObservationKind.NOT_OFFERED, "there is no such tool here")
            )
        arguments = None if asked.arguments is None else json.loads(asked.arguments)
        wrong = problems(definition.input_schema, arguments)
        if wrong:
            return self._ledger.refuse(
                number, asked, now, _no(ObservationKind.INVALID_ARGUMENTS, "; ".join(wrong))
            )
        if _admitted_calls(steps, but=number) >= self._of.agent.limits.tool_calls:
            return self._ledger.refuse(
                number,
                asked,
                now,
                _no(ObservationKind.EXHAUSTED, "no tool call is left for this run"),
            )
        offer = Offer(definition, asked.agent_version, asked.binding_version)
        step = self._ledger.admit(
            number,
            asked,
            definition,
            now,
            self._gate.conditions(self._of.agent.agent_id, offer),
        )
        if step is None:
            return self._ledger.refuse(number, asked, now, _REVOKED_BEFORE)
        return step, offer

    def _called(self, admitted: Sequence[tuple[Step, Offer, Asked]]) -> list[Observation | None]:
        """What each call came to; None for all where what they rest on changed under way."""
        works = []
        for step, offer, asked in admitted:
            call = Call(
                call_id=asked.call_id,
                agent_id=self._of.agent.agent_id,
                run_id=self._of.run_id,
                install_id=self._of.install_id,
                conversation_id=self._of.conversation_id,
                before=self._of.before,
            )
            works.append(partial(self._gate.make, offer, json.loads(step.arguments or "{}"), call))

        def look() -> None:
            self._holding.look()
            for _, offer, _asked in admitted:
                if not self._gate.stands(self._of.agent.agent_id, offer):
                    raise Revoked

        try:
            return list(self._watch.calls(works, look))
        except Revoked:
            return [None] * len(admitted)

    def _observed(self, step: Step, offer: Offer, observation: Observation | None) -> Step:
        """The end of a call's step. A result that raced a revocation is withheld."""
        stands = observation is not None and self._gate.stands(self._of.agent.agent_id, offer)
        if observation is None or not stands:
            effect = offer.definition.replay is Replay.EFFECT
            observation = _UNCERTAIN_REVOKED if effect else _REVOKED_AFTER
        status = {
            ObservationKind.RESULT: StepStatus.COMPLETED,
            ObservationKind.REVOKED: StepStatus.REFUSED,
            ObservationKind.UNCERTAIN: StepStatus.UNCERTAIN,
        }.get(observation.kind, StepStatus.FAILED)
        return self._ledger.observe(
            step,
            status,
            self._clock.now_ms(),
            observation,
            bounded(observation.text, OBSERVATION_BYTES_MAX),
        )


def _compact(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), ensure_ascii=False, separators=(",", ":"))


def _no(kind: ObservationKind, text: str) -> Observation:
    return Observation(kind=kind, text=text)


_REVOKED_BEFORE: Final = _no(
    ObservationKind.REVOKED,
    "what this tool was offered on has changed since, so it was not called; what is offered now "
    "stands for itself",
)
_REVOKED_AFTER: Final = _no(
    ObservationKind.REVOKED,
    "what this tool was offered on changed while it was called, so what came of it is withheld",
)
_UNCERTAIN_REVOKED: Final = _no(
    ObservationKind.UNCERTAIN,
    "what this tool was offered on changed while it was called: it may have been done, or not, and "
    "it is not done again",
)


def _note(steps: list[Step], step: Step) -> None:
    """Puts a step into its place among those that are known."""
    steps[:] = sorted(
        [*(s for s in steps if s.number != step.number), step], key=lambda s: s.number
    )


def _next_number(steps: Sequence[Step]) -> int:
    """The number of the next model call: that of one which nobody finished, or a new one."""
    last = max(steps, key=lambda step: step.number, default=None)
    if last is None:
        return 1
    unfinished = last.kind is StepKind.MODEL and last.status is StepStatus.RUNNING
    return last.number if unfinished else last.number + 1


def _last_answer(steps: Sequence[Step]) -> Step | None:
    """The newest answer of the model; None before the first."""
    for step in reversed(steps):
        if step.kind is StepKind.MODEL and step.status is StepStatus.COMPLETED:
            return step
    return None


def _ended(steps: Sequence[Step], number: int) -> bool:
    return any(s.number == number and s.status is not StepStatus.RUNNING for s in steps)


def _final(steps: Sequence[Step]) -> bool:
    last = _last_answer(steps)
    return last is not None and last.final


def _admitted_calls(steps: Sequence[Step], *, but: int) -> int:
    return sum(s.kind is StepKind.TOOL and s.replay is not None and s.number != but for s in steps)


def _said(last: Step) -> Said:
    if last.error is not None:
        return Said("", last.error)
    text = last.text or ""
    if not text.strip() and last.final:
        return Said("", "budget_spent")
    return Said(text)
