"""What is OpenAI's own, and what compatible servers make of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.models.contract import (
    Image,
    ModelFailure,
    ModelFailureKind,
    Stop,
    Text,
    ToolChoice,
    ToolResult,
    ToolUse,
    Usage,
)
from mesh.models.openai import OpenAiModel
from mesh.security.egress import EgressPolicy
from tests.fakes.egress import ScriptedEgress, answer
from tests.fakes.model_servers import WireReply, as_json
from tests.fakes.time import SimulatedClock
from tests.unit.models.apis import KEY, Api, assistant, compatible, openai, request, user


def says(api: Api, message: dict[str, Any], finish: object = "stop", **more: Any) -> None:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    api.server.sends(WireReply(200, as_json({"choices": [choice], **more})))


def calls(*functions: dict[str, Any], ids: tuple[Any, ...] = ()) -> dict[str, Any]:
    given = [
        {"type": "function", "function": function, **({"id": ids[n]} if n < len(ids) else {})}
        for n, function in enumerate(functions)
    ]
    return {"role": "assistant", "content": None, "tool_calls": given}


def kind_of(api: Api, status: int, body: object) -> ModelFailureKind:
    api.server.sends(WireReply(status, as_json(body)))
    with pytest.raises(ModelFailure) as caught:
        api.ask()
    return caught.value.kind


def test_the_body_is_to_the_letter_what_the_documentation_shows() -> None:
    api = openai()
    api.server.says(Text("Yes."))
    shot = ToolUse("call_1", "screenshot", {"full": True})
    look = ToolUse("call_2", "look_up", {"word": "é"})
    shown = ToolResult("call_1", "Done.", image=Image("image/png", b"\x89PNG"))
    missed = ToolResult("call_2", "No such word.", failed=True)
    asked = request(user("Hello."), assistant("So.", shot, look), user(shown, missed, "And?"))
    api.ask(asked)
    body = json.loads(api.server.requests[0].body)
    assert body.pop("tools")[0] == {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Looks a word up.",
            "parameters": asked.tools[0].input_schema,
        },
    }
    assert body == {
        "model": "a-model",
        "max_completion_tokens": 800,
        "messages": [
            {"role": "system", "content": "You are Ada."},
            {"role": "user", "content": "Hello."},
            {
                "role": "assistant",
                "content": "So.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "screenshot", "arguments": '{"full":true}'},
                    },
                    {
                        "id": "call_2",
                        "type": "function",
                        "function": {"name": "look_up", "arguments": '{"word":"é"}'},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "Done."},
            {"role": "tool", "tool_call_id": "call_2", "content": "Failed: No such word."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "The picture that call_1 gave:"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
    }


def test_a_turn_that_only_calls_has_no_content() -> None:
    api = openai()
    api.server.says(Text("Yes."))
    shot = ToolUse("call_1", "screenshot", {})
    api.ask(request(user("Hello."), assistant(shot), user(ToolResult("call_1", "Done."))))
    said = json.loads(api.server.requests[0].body)["messages"][2]
    assert said["content"] is None


def test_several_texts_are_sent_as_one_for_servers_that_know_no_parts() -> None:
    api = compatible()
    api.server.says(Text("Yes."))
    api.ask(request(user("One.", "Two.")))
    body = json.loads(api.server.requests[0].body)
    assert body["messages"][-1] == {"role": "user", "content": "One.\n\nTwo."}


@pytest.mark.parametrize(
    ("base_url", "bound"),
    [
        (None, "max_completion_tokens"),
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://API.OpenAI.com/v1/", "max_completion_tokens"),
        ("https://models.example/v1", "max_tokens"),
        ("https://models.example/openai/v1?version=2", "max_tokens"),
        ("https://api.openai.com.example/v1", "max_tokens"),
    ],
)
def test_only_openai_itself_is_asked_with_the_new_bound(base_url: str | None, bound: str) -> None:
    base, mark, query = (base_url or "https://api.openai.com/v1").partition("?")
    egress = ScriptedEgress()
    url = f"{base.rstrip('/')}/chat/completions{mark}{query}"
    egress.script(url, answer(200, b'{"choices": [{"message": {"content": "Yes."}}]}'))
    model = OpenAiModel(
        egress, EgressPolicy(), key=lambda: KEY, clock=SimulatedClock(), base_url=base_url
    )
    model.answer(request(), 3.0)
    (call,) = egress.calls
    body = json.loads(call.body)
    assert [name for name in body if name.startswith("max_")] == [bound]


def test_a_compatible_server_may_know_no_key_and_openai_does() -> None:
    api = compatible(key=lambda: None)
    api.server.says(Text("Yes."))
    api.ask()
    assert "authorization" not in api.server.requests[0].headers
    with pytest.raises(ModelFailure) as caught:
        openai(key=lambda: None).ask()
    assert caught.value.kind is ModelFailureKind.CREDENTIAL


def test_whether_a_tool_may_be_called_is_told_only_where_it_may_not() -> None:
    api = openai()
    api.server.says(Text("Yes."))
    api.ask(request())
    api.ask(request(tool_choice=ToolChoice.NONE))
    first, second = (json.loads(sent.body) for sent in api.server.requests)
    assert "tool_choice" not in first
    assert second["tool_choice"] == "none"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"word": "ibex"}', {"word": "ibex"}),
        ({"word": "ibex"}, {"word": "ibex"}),
        ("", {}),
        ("  ", {}),
        (None, {}),
        ("{}", {}),
        ('{"word": "ibex"', None),
        ("word=ibex", None),
        ('["ibex"]', None),
        ('"{}"', None),
        (["ibex"], None),
        (7, None),
        ('{"word": "a", "word": "b"}', None),
        ('{"word": NaN}', None),
        ('{"word": 1e999}', None),
        ('{"word": "\\ud800"}', None),
        ('{"word": "\\ud83d\\udc10"}', {"word": "🐐"}),
        ('{"many": 12345678901234567890}', {"many": 12345678901234567890}),
        ('{"many": 123456789012345678901}', None),
    ],
)
def test_arguments_are_a_json_object_or_its_text_or_none(arguments: Any, expected: Any) -> None:
    api = compatible()
    says(api, calls({"name": "look_up", "arguments": arguments}, ids=("call_1",)))
    answered = api.ask()
    assert [call.arguments for call in answered.calls] == [expected]
    api.server.says(Text("Yes."))
    told = ToolResult("call_1", "So.")
    api.ask(request(user("Hello."), assistant(*answered.keep), user(told)))


def test_arguments_that_are_left_out_are_none_at_all() -> None:
    api = compatible()
    says(api, calls({"name": "screenshot"}, ids=("call_1",)))
    assert api.ask().calls[0].arguments == {}


@pytest.mark.parametrize("ids", [(), (None, None), ("", ""), (7, {"a": 1}), ("same", "same")])
def test_calls_are_told_apart_though_their_ids_are_missing_or_the_same(
    ids: tuple[Any, ...],
) -> None:
    api = compatible()
    says(api, calls({"name": "look_up"}, {"name": "look_up"}, ids=ids))
    first, second = api.ask().calls
    assert first.call_id
    assert second.call_id
    assert first.call_id != second.call_id


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call", None, "eos", ["stop"]])
def test_calls_are_found_by_their_presence_whatever_the_reason_to_stop(finish: object) -> None:
    api = compatible()
    says(api, calls({"name": "look_up", "arguments": "{}"}, ids=("call_1",)), finish)
    answered = api.ask()
    assert answered.stop is Stop.CALLS
    assert len(answered.calls) == 1


@pytest.mark.parametrize("none", [None, [], "none", {}])
def test_no_calls_are_written_in_many_ways(none: object) -> None:
    api = compatible()
    says(api, {"content": "Yes.", "tool_calls": none}, "tool_calls")
    answered = api.ask()
    assert (answered.text, answered.calls, answered.stop) == ("Yes.", (), Stop.END)


@pytest.mark.parametrize("call", [None, "look_up", {}, {"function": None}, {"function": {}}])
def test_a_call_of_nothing_is_no_answer(call: object) -> None:
    api = compatible()
    says(api, {"content": None, "tool_calls": [call]})
    with pytest.raises(ModelFailure) as caught:
        api.ask()
    assert caught.value.kind is ModelFailureKind.MALFORMED


def test_words_may_come_in_parts_and_thoughts_beside_them() -> None:
    api = compatible()
    parts = [{"type": "text", "text": "Yes."}, {"type": "odd"}, None, {"text": "Of course."}]
    says(api, {"content": parts, "reasoning_content": "PRIVATE"})
    assert api.ask().text == "Yes.\n\nOf course."


def test_a_refusal_is_told_in_its_words() -> None:
    api = openai()
    says(api, {"content": None, "refusal": "I cannot help with that."})
    answered = api.ask()
    assert (answered.text, answered.stop) == ("I cannot help with that.", Stop.REFUSED)


def test_cached_tokens_are_among_those_of_the_prompt() -> None:
    api = openai()
    usage = {
        "prompt_tokens": 90,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 60},
    }
    says(api, {"content": "Yes."}, usage=usage)
    assert api.ask().usage == Usage(90, 5)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (429, "insufficient_quota", ModelFailureKind.QUOTA),
        (429, "credit_balance_exhausted", ModelFailureKind.QUOTA),
        (429, "billing_hard_limit_reached", ModelFailureKind.QUOTA),
        (429, "rate_limit_exceeded", ModelFailureKind.THROTTLED),
        (400, "context_length_exceeded", ModelFailureKind.TOO_LARGE),
        (401, "invalid_api_key", ModelFailureKind.CREDENTIAL),
        (403, "unsupported_country_region_territory", ModelFailureKind.CREDENTIAL),
        (403, "model_not_found", ModelFailureKind.NOT_FOUND),
        (400, "of_tomorrow", ModelFailureKind.REFUSED_REQUEST),
        (200, "server_error", ModelFailureKind.OVERLOADED),
        (200, 429, ModelFailureKind.THROTTLED),
        (200, 503, ModelFailureKind.OVERLOADED),
        (200, "of_tomorrow", ModelFailureKind.MALFORMED),
    ],
)
def test_an_error_is_told_by_its_code_then_its_status(
    status: int, code: object, expected: ModelFailureKind
) -> None:
    error = {"message": "PRIVATE", "type": "invalid_request_error", "param": None, "code": code}
    assert kind_of(openai(), status, {"error": error}) is expected


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, {"detail": "Not Found"}, ModelFailureKind.NOT_FOUND),
        (422, {"detail": [{"loc": ["body"], "msg": "PRIVATE"}]}, ModelFailureKind.REFUSED_REQUEST),
        (404, {"error": "PRIVATE"}, ModelFailureKind.NOT_FOUND),
        (
            400,
            {"object": "error", "message": "PRIVATE", "type": "BadRequestError", "code": 400},
            ModelFailureKind.REFUSED_REQUEST,
        ),
        (
            400,
            {"error": {"code": 400, "type": "exceed_context_size_error", "n_ctx": 4096}},
            ModelFailureKind.TOO_LARGE,
        ),
        (429, {"message": "PRIVATE", "type": "insufficient_quota"}, ModelFailureKind.QUOTA),
        (
            429,
            {"error": {"type": "engine_overloaded_error", "message": "PRIVATE"}},
            ModelFailureKind.OVERLOADED,
        ),
        (500, {"error": {"code": ["odd"], "type": {"a": 1}}}, ModelFailureKind.OVERLOADED),
    ],
)
def test_compatible_servers_write_their_errors_in_many_ways(
    status: int, body: object, expected: ModelFailureKind
) -> None:
    assert kind_of(compatible(), status, body) is expected
