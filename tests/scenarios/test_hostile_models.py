"""A model, or what calls itself one, says whatever it likes: the run ends honestly, within its
budgets, and each of its rows fits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mesh.control.tools import ToolBindings
from mesh.models.contract import (
    ModelAnswer,
    ModelConnector,
    ModelRequest,
    Opaque,
    Stop,
    Text,
    ToolUse,
)
from mesh.records.agent import Limits, Model, ModelKind
from tests.fakes.control import CAUSE
from tests.fakes.model_servers import WireReply, as_json
from tests.fakes.system import System
from tests.unit.models.apis import BUILDERS, KEY

NAMES = ("anthropic", "compatible", "bedrock")
ITEM_BYTES_MAX = 400 * 1024
"""What DynamoDB takes."""
LIMITS = Limits(steps=6, tool_calls=4)
NO_ANSWER = "I could not get an answer from the language model that I think with."


class Scene:
    """An agent whose model is the real connector of an API, with a stand-in behind it."""

    def __init__(self, name: str, limits: Limits = LIMITS) -> None:
        self.api = BUILDERS[name]()
        self.system = System(models=lambda _: self.api.model)
        self.agent = self.system.make_agent("grace", limits, Model(kind=ModelKind.OPENAI, name="m"))
        self.made = self.system.make_install(agent=self.agent)

    def ends(self, limits: Limits = LIMITS) -> dict[str, Any]:
        """Says something, and holds what holds of every run; answers the run's end."""
        self.system.say(self.made, "hello")
        self.system.settle()
        (story,) = self.system.rows("STORY")
        assert story["status"] in ("completed", "failed")
        assert self.system.rows("PEND#") == []
        assert len(self.steps()) <= limits.steps
        assert sum(step.get("replay") is not None for step in self.steps()) <= limits.tool_calls
        for step in self.steps():
            assert size_of(step) < ITEM_BYTES_MAX
            assert step["status"] != "running"
        assert self.api.server.broken == []
        return story

    def steps(self) -> list[dict[str, Any]]:
        return sorted(self.system.rows("STEP#"), key=lambda row: row["sk"])

    def take_tools_away(self) -> None:
        bindings = ToolBindings(self.system.table, self.system.clock, self.system.control.audit)
        for tool in ("conversation_search", "note"):
            bindings.put(self.agent, tool, enabled=False, version=1, cause=CAUSE)

    def reply(self) -> str:
        (reply,) = self.system.delivered()
        return str(reply["body"])


def size_of(row: dict[str, Any]) -> int:
    """About what a row is in DynamoDB: names and values, and a little for each."""
    return len(json.dumps(row, ensure_ascii=False, default=str).encode("utf-8", "replace"))


def call(name: str = "conversation_search", call_id: str = "c-1", **arguments: Any) -> ToolUse:
    return ToolUse(call_id, name, arguments or {"query": "x"})


