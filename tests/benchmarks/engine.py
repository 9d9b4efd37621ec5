"""Owns the costs of a run that thinks: AWS calls of a step, and whether they grow with the run.

Refuses a real model: what it would take is not the engine's.
"""

from __future__ import annotations

import tracemalloc
from typing import Final

from mesh.models.contract import ModelAnswer, ModelRequest
from mesh.records.agent import Limits, Model, ModelKind
from tests.benchmarks.costs import SHORT
from tests.benchmarks.figures import Figure, count, ratio
from tests.fakes.model import ScriptedModel, results_of, says, use
from tests.fakes.system import System

FEW: Final = 10
STEPS: Final = 200


def turn_calls(tools: int) -> int:
    """AWS calls of a turn whose model writes a note anew `tools` times, one after the other."""

    def speak(request: ModelRequest) -> ModelAnswer:
        told = len(results_of(request))
        if told >= tools:
            return says("done", tokens=(1, 1))
        note = use("note", f"c-{told}", name="parcel", text="on its way", version=told)
        return says("", note, tokens=(1, 1))

    model = ScriptedModel(speak)
    system = System(lag=False, models=lambda _: model)
    limits = Limits(steps=2 * tools + 2, tool_calls=tools + 1)
    agent = system.make_agent("grace", limits, Model(kind=ModelKind.OPENAI, name="m"))
    made = system.make_install(agent=agent)
    with system.aws.recording() as calls:
        system.say(made, SHORT)
        system.settle()
    assert len(model.asked) == tools + 1
    return sum(call.caller == "turn_worker" for call in calls)


def peak_mb() -> float:
    """The most memory (MB) that Python held for the objects made in a run of 200 steps."""
    tracemalloc.start()
    try:
        turn_calls(STEPS // 2 - 1)
        return tracemalloc.get_traced_memory()[1] / 1024**2
    finally:
        tracemalloc.stop()


def figures() -> dict[str, Figure]:
    """The counts, and their growth over a run of 200 steps."""
    none, ten, twenty, long = (turn_calls(n) for n in (0, FEW, 2 * FEW, STEPS // 2 - 1))
    early = (twenty - ten) / FEW
    late = (long - twenty) / (STEPS // 2 - 1 - 2 * FEW)
    return {
        "engine_step_calls": count(
            (ten - none) / (2 * FEW), "AWS calls of a step: a model call, or a call of a tool"
        ),
        "turn_10_tools_calls": count(ten, "AWS calls of a turn with ten calls of a tool"),
        "engine_200_steps_memory": count(
            round(peak_mb(), 1), "MB at most for what a run of 200 steps makes", 256
        ),
        "engine_200_steps_growth": ratio(
            late / early, "AWS calls a step up to the 200th, against up to the 40th", 1
        ),
    }
