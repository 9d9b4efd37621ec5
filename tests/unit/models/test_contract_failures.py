"""Every connector fails by the one contract: by kind, once, and without a word of its API."""

from __future__ import annotations

import json
import traceback
from typing import Any

import pytest

from mesh.kernel.limits import MODEL_ANSWER_BYTES_MAX
from mesh.models.contract import (
    PASSING,
    Image,
    ModelFailure,
    ModelFailureKind,
    ModelRequest,
    Stop,
    Text,
    ToolResult,
    ToolUse,
    Turn,
)
from tests.fakes.model_servers import WireReply
from tests.unit.models.apis import BUILDERS, KEY, Api, assistant, request, user

PICTURE = Image("image/png", b"\x89PNG\r\n\x1a\n...")
CALL = ToolUse("call_1", "look_up", {"word": "ibex"})


def failed(api: Api, asked: Any = None) -> ModelFailure:
    with pytest.raises(ModelFailure) as caught:
        api.ask(asked)
    return caught.value


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ModelFailureKind.REFUSED_REQUEST),
        (403, ModelFailureKind.CREDENTIAL),
        (404, ModelFailureKind.NOT_FOUND),
        (413, ModelFailureKind.TOO_LARGE),
        (422, ModelFailureKind.REFUSED_REQUEST),
        (429, ModelFailureKind.THROTTLED),
        (500, ModelFailureKind.OVERLOADED),
        (503, ModelFailureKind.OVERLOADED),
        (504, ModelFailureKind.OVERLOADED),
    ],
)
def test_an_error_is_told_by_its_kind(api: Api, status: int, kind: ModelFailureKind) -> None:
    api.server.sends(api.server.error(status, ""))
    assert failed(api).kind is kind
    assert len(api.server.requests) == 1, "no connector tries again by itself"


@pytest.mark.parametrize("status", [429, 500, 529])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"<html>PRIVATE</html>", id="no JSON"),
        pytest.param(b"[]", id="an array"),
        pytest.param(b'{"error": "PRIVATE"}', id="a sentence"),
        pytest.param(b'{"error":' * 20_000 + b"1" + b"}" * 20_000, id="deep"),
    ],
)
def test_an_error_without_a_code_is_told_by_its_status(api: Api, status: int, body: bytes) -> None:
    api.server.sends(WireReply(status, body))
    assert failed(api).kind in PASSING


def test_a_redirect_is_not_followed(api: Api) -> None:
    api.server.sends(WireReply(307, b"", {"location": "https://elsewhere.example/"}))
    assert failed(api).kind is ModelFailureKind.MALFORMED
    assert len(api.server.requests) == 1


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("17", 17.0),
        ("0.5", 0.5),
        ("0", 0.0),
        ("-3", None),
        ("86400", 3600.0),
        ("1e999", None),
        ("Mon, 30 Nov 2026 00:54:00 GMT", 40.0),
        ("Mon, 30 Nov 2020 00:54:00 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("", None),
    ],
)
def test_how_long_the_api_asks_to_be_left_alone_is_told(
    api: Api, asked: str, seconds: float | None
) -> None:
    api.clock.ms = 1_796_000_000_000  # 00:53:20 of that day
    reply = api.server.error(429, "")
    api.server.sends(WireReply(429, reply.body, {**reply.headers, "retry-after": asked}))
    assert failed(api).retry_after_s == seconds


def test_an_api_that_says_nothing_of_waiting_asks_for_none(api: Api) -> None:
    api.server.sends(api.server.error(429, ""))
    assert failed(api).retry_after_s is None


DEEP = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
RATHER_DEEP = b'{"content":' + b"[" * 80 + b"]" * 80 + b"}"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"<html>PRIVATE</html>", id="no JSON"),
        pytest.param(b'{"content": [', id="half"),
        pytest.param(b"\xff\xfe{}", id="no UTF-8"),
        pytest.param(b"[]", id="an array"),
        pytest.param(b"null", id="null"),
        pytest.param(b"{}", id="of no API"),
        pytest.param(b'{"content": 7, "choices": {}, "output": []}', id="wrong types"),
        pytest.param(b'{"content": null, "choices": [], "output": {}}', id="no choices"),
        pytest.param(b'{"choices": [{"index": 0}], "output": {"message": {}}}', id="no message"),
        pytest.param(DEEP, id="deep"),
        pytest.param(RATHER_DEEP, id="rather deep"),
    ],
)
def test_what_is_no_answer_of_the_api_is_told_as_such(api: Api, body: bytes) -> None:
    api.server.sends(WireReply(200, body, {"content-type": "application/json"}))
    assert failed(api).kind is ModelFailureKind.MALFORMED


