"""Every connector keeps the one contract, over the wire of its own API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.kernel.limits import (
    MODEL_ARGUMENT_BYTES_MAX,
    MODEL_CALLS_MAX,
)
from mesh.models import tokens
from mesh.models.contract import (
    Image,
    Opaque,
    Stop,
    Text,
    ToolChoice,
    ToolResult,
    ToolUse,
    Turn,
    Usage,
)
from mesh.models.heard import UNKNOWN_TOOL
from tests.fakes.model_servers import Counted
from tests.unit.models.apis import BUILDERS, KEY, Api, assistant, request, user

PICTURE = Image("image/png", b"\x89PNG\r\n\x1a\n...")
CALL = ToolUse("call_1", "look_up", {"word": "ibex"})
OTHER = ToolUse("call_2", "look_up", {"word": "gnu", "deep": {"list": [1, 2.5, None, True]}})
THOUGHT = {"type": "thinking", "thinking": "An animal?", "signature": "EqQBCgIYAhIM"}
REASONING = {"reasoningContent": {"reasoningText": {"text": "An animal?", "signature": "EqQBC"}}}


# ---- what is asked


def test_a_plain_answer_is_its_words_and_what_they_cost(api: Api) -> None:
    api.server.says(Text("A wild goat."))
    answer = api.ask()
    assert (answer.text, answer.calls, answer.stop) == ("A wild goat.", (), Stop.END)
    assert answer.usage == Usage(120, 30)
    assert answer.keep == (Text("A wild goat."),)


def test_the_model_the_prompt_the_bound_and_the_credential_arrive(api: Api) -> None:
    api.server.says(Text("Yes."))
    api.ask(
        request(model="maker/model:1", system="You are Ada.\n\nBe brief.", max_output_tokens=99)
    )
    (asked,) = api.server.asked
    assert asked.model == "maker/model:1"
    assert asked.system == "You are Ada.\n\nBe brief."
    assert asked.max_tokens == 99
    if api.name == "bedrock":  # it signs, and does not send the key
        assert asked.credential is not None
        assert asked.credential.startswith("AWS4-HMAC-SHA256")
    else:
        assert asked.credential == KEY


def test_a_history_arrives_as_it_was(api: Api) -> None:
    api.server.says(Text("Yes."))
    turns = (user("Hello."), assistant("Good day."), user("Are you there?"))
    api.ask(request(*turns))
    assert api.server.asked[0].turns == turns


def test_blank_words_are_never_sent(api: Api) -> None:
    api.server.says(Text("Yes."))
    asked = request(
        user("Hello.", "  \n"), assistant(" "), user("Again.", ""), system="  ", tools=()
    )
    api.ask(asked)
    (heard,) = api.server.asked
    words = [part.text for turn in heard.turns for part in turn.parts if isinstance(part, Text)]
    assert "\n\n".join(words) == "Hello.\n\nAgain."
    assert heard.system == ""


def test_tools_are_offered_by_name_and_left_out_where_there_are_none(api: Api) -> None:
    api.server.says(Text("Yes."))
    api.ask()
    api.ask(request(tools=()))
    first, second = api.server.asked
    assert first.tools == ("look_up", "screenshot")
    assert not first.in_words
    assert second.tools == ()


def test_a_picture_beside_words_arrives(api: Api) -> None:
    api.server.says(Text("A goat."))
    api.ask(request(user("What is this?", PICTURE)))
    assert api.server.asked[0].turns == (user("What is this?", PICTURE),)


# ---- calls, and what came of them


def test_a_call_is_told_with_its_arguments(api: Api) -> None:
    api.server.says(CALL)
    answer = api.ask()
    assert answer.calls == (CALL,)
    assert (answer.stop, answer.text) == (Stop.CALLS, "")
    assert answer.keep == (CALL,)


def test_several_calls_and_the_words_before_them_keep_their_order(api: Api) -> None:
    api.server.says(Text("I look it up."), CALL, OTHER)
    answer = api.ask()
    assert answer.text == "I look it up."
    assert answer.calls == (CALL, OTHER)
    assert answer.keep == (Text("I look it up."), CALL, OTHER)


def test_what_was_kept_and_the_results_go_back_as_the_api_demands(api: Api) -> None:
    api.server.says(Text("I look it up."), CALL, OTHER)
    first = request()
    kept = api.ask(first).keep
    api.server.says(Text("Both are animals."))
    found = ToolResult("call_1", "A wild goat.")
    missed = ToolResult("call_2", "No such word.", failed=True)
    api.ask(request(*first.turns, Turn(assistant().side, kept), user(found, missed, "Well?")))
    assert api.server.asked[1].turns == (
        *first.turns,
        assistant("I look it up.", CALL, OTHER),
        user(found, missed, "Well?"),
    )


def test_results_go_before_whatever_else_the_turn_holds(api: Api) -> None:
    api.server.says(Text("Yes."))
    found = ToolResult("call_1", "A wild goat.")
    api.ask(request(user("Hello."), assistant(CALL), user("By the way.", found)))
    assert api.server.asked[0].turns[-1] == user(found, "By the way.")


def test_a_result_without_anything_is_told_as_empty(api: Api) -> None:
    api.server.says(Text("Yes."))
    api.ask(request(user("Hello."), assistant(CALL), user(ToolResult("call_1", " \n"))))
    assert api.server.asked[0].turns[-1] == user(ToolResult("call_1", "(empty)"))


@pytest.mark.parametrize("words", ["The page.", ""])
def test_the_picture_that_a_call_gave_arrives(api: Api, words: str) -> None:
    api.server.says(Text("A page about goats."))
    shot = ToolUse("call_1", "screenshot", {})
    shown = ToolResult("call_1", words, image=PICTURE)
    api.ask(request(user("Hello."), assistant(shot), user(shown)))
    parts = api.server.asked[0].turns[-1].parts
    if api.name in ("openai", "compatible"):
        told, which, picture = parts
        assert isinstance(told, ToolResult)
        assert told.text == (words or "A picture, which follows.")
        assert which == Text("The picture that call_1 gave:")
        assert picture == PICTURE
    else:
        assert parts == (shown,)


def test_arguments_that_were_none_go_back_as_an_empty_object(api: Api) -> None:
    api.server.says(Text("Yes."))
    broken = ToolUse("call_1", "look_up", None)
    told = ToolResult("call_1", "The arguments were no JSON object.", failed=True)
    api.ask(request(user("Hello."), assistant(broken), user(told)))
    assert api.server.asked[0].turns[1] == assistant(ToolUse("call_1", "look_up", {}))


def test_it_answers_in_words_where_it_must_and_its_history_keeps_its_tools(api: Api) -> None:
    api.server.says(Text("A wild goat."))
    found = ToolResult("call_1", "A wild goat.")
    turns = (user("Hello."), assistant(CALL), user(found))
    api.ask(request(*turns, tool_choice=ToolChoice.NONE))
    (asked,) = api.server.asked
    assert asked.in_words
    assert asked.tools == ("look_up", "screenshot")
    assert asked.turns == turns


@pytest.mark.parametrize(
    "asked", [request(tool_choice=ToolChoice.NONE), request(tools=())], ids=["in words", "no tools"]
)
def test_a_call_that_nobody_offered_is_dropped(api: Api, asked: Any) -> None:
    api.server.says(Text("A wild goat."), *[CALL] * (MODEL_CALLS_MAX + 1))
    answer = api.ask(asked)
    assert (answer.calls, answer.stop) == ((), Stop.END)
    assert answer.calls_left_out == 0, "there is nothing to tell the model"
    assert answer.keep == (Text("A wild goat."),)


@pytest.mark.parametrize("stop", [Stop.LENGTH, Stop.REFUSED])
def test_the_calls_of_an_answer_that_was_cut_or_refused_are_not_passed_on(
    api: Api, stop: Stop
) -> None:
    api.server.says(Text("I look"), CALL, stop=stop)
    answer = api.ask()
    assert (answer.text, answer.calls, answer.stop) == ("I look", (), stop)
    assert answer.keep == (Text("I look"),)


def test_more_calls_than_one_answer_may_ask_for_are_left_out_and_counted(api: Api) -> None:
    calls = [ToolUse(f"call_{n}", "look_up", {"word": str(n)}) for n in range(MODEL_CALLS_MAX + 3)]
    api.server.says(*calls)
    answer = api.ask()
    assert answer.calls == tuple(calls[:MODEL_CALLS_MAX]) == answer.keep
    assert answer.calls_left_out == 3


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    "arguments",
    [{"word": "i" * MODEL_ARGUMENT_BYTES_MAX}, nested(33)],
    ids=["too long", "too deep"],
)
def test_arguments_beyond_their_bounds_are_none(api: Api, arguments: dict[str, Any]) -> None:
    api.server.says(ToolUse("call_1", "look_up", arguments), CALL)
    first, second = api.ask().calls
    assert first.arguments is None
    assert second.arguments == CALL.arguments


def test_arguments_within_their_bounds_are_taken(api: Api) -> None:
    api.server.says(ToolUse("call_1", "look_up", nested(32)))
    assert api.ask().calls[0].arguments == nested(32)


@pytest.mark.parametrize("call_id", ["", "a b", "ж", "x" * 65])
def test_an_id_that_no_api_takes_is_made_up(api: Api, call_id: str) -> None:
    api.server.says(ToolUse(call_id, "look_up", {}), ToolUse(call_id, "look_up", {}))
    first, second = api.ask().calls
    assert (first.call_id, second.call_id) == ("call_1_1", "call_1_2")


def test_ids_are_unique_in_an_answer_and_in_its_history(api: Api) -> None:
    api.server.says(CALL, CALL)
    asked = request(user("Hello."), assistant(CALL), user(ToolResult("call_1", "A goat.")))
    first, second = api.ask(asked).calls
    assert len({"call_1", first.call_id, second.call_id}) == 3
    answered = user(ToolResult(first.call_id, "One."), ToolResult(second.call_id, "Two."))
    api.server.says(Text("Yes."))
    api.ask(request(*asked.turns, assistant(first, second), answered))


def test_a_name_that_no_tool_can_have_is_told_as_such_and_can_be_sent_back(api: Api) -> None:
    api.server.says(ToolUse("call_1", "look up!", {}))
    kept = api.ask().keep
    assert kept == (ToolUse("call_1", UNKNOWN_TOOL, {}),)
    api.server.says(Text("Yes."))
    told = ToolResult("call_1", "There is no such tool.", failed=True)
    api.ask(request(user("Hello."), assistant(*kept), user(told)))


# ---- thoughts


@pytest.mark.parametrize(
    ("name", "block", "others"),
    [("anthropic", THOUGHT, REASONING), ("bedrock", REASONING, THOUGHT)],
)
def test_a_thought_goes_back_unchanged_and_another_apis_is_passed_over(
    name: str, block: dict[str, Any], others: dict[str, Any]
) -> None:
    api = BUILDERS[name]()
    api.server.says(Opaque(block), CALL)
    kept = api.ask().keep
    assert kept == (Opaque(block), CALL)
    assert json.loads(json.dumps(block)) == block
    api.server.says(Text("Yes."))
    found = ToolResult("call_1", "A goat.")
    api.ask(request(user("Hello."), assistant(Opaque(others), *kept), user(found)))
    assert api.server.asked[1].turns[1] == assistant(*kept)


def test_a_turn_of_anothers_thoughts_alone_is_none(api: Api) -> None:
    api.server.says(Text("Yes."))
    api.ask(request(user("Hello."), assistant(Opaque({"of": "nobody"})), user("Well?")))
    (turn,) = api.server.asked[0].turns
    words = [part.text for part in turn.parts if isinstance(part, Text)]
    assert "\n\n".join(words) == "Hello.\n\nWell?"


@pytest.mark.parametrize(("name", "block"), [("anthropic", THOUGHT), ("bedrock", REASONING)])
def test_a_thought_alone_is_no_turn_to_send_back(name: str, block: dict[str, Any]) -> None:
    api = BUILDERS[name]()
    api.server.says(Opaque(block))
    answer = api.ask()
    assert (answer.text, answer.keep, answer.stop) == ("", (), Stop.END)


# ---- why it stopped, and what it cost


@pytest.mark.parametrize("stop", [Stop.END, Stop.LENGTH, Stop.REFUSED])
def test_why_it_stopped_is_told(api: Api, stop: Stop) -> None:
    api.server.says(Text("A wild"), stop=stop)
    assert api.ask().stop is stop


def test_an_answer_that_waits_for_calls_that_it_did_not_make_is_at_its_end(api: Api) -> None:
    api.server.says(Text("A wild goat."), stop=Stop.CALLS)
    assert api.ask().stop is Stop.END


def test_an_answer_without_words_is_one(api: Api) -> None:
    api.server.says(Text(" \n"))
    answer = api.ask()
    assert (answer.text, answer.keep, answer.stop) == ("", (), Stop.END)


def test_cached_tokens_count_as_input(api: Api) -> None:
    api.server.says(Text("Yes."), counted=Counted(100, 40, 7, 30))
    assert api.ask().usage == Usage(147, 30)


@pytest.mark.parametrize("counted", [None, Counted(0, 0, 0, 0)])
def test_tokens_that_are_not_told_are_taken_from_the_length(
    api: Api, counted: Counted | None
) -> None:
    api.server.says(Text("A wild goat."), counted=counted)
    asked = request(user("What is this?", PICTURE))
    usage = api.ask(asked).usage
    assert usage.estimated
    assert usage.input_tokens == tokens.of_request(asked) > 1_600
    assert usage.output_tokens == (3 if counted is None else 0)
