"""Where an install merges, one run answers what waits in the conversation, and nothing is lost."""

from __future__ import annotations

import json
from typing import Any

from mesh.models.contract import ModelConnector
from mesh.records.agent import Agent
from mesh.records.install import Busy, Engagement
from tests.fakes.model import ScriptedModel, says, words_of
from tests.fakes.system import System


class Scene:
    """An install that merges, and a model that says which message it answers."""

    def __init__(self, busy: Busy = Busy.MERGE) -> None:
        self.model = ScriptedModel(lambda asked: says(f"to {asked.question}"))
        self.system = System(models=self._model_of)
        self.made = self.system.make_install(engagement=Engagement(busy=busy))

    def _model_of(self, agent: Agent) -> ModelConnector:
        return self.model

    def say(self, *numbers: int) -> None:
        for number in numbers:
            self.system.say(self.made, f"line {number}", f"m-{number}")

    def replies(self) -> list[Any]:
        return [json.loads(call.body) for call in self.system.calls()]

    def stories(self) -> dict[str, dict[str, Any]]:
        return {row["message_id"]: row for row in self.system.rows("STORY")}


def test_what_waits_when_a_turn_begins_is_answered_by_it() -> None:
    scene = Scene()
    scene.say(1, 2, 3)
    scene.system.settle()
    (reply,) = scene.replies()
    assert (reply["body"], reply["in_reply_to"], reply["sequence"]) == ("to line 3", "m-3", 1)
    (asked,) = scene.model.asked
    assert all(f"line {number}" in words_of(asked) for number in (1, 2, 3))
    stories = scene.stories()
    assert [stories[f"m-{n}"]["status"] for n in (1, 2, 3)] == ["completed"] * 3
    assert "merged_into" not in stories["m-1"]
    for number in (2, 3):
        assert stories[f"m-{number}"]["merged_into"] == stories["m-1"]["story"]
        assert "sequence" not in stories[f"m-{number}"]
    assert scene.system.rows("PEND#") == []
    (order,) = scene.system.rows("ORDER")
    assert order["pending"] == 0
    assert "due_pk" not in order


def test_what_comes_while_a_turn_runs_waits_for_the_next() -> None:
    scene = Scene()
    first = scene.model._lines[0]

    def meanwhile(asked: Any) -> Any:
        if len(scene.model.asked) == 1:
            scene.say(3, 4)
        return first(asked)  # type: ignore[operator]

    scene.model._lines = (meanwhile,)
    scene.say(1, 2)
    scene.system.settle()
    assert [r["body"] for r in scene.replies()] == ["to line 2", "to line 4"]
    assert "line 3" not in words_of(scene.model.asked[0])


def test_where_an_install_queues_each_message_has_a_run_of_its_own() -> None:
    scene = Scene(Busy.QUEUE)
    scene.say(1, 2, 3)
    scene.system.settle()
    assert [reply["in_reply_to"] for reply in scene.replies()] == ["m-1", "m-2", "m-3"]


def test_only_so_many_are_merged_and_the_others_come_next() -> None:
    scene = Scene()
    scene.say(*range(1, 31))
    scene.system.settle()
    assert [reply["in_reply_to"] for reply in scene.replies()] == ["m-21", "m-30"]
