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
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mesh.engine.calls import Calls, note
from mesh.engine.contract import HandOver, Holding, Materials, Said
from mesh.engine.framing import Frames
from mesh.engine.ledger import Ledger
from mesh.engine.prompt import keep_of, model_request
from mesh.engine.watch import OutOfTime, Watch
from mesh.kernel.clock import Clock
from mesh.kernel.ids import Ids
from mesh.kernel.limits import (
    ANSWER_ARGUMENT_BYTES_MAX,
    FINISH_RESERVE_S,
    MODEL_CALL_MARGIN_S,
    MODEL_CALL_S_MAX,
    MODEL_OUTPUT_TOKENS_MAX,
    MODEL_RETRY_S,
    MODEL_TEXT_BYTES_MAX,
    MODEL_WAIT_HERE_S_MAX,
    REPLY_SOURCES_BYTES_MAX,
    REPLY_SOURCES_MAX,
    TOOL_NAME_CHARS_MAX,
)
from mesh.kernel.text import bounded
from mesh.models.contract import (
    PASSING,
    ModelAnswer,
    ModelConnector,
    ModelFailure,
    ModelFailureKind,
    Stop,
    ToolUse,
)
from mesh.records.agent import Agent
from mesh.records.run import Asked, Step, StepKind, StepStatus
from mesh.tools.contract import ObservationKind
from mesh.tools.offers import Offer


class Run:
    """One worker's part of one run."""

    def __init__(
        self,
        materials: Materials,
        *,
        ledger: Ledger,
        model: ModelConnector,
        calls: Calls,
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
        self._calls = calls
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
            self._holding.look()  # calls that take less than a second have nobody look
            last = _last_answer(done)
            if last is not None:
                left = [
                    (last.number + 1 + offset, asked)
                    for offset, asked in enumerate(last.asked)
                    if not _ended(done, last.number + 1 + offset)
                ]
                if left:
                    self._calls.make(left, done)
                    continue
                if not last.asked:
                    return replace(_said(last), sources=_sources(done))
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
        if _final(steps) or _next_number(steps) > self._of.agent.limits.steps:
            return Said("", "budget_spent")
        over = self._over()
        return None if over is None else Said("", over)

    def _spent(self, steps: Sequence[Step]) -> str | None:
        """The budget that is used up, so that the next model call is the last."""
        limits = self._of.agent.limits
        # A call is worth its step where an answer, the call and another answer still fit.
        if _next_number(steps) + 2 > limits.steps:
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
                [partial(self._model.answer, request, timeout_s)],
                self._holding.look,
                timeout_s + MODEL_CALL_MARGIN_S,
            )
        except (ModelFailure, OutOfTime) as error:
            failure = error if isinstance(error, ModelFailure) else _SILENT
            now = self._clock.now_ms()
            note(steps, self._ledger.finish(step, StepStatus.FAILED, now, error=failure.code))
            raise failure from None
        note(steps, self._kept(step, answer, offers, final=spent is not None))

    def _kept(
        self, step: Step, answer: ModelAnswer, offers: Mapping[str, Offer], *, final: bool
    ) -> Step:
        """The answer as its step: its words, cut; and its calls, each under an id of Mesh's own."""
        refused = answer.stop is Stop.REFUSED and not answer.text.strip()
        # As many calls as leave a step for the answer to what they came to.
        fit = self._of.agent.limits.steps - step.number - 1
        asked = () if final else self._asked(answer.calls[:fit], offers)
        return self._ledger.finish(
            step,
            StepStatus.COMPLETED,
            self._clock.now_ms(),
            text=bounded(answer.text, MODEL_TEXT_BYTES_MAX),
            error="model_refused" if refused else None,
            usage=answer.usage,
            asked=asked,
            left_out=answer.calls_left_out + max(0, len(answer.calls) - fit) if asked else 0,
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
                    grant=None if offer is None else offer.grant,
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
        self._watch.pause(wait_s, self._holding.look)
        return None

    def _demand(self, timeout_s: float) -> None:
        """Raises HandOver where a call that begins now could outlast this invocation."""
        if self._clock.now_ms() + timeout_s * 1000 > self._of.stop_at:
            raise HandOver


def _compact(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), ensure_ascii=False, separators=(",", ":"))


_SILENT: Final = ModelFailure(ModelFailureKind.UNREACHABLE, "the model did not answer in time")


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


def _sources(steps: Sequence[Step]) -> tuple[Mapping[str, str], ...]:
    """Where the results that the run was told came from, each once, in the order of the calls."""
    found: list[Mapping[str, str]] = []
    left = REPLY_SOURCES_BYTES_MAX
    for step in steps:
        if step.observation_kind != ObservationKind.RESULT or not step.provenance:
            continue
        source = {"tool": step.tool or "", **step.provenance}
        for each in [{**source, "url": url} for url in step.sources] or [source]:
            left -= len(json.dumps(each))
            if left < 0 or len(found) == REPLY_SOURCES_MAX:
                return tuple(found)
            if each not in found:
                found.append(each)
    return tuple(found)


def _said(last: Step) -> Said:
    if last.error is not None:
        return Said("", last.error)
    text = last.text or ""
    if not text.strip() and last.final:
        return Said("", "budget_spent")
    return Said(text)
