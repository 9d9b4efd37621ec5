"""The official clients as judges: of what the connectors ask, and of what the stand-ins answer.

They are in the test group alone; the connectors speak to the APIs through the egress guard.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from anthropic.types import Message
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

from mesh.models.contract import Image, Opaque, Stop, Text, ToolChoice, ToolResult, ToolUse
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.model_servers import Counted, ModelServer, WireRequest
from tests.fakes.openai_server import OpenAiServer
from tests.unit.models.apis import BUILDERS, KEY, assistant, request, user

SHOT = ToolUse("call_1", "screenshot", {})
LOOK = ToolUse("call_2", "look_up", {"word": "ibex"})
SHOWN = ToolResult("call_1", "Done.", image=Image("image/png", b"\x89PNG"))
MISSED = ToolResult("call_2", "No such word.", failed=True)
THOUGHTS = (
    Opaque({"type": "thinking", "thinking": "An animal?", "signature": "EqQB"}),
    Opaque({"type": "redacted_thinking", "data": "EmwKAhgB"}),
)

REQUESTS = {
    "plain": request(tools=()),
    "with tools": request(),
    "in words": request(tool_choice=ToolChoice.NONE),
    "a history": request(user("One.", "Two."), assistant("So."), user("Well?", SHOWN.image)),
    "calls": request(
        user("Hello."), assistant(*THOUGHTS, "So.", SHOT, LOOK), user(SHOWN, MISSED, "And?")
    ),
}
ANSWERS = {
    "words": (Text("Yes."),),
    "calls": (Text("So."), SHOT, LOOK),
    "nothing": (),
}


@pytest.mark.parametrize("asked", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize(
    ("name", "judge"),
    [
        ("anthropic", TypeAdapter(MessageCreateParamsNonStreaming)),
        ("openai", TypeAdapter(CompletionCreateParamsNonStreaming)),
    ],
)
def test_what_a_connector_asks_is_of_the_types_of_the_official_client(
    name: str, judge: TypeAdapter[Any], asked: Any
) -> None:
    api = BUILDERS[name]()
    api.server.says(Text("Yes."))
    api.ask(asked)
    body = json.loads(api.server.requests[0].body)
    read = exhausted(judge.validate_python(body, strict=True))
    assert read == body, "nothing is there that it does not know"


@pytest.mark.parametrize("stop", Stop)
@pytest.mark.parametrize("counted", [Counted(), Counted(100, 40, 7, 30), None])
@pytest.mark.parametrize("parts", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize(
    ("server", "judge"), [(AnthropicServer(), Message), (OpenAiServer(), ChatCompletion)]
)
def test_what_a_stand_in_answers_is_of_the_types_of_the_official_client(
    server: ModelServer, judge: Any, parts: Any, counted: Counted | None, stop: Stop
) -> None:
    said = server.answer(parts, stop, counted)
    if counted is None and judge is Message:  # the API itself always tells it
        said["usage"] = {"input_tokens": 1, "output_tokens": 1}
    judge.model_validate(said, strict=True)


def transport(server: ModelServer) -> httpx2.MockTransport:
    def handle(sent: httpx2.Request) -> httpx2.Response:
        headers = {name.lower(): value for name, value in sent.headers.items()}
        reply = server.reply(WireRequest(sent.method, sent.url.path, headers, sent.read()))
        return httpx2.Response(reply.status, headers=dict(reply.headers), content=reply.body)

    return httpx2.MockTransport(handle)


Ask = Callable[[], Any]


@pytest.fixture
def messages() -> Iterator[tuple[AnthropicServer, Ask]]:
    server = AnthropicServer()
    with httpx2.Client(transport=transport(server)) as http:
        client = anthropic.Anthropic(api_key=KEY, http_client=http, max_retries=0)

        def ask() -> Any:
            return client.messages.create(
                model="a-model",
                max_tokens=800,
                messages=[{"role": "user", "content": [{"type": "text", "text": "Hello."}]}],
            )

        yield server, ask


@pytest.fixture
def completions() -> Iterator[tuple[OpenAiServer, Ask]]:
    server = OpenAiServer()
    with httpx2.Client(transport=transport(server)) as http:
        client = openai.OpenAI(api_key=KEY, http_client=http, max_retries=0)

        def ask() -> Any:
            return client.chat.completions.create(
                model="a-model",
                max_completion_tokens=800,
                messages=[{"role": "user", "content": "Hello."}],
            )

        yield server, ask


def test_anthropics_client_and_the_stand_in_understand_each_other(
    messages: tuple[AnthropicServer, Ask],
) -> None:
    server, ask = messages
    server.says(Text("Yes."), LOOK)
    heard = ask()
    assert server.broken == []
    assert (heard.content[0].text, heard.content[1].input) == ("Yes.", LOOK.arguments)
    assert heard.stop_reason == "tool_use"


def test_openais_client_and_the_stand_in_understand_each_other(
    completions: tuple[OpenAiServer, Ask],
) -> None:
    server, ask = completions
    server.says(Text("Yes."), LOOK)
    heard = ask()
    assert server.broken == []
    assert heard.choices[0].message.content == "Yes."
    assert json.loads(heard.choices[0].message.tool_calls[0].function.arguments) == LOOK.arguments


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "", anthropic.BadRequestError),
        (401, "", anthropic.AuthenticationError),
        (404, "", anthropic.NotFoundError),
        (429, "", anthropic.RateLimitError),
        (429, "enforced_spend_limit_reached", anthropic.RateLimitError),
        (529, "", anthropic.InternalServerError),
    ],
)
def test_anthropics_client_reads_the_errors_of_the_stand_in(
    messages: tuple[AnthropicServer, Ask], status: int, code: str, expected: type[Exception]
) -> None:
    server, ask = messages
    server.sends(server.error(status, code))
    with pytest.raises(expected) as caught:
        ask()
    assert getattr(caught.value, "error_code", None) == (code or None)
    assert getattr(caught.value, "type", None)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "context_length_exceeded", openai.BadRequestError),
        (401, "invalid_api_key", openai.AuthenticationError),
        (429, "insufficient_quota", openai.RateLimitError),
        (500, "server_error", openai.InternalServerError),
    ],
)
def test_openais_client_reads_the_errors_of_the_stand_in(
    completions: tuple[OpenAiServer, Ask], status: int, code: str, expected: type[Exception]
) -> None:
    server, ask = completions
    server.sends(server.error(status, code))
    with pytest.raises(expected) as caught:
        ask()
    assert getattr(caught.value, "code", None) == code


def exhausted(value: Any) -> Any:
    """`value` with its lists read to the end: pydantic judges an iterable only as it is read."""
    if isinstance(value, dict):
        return {name: exhausted(child) for name, child in value.items()}
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return value
    return [exhausted(child) for child in value]
