"""What is Bedrock's own: bytes in thoughts, no choice of none, the SDK's errors, its time-outs."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from botocore import exceptions as sdk
from botocore.config import Config

from mesh.models.bedrock import IN_WORDS, BedrockModel
from mesh.models.contract import (
    Image,
    ModelFailure,
    ModelFailureKind,
    Opaque,
    Stop,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
)
from mesh.storage.bedrock import BedrockConverse
from mesh.storage.clients import SessionClients, new_session
from tests.fakes.model_servers import WireReply, as_json
from tests.fakes.time import SimulatedClock
from tests.unit.models.apis import assistant, bedrock, request, user


def test_the_body_is_to_the_letter_what_the_service_model_shows() -> None:
    api = bedrock()
    api.server.says(Text("Yes."))
    call = ToolUse("tooluse_1", "screenshot", {"full": True})
    shown = ToolResult("tooluse_1", "Done.", failed=True, image=Image("image/jpeg", b"\xff\xd8"))
    asked = request(user("Hello."), assistant("So.", call), user(shown, "And?"))
    api.ask(asked)
    (sent,) = api.server.requests
    assert sent.path == "/model/a-model/converse"
    body = json.loads(sent.body)
    assert body.pop("toolConfig")["tools"][0] == {
        "toolSpec": {
            "name": "look_up",
            "description": "Looks a word up.",
            "inputSchema": {"json": asked.tools[0].input_schema},
        }
    }
    assert body == {
        "inferenceConfig": {"maxTokens": 800},
        "system": [{"text": "You are Ada."}],
        "messages": [
            {"role": "user", "content": [{"text": "Hello."}]},
            {
                "role": "assistant",
                "content": [
                    {"text": "So."},
                    {
                        "toolUse": {
                            "toolUseId": "tooluse_1",
                            "name": "screenshot",
                            "input": {"full": True},
                        }
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "toolResult": {
                            "toolUseId": "tooluse_1",
                            "content": [
                                {"text": "Failed: Done."},
                                {"image": {"format": "jpeg", "source": {"bytes": "/9g="}}},
                            ],
                        }
                    },
                    {"text": "And?"},
                ],
            },
        ],
    }


def test_words_are_asked_for_in_words_for_there_is_no_such_choice() -> None:
    api = bedrock()
    api.server.says(Text("Yes."))
    api.ask(request(tool_choice=ToolChoice.NONE))
    body = json.loads(api.server.requests[0].body)
    assert body["system"] == [{"text": "You are Ada."}, {"text": IN_WORDS}]
    assert body["toolConfig"].keys() == {"tools"}


def test_a_tool_may_be_without_a_description() -> None:
    api = bedrock()
    api.server.says(Text("Yes."))
    api.ask(request(tools=(ToolSpec("look_up", " ", {"type": "object"}),)))
    (tool,) = json.loads(api.server.requests[0].body)["toolConfig"]["tools"]
    assert tool["toolSpec"].keys() == {"name", "inputSchema"}


def test_a_redacted_thought_can_be_stored_as_json_and_goes_back_as_it_came() -> None:
    api = bedrock()
    call = ToolUse("tooluse_1", "look_up", {})
    hidden = {"reasoningContent": {"redactedContent": "AAECAw=="}}
    api.server.says(Opaque(hidden), call)
    kept = api.ask().keep
    assert kept == (Opaque(hidden), call)
    api.server.says(Text("Yes."))
    again = tuple(
        Opaque(json.loads(json.dumps(part.block))) if isinstance(part, Opaque) else part
        for part in kept
    )
    found = user(ToolResult("tooluse_1", "A goat."))
    api.ask(request(user("Hello."), assistant(*again), found))
    sent = json.loads(api.server.requests[1].body)["messages"][1]["content"]
    assert sent[0] == hidden


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", Stop.END),
        ("stop_sequence", Stop.END),
        ("max_tokens", Stop.LENGTH),
        ("model_context_window_exceeded", Stop.LENGTH),
        ("guardrail_intervened", Stop.REFUSED),
        ("content_filtered", Stop.REFUSED),
        ("of_tomorrow", Stop.END),
    ],
)
def test_each_reason_to_stop_is_known(reason: str, stop: Stop) -> None:
    api = bedrock()
    said: Any = api.server.answer((Text("Yes."),), Stop.END, None)
    api.server.sends(WireReply(200, as_json({**said, "stopReason": reason})))
    assert api.ask().stop is stop


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_what_bedrock_could_not_read_itself_is_no_answer(reason: str) -> None:
    api = bedrock()
    said: Any = api.server.answer((Text("Yes."),), Stop.END, None)
    api.server.sends(WireReply(200, as_json({**said, "stopReason": reason})))
    with pytest.raises(ModelFailure) as caught:
        api.ask()
    assert caught.value.kind is ModelFailureKind.MALFORMED


def test_blocks_that_nobody_asked_for_are_passed_over() -> None:
    api = bedrock()
    said: Any = api.server.answer((Text("Yes."),), Stop.END, None)
    said["output"]["message"]["content"] += [
        {"citationsContent": {"content": [{"text": "A source."}]}},
        {"ofTomorrow": {"text": "What?"}},
        {
            "toolUse": {
                "toolUseId": "a",
                "name": "search",
                "input": {},
                "type": "server_tool_use",
            }
        },
    ]
    api.server.sends(WireReply(200, as_json(said)))
    answered = api.ask()
    assert answered.keep == (Text("Yes."),)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "ValidationException", ModelFailureKind.REFUSED_REQUEST),
        (400, "ServiceQuotaExceededException", ModelFailureKind.QUOTA),
        (403, "AccessDeniedException", ModelFailureKind.CREDENTIAL),
        (403, "UnrecognizedClientException", ModelFailureKind.CREDENTIAL),
        (403, "ExpiredTokenException", ModelFailureKind.CREDENTIAL),
        (404, "ResourceNotFoundException", ModelFailureKind.NOT_FOUND),
        (408, "ModelTimeoutException", ModelFailureKind.OVERLOADED),
        (424, "ModelErrorException", ModelFailureKind.OVERLOADED),
        (429, "ThrottlingException", ModelFailureKind.THROTTLED),
        (429, "ModelNotReadyException", ModelFailureKind.OVERLOADED),
        (500, "InternalServerException", ModelFailureKind.OVERLOADED),
        (503, "ServiceUnavailableException", ModelFailureKind.OVERLOADED),
        (403, "OfTomorrowException", ModelFailureKind.CREDENTIAL),
        (429, "OfTomorrowException", ModelFailureKind.THROTTLED),
    ],
)
def test_an_error_is_told_by_its_code_then_its_status(
    status: int, code: str, expected: ModelFailureKind
) -> None:
    api = bedrock()
    api.server.sends(api.server.error(status, code))
    with pytest.raises(ModelFailure) as caught:
        api.ask()
    assert caught.value.kind is expected
    assert len(api.server.requests) == 1, "the SDK tries nothing again"


class Broken:
    """A client whose call ends in one error of the SDK's."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.closed = False
        self.meta = self
        self.events = self

    def register(self, event: str, handler: Callable[..., None]) -> None:
        assert event == "before-parse.bedrock-runtime.Converse"

    def converse(self, **_: Any) -> Mapping[str, Any]:
        raise self._error

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (sdk.ReadTimeoutError(endpoint_url="https://PRIVATE"), ModelFailureKind.UNREACHABLE),
        (sdk.ConnectTimeoutError(endpoint_url="https://PRIVATE"), ModelFailureKind.UNREACHABLE),
        (sdk.EndpointConnectionError(endpoint_url="https://PRIVATE"), ModelFailureKind.UNREACHABLE),
        (sdk.ConnectionClosedError(endpoint_url="https://PRIVATE"), ModelFailureKind.UNREACHABLE),
        (
            sdk.SSLError(endpoint_url="https://PRIVATE", error="PRIVATE"),
            ModelFailureKind.UNREACHABLE,
        ),
        (sdk.NoCredentialsError(), ModelFailureKind.CREDENTIAL),
        (
            sdk.PartialCredentialsError(provider="PRIVATE", cred_var="PRIVATE"),
            ModelFailureKind.CREDENTIAL,
        ),
        (
            sdk.CredentialRetrievalError(provider="PRIVATE", error_msg="PRIVATE"),
            ModelFailureKind.CREDENTIAL,
        ),
        (sdk.NoRegionError(), ModelFailureKind.CREDENTIAL),
        (sdk.ParamValidationError(report="PRIVATE"), ModelFailureKind.REFUSED_REQUEST),
    ],
)
def test_the_sdks_own_errors_are_told_by_their_kind_and_never_quoted(
    error: Exception, expected: ModelFailureKind
) -> None:
    client = Broken(error)
    model = BedrockModel(BedrockConverse(lambda _: client), clock=SimulatedClock())
    with pytest.raises(ModelFailure) as caught:
        model.answer(request(), 3.0)
    assert caught.value.kind is expected
    assert "PRIVATE" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None
    assert client.closed


def test_a_bug_of_the_callers_is_no_failure_of_bedrocks() -> None:
    client = Broken(TypeError("converse() takes no such argument"))
    model = BedrockModel(BedrockConverse(lambda _: client), clock=SimulatedClock())
    with pytest.raises(TypeError):
        model.answer(request(), 3.0)


def test_a_client_waits_as_long_as_the_call_may_take_and_asks_once() -> None:
    session = new_session()
    session.set_config_variable("region", "eu-west-1")
    session.set_credentials("AKIDEXAMPLE", "nothing")
    client = SessionClients(session).bedrock(42.5)
    config: Config = client.meta.config
    assert config.read_timeout == 42.5
    assert config.retries["total_max_attempts"] == 1
    assert client.meta.endpoint_url == "https://bedrock-runtime.eu-west-1.amazonaws.com"
    client.close()


def test_without_credentials_for_aws_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    converse = BedrockConverse(SessionClients(new_session()).bedrock)
    with pytest.raises(ModelFailure) as caught:
        BedrockModel(converse, clock=SimulatedClock()).answer(request(), 3.0)
    assert caught.value.kind is ModelFailureKind.CREDENTIAL
