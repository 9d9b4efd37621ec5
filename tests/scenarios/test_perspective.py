"""What a run hears of its conversation: the newest that fit, marked, named and threaded; never more
reads for a longer history."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.models.contract import ModelConnector, ModelRequest, Text
from mesh.records.agent import Agent, Limits
from tests.fakes.model import ScriptedModel, says, words_of
from tests.fakes.system import System


class Scene:
    """A group in which the agent is mentioned at last."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self.model = ScriptedModel(says("yes"))
        self.system = System(models=self._model_of)
        agent = self.system.make_agent("grace", limits)
        self.made = self.system.make_install(agent=agent)

    def _model_of(self, agent: Agent) -> ModelConnector:
        return self.model

    def say(self, number: int, text: str, **more: Any) -> None:
        self.system.say(self.made, text, f"m-{number}", topology="group", **more)

    def asked(self, number: int = 10_000, text: str = "@grace and?", **more: Any) -> ModelRequest:
        self.say(number, text, **more)
        self.system.settle()
        return self.model.asked[-1]


def messages(request: ModelRequest) -> list[str]:
    return [p.text for t in request.turns for p in t.parts if isinstance(p, Text)]


@pytest.mark.parametrize(("input_tokens", "heard"), [(200_000, 15), (2_000, 3), (200, 0)])
def test_the_newest_messages_that_fit_are_heard_and_the_one_to_answer_always(
    input_tokens: int, heard: int
) -> None:
    scene = Scene(Limits(input_tokens=input_tokens))
    for number in range(15):
        scene.say(number, f"line {number:02} " + "x" * 1_000)
    words = words_of(scene.asked())
    assert "@grace and?" in words
    assert [n for n in range(15) if f"line {n:02} " in words] == list(range(15 - heard, 15))


def test_messages_are_named_marked_as_observed_and_threaded_by_what_they_answer() -> None:
    scene = Scene()
    scene.say(1, "lunch?", actor_id="u-1", display_name="Ann")
    scene.say(2, "noon", actor_id="u-2", parent_id="m-1")
    request = scene.asked(3, "@grace where?", actor_id="u-1", parent_id="m-2")
    ann, bob, last = (text.splitlines()[0] for text in messages(request)[-3:])
    assert all(word in ann for word in ('from="Ann"', 'id="m-1"', 'observed="true"'))
    assert all(word in bob for word in ('from="u-2"', 'answers="m-1"', 'observed="true"'))
    assert 'answers="m-2"' in last
    assert "observed" not in last


def test_a_longer_history_costs_no_more_reads() -> None:
    reads = []
    for history in (25, 200):
        scene = Scene()
        for number in range(history):
            scene.say(number, f"line {number}")
        scene.say(10_000, "@grace and?")
        with scene.system.aws.recording() as calls:
            scene.system.settle()
        reads.append(sum(call.operation in ("Query", "GetItem", "BatchGetItem") for call in calls))
    assert reads[0] == reads[1]