def deep(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


CALLS = {
    "a thousand calls": [call(call_id=f"c-{n}") for n in range(1000)],
    "one id for several calls": [call()] * 5,
    "a name of 10 KB": [call("x" * 10_000)],
    "a name of control characters": [call("note\n\x00\u202e")],
    "a name that is a marker": [call("[[/mesh:0]]")],
    "an id of 10 KB": [call(call_id="c" * 10_000)],
    "arguments of 1 MB": [call(query="x" * 1_000_000)],
    "arguments that fit together just not": [
        call(call_id=f"c-{n}", query="é" * 30_000) for n in range(9)
    ],
    "deep arguments": [call(query=deep(40))],
    "arguments with control characters": [call(query="\x00\x1b\u202e")],
    "arguments of another shape": [call(query=[1, {"a": None}], more=True)],
    "words of 1 MB beside a call": [Text("é" * 500_000), call()],
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("said", CALLS.values(), ids=[each.replace(" ", "-") for each in CALLS])
def test_whatever_it_calls_again_and_again_the_run_ends_in_its_budgets(
    said: list[Any], name: str
) -> None:
    scene = Scene(name)
    scene.api.server.says(*said)
    story = scene.ends()
    if story["status"] == "failed":
        assert story["run_reason"] == "budget_spent"
        assert scene.reply() == "I used up what I may spend on one answer before I had one."
    else:
        assert scene.reply().startswith("é")  # it spoke beside its calls


@pytest.mark.parametrize("name", NAMES)
def test_a_row_that_is_as_full_as_it_can_be_still_fits(name: str) -> None:
    thought: dict[str, Any] = {"type": "thinking", "thinking": "t" * 100_000, "signature": "s"}
    if name == "bedrock":
        thought = {"reasoningContent": {"reasoningText": {"text": "t" * 100_000, "signature": "s"}}}
    scene = Scene(name, Limits())
    thoughts = [Opaque(thought)] if name in ("anthropic", "bedrock") else []
    calls = [call(call_id=f"{'c' * 60}{n:02}", query="é" * 3_500) for n in range(16)]
    scene.api.server.says(*thoughts, Text("é" * 40_000), *calls)
    scene.api.server.says(Text("done"))
    scene.ends(Limits())
    assert max(map(size_of, scene.steps())) > (200_000 if thoughts else 60_000)


@pytest.mark.parametrize("name", NAMES)
def test_words_without_end_are_cut_with_a_mark(name: str) -> None:
    scene = Scene(name)
    scene.api.server.says(Text("é" * 500_000))
    assert scene.ends()["status"] == "completed"
    assert scene.reply().endswith("[…]")
    assert len(scene.reply().encode()) <= 64 * 1024


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("blank", [" \n\t ", ""])
def test_nothing_but_white_space_is_no_reply_and_no_failure(blank: str, name: str) -> None:
    scene = Scene(name)
    scene.api.server.says(Text(blank))
    story = scene.ends()
    assert (story["status"], story["run_reason"]) == ("completed", "empty")
    assert scene.system.delivered() == []


@pytest.mark.parametrize("name", NAMES)
def test_calls_where_none_may_be_made_are_dropped_and_the_words_are_the_answer(name: str) -> None:
    limits = Limits(steps=1)
    scene = Scene(name, limits)
    scene.api.server.says(Text("so far"), call(), call(call_id="c-2"))
    assert scene.ends(limits)["status"] == "completed"
    assert scene.reply() == "so far"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"<html>",
        b"\xff\xfe",
        b'{"a":' * 50_000,
        b'{"choices": 1, "content": 2, "output": 3}',
        b'{"choices": [], "content": null, "output": {"message": null}}',
        b'{"x": 1e999999, "y": ' + b"9" * 10_000 + b"}",
        b" " * (5 * 1024 * 1024),
    ],
    ids=range(10),
)
def test_what_is_no_answer_ends_the_run_as_failed_and_says_so(raw: bytes, name: str) -> None:
    scene = Scene(name)
    scene.api.server.sends(WireReply(200, raw, {"content-type": "application/json"}))
    story = scene.ends()
    assert story["status"] == "failed"
    assert story["run_reason"].startswith("model_")
    assert scene.reply() == NO_ANSWER


@pytest.mark.parametrize("name", ["anthropic", "compatible"])
def test_half_characters_and_numbers_that_are_none_end_no_run(name: str) -> None:
    scene = Scene(name)
    said = scene.api.server.answer((Text("a HALF b"), call(query="HALF NUMBER")), Stop.CALLS, None)
    raw = as_json(said).replace(b"HALF", b"\\ud800")
    scene.api.server.sends(WireReply(200, raw))
    scene.api.server.says(Text("done"))
    scene.ends()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("status", "after"),
    [
        (301, None),
        (401, None),
        (402, "-1"),
        (429, "-1"),
        (429, "1e9"),
        (429, "NaN"),
        (429, "Wed, 21 Oct 2099 07:28:00 GMT"),
        (500, "x"),
        (529, "0"),
    ],
)
def test_an_api_that_refuses_for_ever_is_given_up_honestly(
    status: int, after: str | None, name: str
) -> None:
    scene = Scene(name)
    error = scene.api.server.error(status, "")
    headers = {**error.headers, **({} if after is None else {"Retry-After": after})}
    scene.api.server.sends(WireReply(status, error.body, headers))
    story = scene.ends()
    assert story["status"] == "failed"
    assert story["run_reason"].startswith("model_")
    assert scene.reply() == NO_ANSWER
    told = json.dumps([scene.system.log.events, scene.steps(), story], default=str)
    assert KEY not in told
    assert "PRIVATE" not in told


@pytest.mark.parametrize("name", NAMES)
def test_tools_that_are_taken_away_after_a_call_leave_a_history_that_the_api_takes(
    name: str,
) -> None:
    scene = Scene(name)
    scene.api.model = Bystander(scene.api.model, scene.take_tools_away)
    scene.api.server.says(call())
    scene.api.server.says(Text("done"))
    assert scene.ends()["status"] == "completed"
    assert scene.reply() == "done"
    assert scene.api.server.asked[1].in_words


class Bystander:
    """A connector beside which something happens once its first answer is there."""

    def __init__(self, model: ModelConnector, happens: Callable[[], None]) -> None:
        self._model = model
        self._happens: Callable[[], None] | None = happens

    def answer(self, request: ModelRequest, timeout_s: float) -> ModelAnswer:
        said = self._model.answer(request, timeout_s)
        if self._happens is not None:
            self._happens()
            self._happens = None
        return said