@pytest.mark.parametrize("spoil", [b'"\\ud800"', b'"a", "more": 1, "more": 2'])
def test_json_that_two_parsers_read_differently_is_no_answer(api: Api, spoil: bytes) -> None:
    said = json.dumps(api.server.answer((Text("A wild goat."),), Stop.END, None)).encode()
    spoiled = b'{"more_to_come": ' + spoil + b", " + said[1:]
    api.server.sends(WireReply(200, spoiled))
    assert failed(api).kind is ModelFailureKind.MALFORMED


def test_the_answer_of_another_api_is_none(api: Api) -> None:
    for name, build in BUILDERS.items():
        other = build().server
        if isinstance(other, type(api.server)):
            continue
        api.server.sends(
            WireReply(200, json.dumps(other.answer((Text(name),), Stop.END, None)).encode())
        )
        assert failed(api).kind is ModelFailureKind.MALFORMED


@pytest.mark.parametrize("name", BUILDERS)
def test_an_answer_beyond_its_bound_is_not_read(name: str) -> None:
    api = BUILDERS[name](answer_bytes_max=2_000)
    api.server.says(Text("a" * 2_000))
    assert failed(api).kind is ModelFailureKind.MALFORMED
    assert MODEL_ANSWER_BYTES_MAX == 4 * 1024 * 1024


def test_a_network_that_breaks_is_told_as_such(api: Api) -> None:
    api.break_network()
    assert failed(api).kind is ModelFailureKind.UNREACHABLE


def test_without_time_nothing_is_asked(api: Api) -> None:
    with pytest.raises(ModelFailure) as caught:
        api.model.answer(request(), 0.0)
    assert caught.value.kind is ModelFailureKind.UNREACHABLE
    assert api.server.requests == []


def test_a_model_without_a_name_is_not_asked_for(api: Api) -> None:
    assert failed(api, request(model=None)).kind is ModelFailureKind.NOT_FOUND
    assert api.server.requests == []


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param((), id="nothing"),
        pytest.param((user(" "),), id="nothing but blanks"),
        pytest.param((assistant("Hello."), user("Hello.")), id="the assistant begins"),
        pytest.param((user("Hello."), assistant("Hello.")), id="the assistant ends"),
        pytest.param((user("Hello."), assistant(CALL), user("Well?")), id="no result"),
        pytest.param((user(ToolResult("call_1", "A goat.")),), id="no call"),
        pytest.param(
            (user("Hello."), assistant(CALL), user(*[ToolResult("call_1", "A goat.")] * 2)),
            id="two results",
        ),
        pytest.param((user(CALL),), id="the user calls"),
        pytest.param((user("Hello."), assistant(PICTURE), user("Well?")), id="it shows a picture"),
    ],
)
def test_turns_that_no_api_takes_are_a_bug(api: Api, turns: tuple[Turn, ...]) -> None:
    with pytest.raises(ValueError, match=r"side|calls"):
        api.model.answer(request(*turns) if turns else request_without_turns(), 1.0)
    assert api.server.requests == []


def request_without_turns() -> ModelRequest:
    return ModelRequest(
        model="a-model", system="", turns=(), question="", max_output_tokens=1, tools=()
    )


# ---- what is never told


@pytest.mark.parametrize(
    "reply",
    [
        lambda server: server.error(400, ""),
        lambda server: server.error(429, ""),
        lambda server: WireReply(200, b"PRIVATE"),
        lambda server: WireReply(503, b"PRIVATE"),
    ],
)
def test_a_failure_carries_no_word_address_or_key_of_the_api(api: Api, reply: Any) -> None:
    api.server.sends(reply(api.server))
    told = failed(api)
    everything = "".join(traceback.format_exception(told)) + repr(told) + str(vars(told))
    secrets = ["PRIVATE", KEY, "anthropic.com", "openai.com", "models.example", "amazonaws"]
    assert [secret for secret in secrets if secret in everything] == []
    assert told.__context__ is None, "nor does what it was made of"


def test_a_failure_of_the_network_carries_none_either(api: Api) -> None:
    api.break_network()
    told = failed(api)
    everything = "".join(traceback.format_exception(told)) + repr(told) + str(vars(told))
    assert "amazonaws" not in everything
    assert told.__context__ is None


def test_what_is_said_does_not_show_in_a_representation(api: Api) -> None:
    api.server.says(Text("A wild goat."), CALL)
    asked = request()
    answer = api.ask(asked)
    shown = repr(asked) + repr(answer) + repr(api.model)
    assert [word for word in ("ibex", "Ada", "goat", KEY) if word in shown] == []
