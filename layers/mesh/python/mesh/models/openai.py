"""Owns OpenAI's Chat Completions API, as OpenAI serves it and as the many compatible servers do.

Refuses streams, and to believe a compatible server's small print: calls are found by their
presence, whatever the reason to stop says.
Source: developers.openai.com/api/reference, Chat Completions.
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
    Stop,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
)
from mesh.models.exchange import Key, ModelApi, kind_by_code
from mesh.models.failures import failure, no_key, no_model_named
from mesh.models.heard import Heard
from mesh.models.reading import Json, as_object, as_text, encoded, sum_of
from mesh.models.turns import Given, Said, exchange_of
from mesh.security import urls
from mesh.security.egress.contract import Egress, EgressPolicy

BASE_URL: Final = "https://api.openai.com/v1"
_OWN_HOST: Final = "api.openai.com"

_STOPS: Final = {
    "tool_calls": Stop.CALLS,
    "length": Stop.LENGTH,
    "content_filter": Stop.REFUSED,
}

_ERRORS: Final = {
    "insufficient_quota": ModelFailureKind.QUOTA,
    "credit_balance_exhausted": ModelFailureKind.QUOTA,
    "billing_hard_limit_reached": ModelFailureKind.QUOTA,
    "billing_not_active": ModelFailureKind.QUOTA,
    "rate_limit_exceeded": ModelFailureKind.THROTTLED,
    "server_error": ModelFailureKind.OVERLOADED,
    "engine_overloaded_error": ModelFailureKind.OVERLOADED,
    "invalid_api_key": ModelFailureKind.CREDENTIAL,
    "account_deactivated": ModelFailureKind.CREDENTIAL,
    "unsupported_country_region_territory": ModelFailureKind.CREDENTIAL,
    # comes with a 403 as well, for a project that may not use the model
    "model_not_found": ModelFailureKind.NOT_FOUND,
    "context_length_exceeded": ModelFailureKind.TOO_LARGE,
    "exceed_context_size_error": ModelFailureKind.TOO_LARGE,  # llama.cpp's
}


class OpenAiModel:
    """The models of one address that speaks Chat Completions."""

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
        """`base_url` goes up to and with `/v1`; None is OpenAI's own."""
        self._api = ModelApi(egress, policy, base_url or BASE_URL, key, clock, answer_bytes_max)
        parts = urls.parse(self._api.base_url)
        self._own = isinstance(parts, urls.Parts) and parts.host == _OWN_HOST

    def answer(self, request: ModelRequest, timeout_s: float) -> ModelAnswer:
        """See `ModelConnector`. A key is demanded at OpenAI's own address; others may know none."""
        body = _asked(request, own=self._own)
        key = self._api.opened_key()
        if key is None and self._own:
            raise no_key()
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return _heard(
            request, self._api.post("/chat/completions", headers, body, timeout_s, _kind_of_error)
        )


def _asked(request: ModelRequest, *, own: bool) -> dict[str, Any]:
    if not request.model:
        raise no_model_named()
    messages: list[dict[str, Any]] = []
    if request.system.strip():
        messages.append({"role": "system", "content": request.system})
    for turn in exchange_of(request.turns, gave=lambda _: False):
        messages += _given(turn) if isinstance(turn, Given) else [_said(turn)]
    # The old name is deprecated, and the only one that many compatible servers know.
    bound = "max_completion_tokens" if own else "max_tokens"
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        bound: request.max_output_tokens,
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice is ToolChoice.NONE:
            body["tool_choice"] = "none"
    return body


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.input_schema),
        },
    }


def _given(turn: Given) -> list[dict[str, Any]]:
    """The results as messages of their own, then what else there is, which may hold pictures."""
    content: list[dict[str, Any]] = []
    for result in turn.results:
        if result.image is not None:
            # A tool's message takes words alone.
            content += [_text(f"The picture that {result.call_id} gave:"), _image(result.image)]
    for part in turn.rest:
        content.append(_text(part.text) if isinstance(part, Text) else _image(part))
    messages = [_result(result) for result in turn.results]
    if all(part["type"] == "text" for part in content):
        # As one text: there are compatible servers that know no parts.
        words = "\n\n".join(part["text"] for part in content)
        return [*messages, {"role": "user", "content": words}] if words else messages
    return [*messages, {"role": "user", "content": content}]


def _result(result: ToolResult) -> dict[str, Any]:
    words = result.text if result.text.strip() else "A picture, which follows."
    return {
        "role": "tool",
        "tool_call_id": result.call_id,
        # There is no field for it.
        "content": f"Failed: {words}" if result.failed else words,
    }


def _said(turn: Said) -> dict[str, Any]:
    words = "\n\n".join(part.text for part in turn.parts if isinstance(part, Text))
    message: dict[str, Any] = {"role": "assistant", "content": words or None}
    if turn.calls:
        message["tool_calls"] = [_call(call) for call in turn.calls]
    return message


def _call(call: ToolUse) -> dict[str, Any]:
    arguments = encoded(call.arguments or {}).decode("utf-8")
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(image: Image) -> dict[str, Any]:
    data = b64encode(image.data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{data}"}}


def _heard(request: ModelRequest, body: Json) -> ModelAnswer:
    choices = body.get("choices")
    choice = as_object(choices[0]) if isinstance(choices, list) and choices else None
    message = None if choice is None else as_object(choice.get("message"))
    if choice is None or message is None:
        # Gateways answer 200 with an error inside, its status as the code.
        raise failure(_kind_of_error(0, body))
    heard = Heard(request)
    refusal = as_text(message.get("refusal"))
    for words in (*_words(message.get("content")), refusal):
        heard.text(words)
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = as_object((as_object(call) or {}).get("function")) or {}
        heard.call(
            (as_object(call) or {}).get("id"), function.get("name"), function.get("arguments")
        )
    usage = as_object(body.get("usage")) or {}
    stop = _STOPS.get(as_text(choice.get("finish_reason")), Stop.END)
    return heard.answer(
        Stop.REFUSED if refusal.strip() else stop,
        input_tokens=sum_of(usage.get("prompt_tokens")),  # cached ones are among them
        output_tokens=sum_of(usage.get("completion_tokens")),
    )


def _words(content: object) -> list[object]:
    """The words of a message, which some servers give in parts."""
    if not isinstance(content, list):
        return [content]
    return [part.get("text") for part in content if isinstance(part, dict)]


def _kind_of_error(status: int, body: Json) -> ModelFailureKind:
    """By the code or the type, which stand in `error` or, with some servers, at the top."""
    error = as_object(body.get("error")) or body
    code = error.get("code")
    if not status and isinstance(code, int):
        status = code
    return kind_by_code(_ERRORS, (code, error.get("type")), status)
