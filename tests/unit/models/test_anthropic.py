"""What is Anthropic's own: its headers, its addresses, its codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.kernel.limits import MODEL_ANSWER_BYTES_MAX
from mesh.models.anthropic import API_VERSION, AnthropicModel
from mesh.models.contract import (
    Image,
    ModelFailure,
    ModelFailureKind,
    Stop,
    Text,
    ToolChoice,
    ToolResult,
    ToolUse,
)
from mesh.security.egress import EgressFailureKind, EgressPolicy, Reply
from mesh.security.urls import Allowlist
from tests.fakes.egress import ScriptedEgress, answer, failure
from tests.fakes.model_servers import WireReply, as_json
from tests.fakes.time import SimulatedClock
from tests.unit.models.apis import KEY, anthropic, assistant, request, user

URL = "https://api.anthropic.com/v1/messages"


def failed(status: int, body: object, **headers: str) -> ModelFailure:
    api = anthropic()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    api.server.sends(WireReply(status, as_json(body), named))
    with pytest.raises(ModelFailure) as caught:
        api.ask()
    return caught.value


def test_the_body_is_to_the_letter_what_the_documentation_shows() -> None:
    api = anthropic()
    api.server.says(Text("Yes."))
    call = ToolUse("toolu_1", "screenshot", {"full": True})
    shown = ToolResult("toolu_1", "Done.", failed=True, image=Image("image/jpeg", b"\xff\xd8"))
    asked = request(user("Hello."), assistant("So.", call), user(shown, "And?"))
    api.ask(asked)
    (sent,) = api.server.requests
    body = json.loads(sent.body)
    assert body.pop("tools")[0] == {
        "name": "look_up",
        "description": "Looks a word up.",
        "input_schema": asked.tools[0].input_schema,
    }
    assert body == {
        "model": "a-model",
        "max_tokens": 800,
        "system": "You are Ada.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "So."},
                    {
                        "type": "tool_use",
                        "id": "toolu_1",
                        "name": "screenshot",
                        "input": {"full": True},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [
                            {"type": "text", "text": "Done."},
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "image/jpeg",
                                    "data": "/9g=",
                                },
                            },
                        ],
                        "is_error": True,
                    },
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
    }


def test_the_version_is_named_and_the_key_has_a_header_of_its_own() -> None:
    api = anthropic()
    api.server.says(Text("Yes."))
    api.ask()
    headers = api.server.requests[0].headers
    assert headers["anthropic-version"] == API_VERSION == "2023-06-01"
    assert headers["x-api-key"] == KEY
    assert "authorization" not in headers


def test_no_tool_may_be_called_where_words_are_asked_for() -> None:
    api = anthropic()
    api.server.says(Text("Yes."))
    api.ask(request(tool_choice=ToolChoice.NONE))
    assert json.loads(api.server.requests[0].body)["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        (None, URL),
        ("https://models.example", "https://models.example/v1/messages"),
        ("https://models.example/", "https://models.example/v1/messages"),
        ("https://models.example/claude/v1", "https://models.example/claude/v1/messages"),
        ("https://models.example/a?v=1", "https://models.example/a/v1/messages?v=1"),
    ],
)
def test_the_address_is_its_own_or_another(base_url: str | None, url: str) -> None:
    egress = ScriptedEgress()
    egress.script(url, answer(200, b'{"content": []}'))
    model = AnthropicModel(
        egress, EgressPolicy(), key=lambda: KEY, clock=SimulatedClock(), base_url=base_url
    )
    model.answer(request(), 3.0)
    assert [call.url for call in egress.calls] == [url]


@pytest.mark.parametrize("key", [None, "", " \n"])
def test_without_a_key_nothing_is_asked(key: str | None) -> None:
    api = anthropic(key=lambda: key)
    with pytest.raises(ModelFailure) as caught:
        api.ask()
    assert caught.value.kind is ModelFailureKind.CREDENTIAL
    assert api.server.requests == []


@pytest.mark.parametrize("key", ["sk-SECRET\r\nX-More: 1", "sk-SECRET-ж", "sk SECRET"])
def test_a_key_that_no_header_holds_is_refused_and_not_shown(key: str) -> None:
    api = anthropic(key=lambda: key)
    with pytest.raises(ModelFailure) as caught:
        api.ask()
    assert caught.value.kind is ModelFailureKind.CREDENTIAL
    assert "SECRET" not in str(caught.value)
    assert api.server.requests == []


def test_a_key_is_asked_for_once_a_request_and_not_kept() -> None:
    keys = iter(["first", "second"])
    api = anthropic(key=lambda: next(keys))
    api.server.says(Text("Yes."))
    api.ask()
    api.ask()
    assert [asked.credential for asked in api.server.asked] == ["first", "second"]


@pytest.mark.parametrize(
    ("status", "kind", "code", "expected"),
    [
        (400, "invalid_request_error", None, ModelFailureKind.REFUSED_REQUEST),
        (413, "invalid_request_error", None, ModelFailureKind.TOO_LARGE),
        (413, "request_too_large", None, ModelFailureKind.TOO_LARGE),
        (401, "authentication_error", None, ModelFailureKind.CREDENTIAL),
        (403, "permission_error", None, ModelFailureKind.CREDENTIAL),
        (402, "billing_error", None, ModelFailureKind.QUOTA),
        (404, "not_found_error", None, ModelFailureKind.NOT_FOUND),
        (409, "conflict_error", None, ModelFailureKind.OVERLOADED),
        (429, "rate_limit_error", None, ModelFailureKind.THROTTLED),
        (429, "rate_limit_error", "ramp_limit_exceeded", ModelFailureKind.THROTTLED),
        (429, "rate_limit_error", "enforced_spend_limit_reached", ModelFailureKind.QUOTA),
        (429, "rate_limit_error", "contract_spend_limit_reached", ModelFailureKind.QUOTA),
        (500, "api_error", None, ModelFailureKind.OVERLOADED),
        (504, "timeout_error", None, ModelFailureKind.OVERLOADED),
        (529, "overloaded_error", None, ModelFailureKind.OVERLOADED),
        (200, "overloaded_error", None, ModelFailureKind.OVERLOADED),
        (500, "rate_limit_error", None, ModelFailureKind.THROTTLED),
        (418, "of tomorrow", None, ModelFailureKind.REFUSED_REQUEST),
        (200, "of tomorrow", None, ModelFailureKind.MALFORMED),
    ],
)
def test_an_error_is_told_by_its_code_then_its_type_then_its_status(
    status: int, kind: str, code: str | None, expected: ModelFailureKind
) -> None:
    error = {"type": kind, "message": "PRIVATE", "details": code and {"error_code": code}}
    assert failed(status, {"type": "error", "error": error}).kind is expected


def test_an_api_that_says_not_to_try_again_means_money() -> None:
    error = {"type": "error", "error": {"type": "rate_limit_error", "message": "PRIVATE"}}
    assert failed(429, error, x_should_retry="false").kind is ModelFailureKind.QUOTA
    assert failed(429, error, x_should_retry="true").kind is ModelFailureKind.THROTTLED


def test_the_wait_in_milliseconds_goes_before_the_one_in_seconds() -> None:
    told = failed(429, {}, retry_after_ms="1500", retry_after="9")
    assert told.retry_after_s == 1.5
    assert failed(429, {}, retry_after_ms="soon", retry_after="9").retry_after_s == 9.0


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", Stop.END),
        ("stop_sequence", Stop.END),
        ("pause_turn", Stop.END),
        ("max_tokens", Stop.LENGTH),
        ("model_context_window_exceeded", Stop.LENGTH),
        ("refusal", Stop.REFUSED),
        ("of tomorrow", Stop.END),
        (None, Stop.END),
        (["end_turn"], Stop.END),
    ],
)
def test_each_reason_to_stop_is_known(reason: object, stop: Stop) -> None:
    api = anthropic()
    body = {"content": [{"type": "text", "text": "Yes."}], "stop_reason": reason}
    api.server.sends(WireReply(200, as_json(body)))
    assert api.ask().stop is stop


def test_blocks_that_nobody_asked_for_are_passed_over() -> None:
    api = anthropic()
    blocks = [
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
        {"type": ["odd"]},
        {"type": "text"},
        {"type": "text", "text": 7},
        "words",
        None,
        {"type": "text", "text": "Yes."},
    ]
    api.server.sends(WireReply(200, as_json({"content": blocks, "usage": [], "more": 1})))
    answered = api.ask()
    assert (answered.text, answered.keep) == ("Yes.", (Text("Yes."),))


def test_a_call_without_a_name_is_no_answer() -> None:
    api = anthropic()
    api.server.sends(WireReply(200, as_json({"content": [{"type": "tool_use", "id": "a"}]})))
    with pytest.raises(ModelFailure) as caught:
        api.ask()
    assert caught.value.kind is ModelFailureKind.MALFORMED


@pytest.mark.parametrize("told", [-1, True, 1.5, "12", None, 10**12, [1]])
def test_a_count_that_is_none_is_not_believed(told: object) -> None:
    api = anthropic()
    body = {"content": [], "usage": {"input_tokens": told, "output_tokens": told}}
    api.server.sends(WireReply(200, as_json(body)))
    usage = api.ask().usage
    assert usage.estimated
    assert 0 < usage.input_tokens < 200


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (EgressFailureKind.REFUSED_URL, ModelFailureKind.REFUSED_URL),
        (EgressFailureKind.REFUSED_ADDRESS, ModelFailureKind.REFUSED_URL),
        (EgressFailureKind.BODY_TOO_LARGE, ModelFailureKind.MALFORMED),
        (EgressFailureKind.HEAD_TOO_LARGE, ModelFailureKind.MALFORMED),
        (EgressFailureKind.DNS, ModelFailureKind.UNREACHABLE),
        (EgressFailureKind.DNS_TIMEOUT, ModelFailureKind.UNREACHABLE),
        (EgressFailureKind.CONNECT, ModelFailureKind.UNREACHABLE),
        (EgressFailureKind.TLS, ModelFailureKind.UNREACHABLE),
        (EgressFailureKind.TIMEOUT, ModelFailureKind.UNREACHABLE),
        (EgressFailureKind.PROTOCOL, ModelFailureKind.UNREACHABLE),
    ],
)
def test_a_request_without_an_answer_is_told_by_what_kept_it(
    kind: EgressFailureKind, expected: ModelFailureKind
) -> None:
    egress = ScriptedEgress()
    egress.script(URL, failure(kind))
    model = AnthropicModel(egress, EgressPolicy(), key=lambda: KEY, clock=SimulatedClock())
    with pytest.raises(ModelFailure) as caught:
        model.answer(request(), 3.0)
    assert caught.value.kind is expected


class Timed(ScriptedEgress):
    """Keeps what it was given for a request."""

    def request(self, *args: Any, **options: Any) -> Reply:
        self.given = (options["body_bytes_max"], options["total_s"])
        return super().request(*args, **options)


def test_the_guard_is_given_the_time_of_the_call_and_the_bound_of_its_answer() -> None:
    egress = Timed()
    egress.script(URL, answer(200, b'{"content": []}'))
    model = AnthropicModel(egress, EgressPolicy(), key=lambda: KEY, clock=SimulatedClock())
    model.answer(request(), 42.5)
    assert egress.given == (MODEL_ANSWER_BYTES_MAX, 42.5)


@pytest.mark.parametrize(
    "base_url",
    ["http://models.example", "https://10.0.0.1", "https://localhost", "https://other.example"],
)
def test_an_address_that_the_guard_refuses_is_never_called(base_url: str) -> None:
    egress = ScriptedEgress()
    policy = EgressPolicy(allow=(Allowlist.parse(["models.example"]),))
    model = AnthropicModel(
        egress, policy, key=lambda: KEY, clock=SimulatedClock(), base_url=base_url
    )
    with pytest.raises(ModelFailure) as caught:
        model.answer(request(), 3.0)
    assert caught.value.kind is ModelFailureKind.REFUSED_URL
    assert egress.calls == []
