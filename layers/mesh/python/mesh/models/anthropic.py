"""Owns Anthropic's Messages API: a request in its words, and its answers and errors in ours.

Refuses streams, server tools and thinking of its own choice: blocks of thought are sent back as
they came, and never read.
Source: docs.claude.com/en/api/messages and …/errors.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from mesh.kernel.clock import Clock
from mesh.kernel.limits import MODEL_ANSWER_BYTES_MAX
from mesh.models.contract import (
    Image,
    ModelAnswer,
    ModelFailureKind,
    ModelRequest,
    Opaque,
    Stop,
    Text,
    ToolChoice,
    ToolResult,
    ToolUse,
)
from mesh.models.exchange import Key, ModelApi, kind_by_code
from mesh.models.failures import failure, no_key, no_model_named
from mesh.models.heard import Heard
from mesh.models.reading import Json, as_object, as_text, sum_of
from mesh.models.turns import Given, Said, exchange_of
from mesh.security.egress.contract import Egress, EgressPolicy

BASE_URL: Final = "https://api.anthropic.com"
API_VERSION: Final = "2023-06-01"
"""The version that the documentation describes, and that gateways in front of other models know.

A version changes the shape of answers, so it changes here, with the code that reads them. (The SDK
of November 2026 sends 2026-10-21.)
"""

_THOUGHTS: Final = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}
"""Their types, and the texts that each of them has."""

_STOPS: Final = {
    "end_turn": Stop.END,
    "stop_sequence": Stop.END,
    "pause_turn": Stop.END,
    "tool_use": Stop.CALLS,
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "refusal": Stop.REFUSED,
}

_ERRORS: Final = {
    # details.error_code, which is told beside a type that waiting would mend
    "enforced_spend_limit_reached": ModelFailureKind.QUOTA,
    "contract_spend_limit_reached": ModelFailureKind.QUOTA,
    "linked_organization_spend_limit_reached": ModelFailureKind.QUOTA,
    "linked_organization_billing_unavailable": ModelFailureKind.QUOTA,
    # type; an `invalid_request_error` says less than its status does (400, 413)
    "authentication_error": ModelFailureKind.CREDENTIAL,
    "permission_error": ModelFailureKind.CREDENTIAL,
    "billing_error": ModelFailureKind.QUOTA,
    "not_found_error": ModelFailureKind.NOT_FOUND,
    "request_too_large": ModelFailureKind.TOO_LARGE,
    "rate_limit_error": ModelFailureKind.THROTTLED,
    "overloaded_error": ModelFailureKind.OVERLOADED,
    "timeout_error": ModelFailureKind.OVERLOADED,
    "api_error": ModelFailureKind.OVERLOADED,
}


class AnthropicModel:
    """The models of one address that speaks Anthropic's Messages API."""

    def __init__(
        self,
        egress: Egress,
        policy: EgressPolicy,
        *,
        key: Key,
        clock: Clock,
        base_url: str | None = None,
        answer_bytes_max: int = MODEL_ANSWER_BYTES_MAX,
    ) -> None:
        """`base_url` ends before `/v1/messages`; None is Anthropic's own."""
        base = (base_url or BASE_URL).rstrip("/").removesuffix("/v1")
        self._api = ModelApi(egress, policy, base, key, clock, answer_bytes_max)

    def answer(self, request: ModelRequest, timeout_s: float) -> ModelAnswer:
        """See `ModelConnector`. A key is demanded, whatever the address."""
        body = _asked(request)
        key = self._api.opened_key()
        if key is None:
            raise no_key()
        headers = {"x-api-key": key, "anthropic-version": API_VERSION}
        return _heard(
            request, self._api.post("/v1/messages", headers, body, timeout_s, _kind_of_error)
        )


def _asked(request: ModelRequest) -> dict[str, Any]:
    if not request.model:
        raise no_model_named()
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_output_tokens,
        "messages": [
            _given(turn) if isinstance(turn, Given) else _said(turn)
            for turn in exchange_of(request.turns, gave=_gave)
        ],
    }
    if request.system.strip():
        body["system"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": dict(tool.input_schema),
            }
            for tool in request.tools
        ]
        if request.tool_choice is ToolChoice.NONE:
            body["tool_choice"] = {"type": "none"}
    return body


def _gave(opaque: Opaque) -> bool:
    return _is_thought(opaque.block)


def _given(turn: Given) -> dict[str, Any]:
    rest = [_text(part.text) if isinstance(part, Text) else _image(part) for part in turn.rest]
    return {"role": "user", "content": [*map(_result, turn.results), *rest]}


def _result(result: ToolResult) -> dict[str, Any]:
    content = [_text(result.text)] if result.text.strip() else []
    if result.image is not None:
        content.append(_image(result.image))
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": content,
    }
    if result.failed:
        block["is_error"] = True
    return block


def _said(turn: Said) -> dict[str, Any]:
    return {"role": "assistant", "content": [_said_block(part) for part in turn.parts]}


def _said_block(part: Text | ToolUse | Opaque) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return _text(text)
        case ToolUse(call_id=call_id, name=name, arguments=arguments):
            return {
                "type": "tool_use",
                "id": call_id,
                "name": name,
                "input": dict(arguments or {}),
            }
        case Opaque(block=block):
            return dict(block)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(image: Image) -> dict[str, Any]:
    return {
        "type": "image",
        "source": {
            "type": "base64",
            "media_type": image.media_type,
            "data": b64encode(image.data).decode("ascii"),
        },
    }


def _heard(request: ModelRequest, body: Json) -> ModelAnswer:
    content = body.get("content")
    if not isinstance(content, list):
        # An error may come with a 200 from what stands before the API.
        raise failure(_kind_of_error(0, body))
    heard = Heard(request)
    for block in content:
        _hear(heard, as_object(block) or {})
    usage = as_object(body.get("usage")) or {}
    return heard.answer(
        _STOPS.get(as_text(body.get("stop_reason")), Stop.END),
        # The three add up to what was read: cached tokens are not among the first.
        input_tokens=sum_of(
            usage.get("input_tokens"),
            usage.get("cache_creation_input_tokens"),
            usage.get("cache_read_input_tokens"),
        ),
        output_tokens=sum_of(usage.get("output_tokens")),
    )


def _hear(heard: Heard, block: Json) -> None:
    match as_text(block.get("type")):
        case "text":
            heard.text(block.get("text"))
        case "tool_use":
            heard.call(block.get("id"), block.get("name"), block.get("input"))
        case _ if _is_thought(block):
            heard.opaque(block)
        case _:  # of a kind that was not asked for, or not known yet
            pass


def _is_thought(block: Json) -> bool:
    texts = _THOUGHTS.get(as_text(block.get("type")))
    return texts is not None and all(isinstance(block.get(name), str) for name in texts)


def _kind_of_error(status: int, body: Json) -> ModelFailureKind:
    error = as_object(body.get("error")) or {}
    details = as_object(error.get("details")) or {}
    return kind_by_code(_ERRORS, (details.get("error_code"), error.get("type")), status)
