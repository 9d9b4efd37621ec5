"""Owns Amazon Bedrock's Converse API: a request in its words, and its answers and errors in ours.

Refuses what only some of its models take, where the same can be said to all: a failed result is
told in words, not by `status`, and a request for words by a sentence, for there is no tool choice
`none` and a history with calls needs its tools named.
Source: docs.aws.amazon.com/bedrock, Converse; botocore's service model 2023-09-30.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final, Protocol

from mesh.kernel import retry_after
from mesh.kernel.clock import Clock
from mesh.models.contract import (
    Image,
    ModelAnswer,
    ModelFailure,
    ModelFailureKind,
    ModelRequest,
    Opaque,
    Stop,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
)
from mesh.models.failures import failure, kind_of_status, no_model_named
from mesh.models.heard import Heard
from mesh.models.reading import Json, as_object, as_text, sum_of
from mesh.models.turns import Given, Said, exchange_of
from mesh.storage.bedrock import ConverseFailure, ConverseFailureKind

IN_WORDS: Final = "Answer in words now: no tool can be called any more."
"""What stands for the tool choice that Converse does not have. A call that comes all the same is
dropped, as it is with every API."""

_THOUGHT: Final = "reasoningContent"
_TOLD: Final = "reasoningText"
_REDACTED: Final = "redactedContent"

_STOPS: Final = {
    "end_turn": Stop.END,
    "stop_sequence": Stop.END,
    "tool_use": Stop.CALLS,
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "guardrail_intervened": Stop.REFUSED,
    "content_filtered": Stop.REFUSED,
}
_NO_ANSWERS: Final = frozenset({"malformed_model_output", "malformed_tool_use"})

_ERRORS: Final = {
    "ThrottlingException": ModelFailureKind.THROTTLED,
    "TooManyRequestsException": ModelFailureKind.THROTTLED,
    "ServiceQuotaExceededException": ModelFailureKind.QUOTA,
    # It takes a moment to load, and has a 429 that is no throttling.
    "ModelNotReadyException": ModelFailureKind.OVERLOADED,
    "ModelTimeoutException": ModelFailureKind.OVERLOADED,
    "ModelErrorException": ModelFailureKind.OVERLOADED,
    "InternalServerException": ModelFailureKind.OVERLOADED,
    "ServiceUnavailableException": ModelFailureKind.OVERLOADED,
    "AccessDeniedException": ModelFailureKind.CREDENTIAL,
    "UnrecognizedClientException": ModelFailureKind.CREDENTIAL,
    "InvalidSignatureException": ModelFailureKind.CREDENTIAL,
    "IncompleteSignatureException": ModelFailureKind.CREDENTIAL,
    "MissingAuthenticationTokenException": ModelFailureKind.CREDENTIAL,
    "ExpiredTokenException": ModelFailureKind.CREDENTIAL,
    "ResourceNotFoundException": ModelFailureKind.NOT_FOUND,
    "ValidationException": ModelFailureKind.REFUSED_REQUEST,
}

_FAILURES: Final = {
    ConverseFailureKind.UNREACHABLE: ModelFailureKind.UNREACHABLE,
    ConverseFailureKind.CREDENTIAL: ModelFailureKind.CREDENTIAL,
    ConverseFailureKind.INVALID: ModelFailureKind.REFUSED_REQUEST,
    ConverseFailureKind.UNREADABLE: ModelFailureKind.MALFORMED,
}


class Converse(Protocol):
    """The call to Bedrock, such as `storage.bedrock.BedrockConverse`."""

    def __call__(self, request: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """The fields of the answer, pictures and redacted thoughts as bytes. Raises
        ConverseFailure."""
        ...


class BedrockModel:
    """The models that Converse reaches with the function's own role, in its own region."""

    def __init__(self, converse: Converse, *, clock: Clock) -> None:
        self._converse = converse
        self._clock = clock

    def answer(self, request: ModelRequest, timeout_s: float) -> ModelAnswer:
        """See `ModelConnector`."""
        asked = _asked(request)
        if timeout_s <= 0:
            raise failure(ModelFailureKind.UNREACHABLE)
        answer = self._answer(asked, timeout_s)
        if isinstance(answer, ModelFailure):
            raise answer
        return _heard(request, answer)

    def _answer(self, asked: Json, timeout_s: float) -> Json | ModelFailure:
        try:
            return self._converse(asked, timeout_s)
        except ConverseFailure as why:
            if why.kind is not ConverseFailureKind.ANSWERED:
                return failure(_FAILURES[why.kind])
            text, now_ms = why.retry_after, self._clock.now_ms()
            return failure(
                _ERRORS.get(why.code) or kind_of_status(why.http_status),
                retry_after_s=None if text is None else retry_after.seconds_of(text, now_ms),
            )


def _asked(request: ModelRequest) -> dict[str, Any]:
    if not request.model:
        raise no_model_named()
    asked: dict[str, Any] = {
        "modelId": request.model,
        "inferenceConfig": {"maxTokens": request.max_output_tokens},
        "messages": [
            _given(turn) if isinstance(turn, Given) else _said(turn)
            for turn in exchange_of(request.turns, gave=_gave)
        ],
    }
    system = [request.system] if request.system.strip() else []
    if request.tools:
        asked["toolConfig"] = {"tools": [_tool(tool) for tool in request.tools]}
        if request.tool_choice is ToolChoice.NONE:
            system.append(IN_WORDS)
    if system:
        asked["system"] = [{"text": text} for text in system]
    return asked


def _tool(tool: ToolSpec) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "name": tool.name,
        "inputSchema": {"json": dict(tool.input_schema)},
    }
    if tool.description.strip():
        spec["description"] = tool.description
    return {"toolSpec": spec}


def _gave(opaque: Opaque) -> bool:
    return _THOUGHT in opaque.block


def _given(turn: Given) -> dict[str, Any]:
    rest = [{"text": part.text} if isinstance(part, Text) else _image(part) for part in turn.rest]
    return {"role": "user", "content": [*map(_result, turn.results), *rest]}


def _result(result: ToolResult) -> dict[str, Any]:
    words = f"Failed: {result.text}" if result.failed else result.text
    content: list[dict[str, Any]] = [{"text": words}] if words.strip() else []
    if result.image is not None:
        content.append(_image(result.image))
    return {"toolResult": {"toolUseId": result.call_id, "content": content}}


def _image(image: Image) -> dict[str, Any]:
    kind = image.media_type.removeprefix("image/")
    return {"image": {"format": kind, "source": {"bytes": image.data}}}


def _said(turn: Said) -> dict[str, Any]:
    return {"role": "assistant", "content": [_said_block(part) for part in turn.parts]}


def _said_block(part: Text | ToolUse | Opaque) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"text": text}
        case ToolUse(call_id=call_id, name=name, arguments=arguments):
            call = {"toolUseId": call_id, "name": name, "input": dict(arguments or {})}
            return {"toolUse": call}
        case Opaque(block=block):
            return _with_bytes(block)


def _heard(request: ModelRequest, answer: Json) -> ModelAnswer:
    message = as_object((as_object(answer.get("output")) or {}).get("message"))
    content = None if message is None else message.get("content")
    reason = as_text(answer.get("stopReason"))
    if not isinstance(content, list) or reason in _NO_ANSWERS:
        raise failure(ModelFailureKind.MALFORMED)
    heard = Heard(request)
    for block in content:
        _hear(heard, as_object(block) or {})
    usage = as_object(answer.get("usage")) or {}
    return heard.answer(
        _STOPS.get(reason, Stop.END),
        # The three add up to what was read: cached tokens are not among the first.
        input_tokens=sum_of(
            usage.get("inputTokens"),
            usage.get("cacheReadInputTokens"),
            usage.get("cacheWriteInputTokens"),
        ),
        output_tokens=sum_of(usage.get("outputTokens")),
    )


def _hear(heard: Heard, block: Json) -> None:
    heard.text(block.get("text"))
    call = as_object(block.get("toolUse"))
    if call is not None and "type" not in call:  # one with a type is the server's own affair
        heard.call(call.get("toolUseId"), call.get("name"), call.get("input"))
    thought = _thought_in(block)
    if thought is not None:
        heard.opaque(thought)


def _thought_in(block: Json) -> Json | None:
    """The block of a thought as JSON: a redacted one's bytes in base64, as on the wire."""
    thought = as_object(block.get(_THOUGHT)) or {}
    redacted, told = thought.get(_REDACTED), as_object(thought.get(_TOLD)) or {}
    if isinstance(redacted, bytes):
        return {_THOUGHT: {_REDACTED: b64encode(redacted).decode("ascii")}}
    if not isinstance(told.get("text"), str):
        return None
    signed = {name: text for name, text in told.items() if isinstance(text, str)}
    return {_THOUGHT: {_TOLD: signed}}


def _with_bytes(block: Json) -> dict[str, Any]:
    thought = block[_THOUGHT]
    redacted = thought.get(_REDACTED)
    if redacted is None:
        return dict(block)
    return {_THOUGHT: {_REDACTED: b64decode(redacted)}}
