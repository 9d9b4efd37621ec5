"""Owns OpenAI's Chat Completions as tests have them, and as a compatible server may have them."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from mesh.models.contract import (
    Image,
    Part,
    Side,
    Stop,
    Text,
    ToolResult,
    ToolUse,
    Turn,
)
from tests.fakes.model_servers import (
    Asked,
    Counted,
    ModelServer,
    Said,
    WireReply,
    WireRequest,
    as_json,
    demand,
    demand_fields,
    demand_words,
)

_STOPS = {
    Stop.END: "stop",
    Stop.CALLS: "tool_calls",
    Stop.LENGTH: "length",
    Stop.REFUSED: "content_filter",
}
_CODES = {
    401: "invalid_api_key",
    404: "model_not_found",
    429: "rate_limit_exceeded",
    500: "server_error",
}


class OpenAiServer(ModelServer):
    """Chat Completions, whole answers only. `own` is OpenAI's; the others know the old bound."""

    def __init__(self, *, own: bool = True) -> None:
        super().__init__()
        self._bound = "max_completion_tokens" if own else "max_tokens"

    def read(self, request: WireRequest, body: Mapping[str, Any]) -> Asked:
        demand(
            (request.method, request.path) == ("POST", "/v1/chat/completions"),
            "POST /v1/chat/completions",
        )
        demand(request.headers["content-type"] == "application/json", "the body is JSON")
        demand_fields(body, {"model", "messages", self._bound}, {"tools", "tool_choice"}, "body")
        tools = tuple(map(_tool, body.get("tools", [])))
        demand("tools" not in body or tools, "a list of tools is not empty")
        choice = body.get("tool_choice", "auto")
        demand(tools or "tool_choice" not in body, "a choice is among tools")
        demand(choice in ("auto", "none", "required"), "the choice is known")
        messages = list(body["messages"])
        system = ""
        if messages and messages[0]["role"] == "system":
            system = demand_words(messages.pop(0)["content"], "the system prompt")
        authorization = request.headers.get("authorization")
        return Asked(
            model=body["model"],
            system=system,
            turns=_turns(messages),
            tools=tools,
            in_words=choice == "none",
            max_tokens=body[self._bound],
            credential=authorization and authorization.removeprefix("Bearer "),
        )

    def answer(self, parts: tuple[Said, ...], stop: Stop, counted: Counted | None) -> Any:
        words = "\n\n".join(part.text for part in parts if isinstance(part, Text))
        message: dict[str, Any] = {"role": "assistant", "content": words or None, "refusal": None}
        calls = [_call(part) for part in parts if isinstance(part, ToolUse)]
        if calls:
            message["tool_calls"] = calls
        said: dict[str, Any] = {
            "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
            "object": "chat.completion",
            "created": 1_796_000_000,
            "model": "gpt-stand-in",
            "choices": [
                {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[stop]}
            ],
        }
        if counted is not None:
            read = counted.read + counted.from_cache + counted.into_cache
            said["usage"] = {
                "prompt_tokens": read,
                "completion_tokens": counted.written,
                "total_tokens": read + counted.written,
                "prompt_tokens_details": {"cached_tokens": counted.from_cache},
            }
        return said

    def error(self, status: int, code: str) -> WireReply:
        error = {
            "message": "PRIVATE words of the API",
            "type": "invalid_request_error",
            "param": None,
            "code": code or _CODES.get(status),
        }
        return WireReply(status, as_json({"error": error}), {"content-type": "application/json"})


def _tool(tool: Any) -> str:
    demand_fields(tool, {"type", "function"}, set(), "a tool")
    demand(tool["type"] == "function", "a tool is a function")
    function = tool["function"]
    demand_fields(function, {"name"}, {"description", "parameters"}, "a function")
    demand(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", function["name"]), "a function's name is one")
    return str(function["name"])


def _turns(messages: list[Any]) -> tuple[Turn, ...]:
    """Tool messages and the user's message after them are one turn."""
    turns: list[Turn] = []
    open_ids: list[str] = []
    for message in messages:
        match message["role"]:
            case "assistant":
                demand(not open_ids, "every call is answered before the next turn")
                parts = _said(message)
                open_ids = [part.call_id for part in parts if isinstance(part, ToolUse)]
                turns.append(Turn(Side.ASSISTANT, parts))
            case "tool":
                result = _result(message)
                demand(result.call_id in open_ids, "a result is of a call before it")
                open_ids.remove(result.call_id)
                _to_user(turns, (result,))
            case "user":
                demand(not open_ids, "every call is answered before the next turn")
                demand_fields(message, {"role", "content"}, set(), "a user's message")
                _to_user(turns, _content(message["content"]))
            case other:
                demand(False, f"the role {other} is known")
    demand(not open_ids and turns and turns[-1].side is Side.USER, "there is something to answer")
    return tuple(turns)


def _to_user(turns: list[Turn], parts: tuple[Part, ...]) -> None:
    if turns and turns[-1].side is Side.USER:
        turns[-1] = Turn(Side.USER, (*turns[-1].parts, *parts))
    else:
        turns.append(Turn(Side.USER, parts))


def _said(message: Any) -> tuple[Part, ...]:
    demand_fields(message, {"role"}, {"content", "tool_calls"}, "an assistant's message")
    words, calls = message.get("content"), message.get("tool_calls")
    demand(words or calls, "an assistant's message says or calls something")
    demand(calls is None or calls, "a list of calls is not empty")
    parts: list[Part] = [Text(demand_words(words, "the content"))] if words else []
    for call in calls or []:
        demand_fields(call, {"id", "type", "function"}, set(), "a call")
        demand(call["type"] == "function", "a call is a function's")
        demand_fields(call["function"], {"name", "arguments"}, set(), "a call's function")
        arguments = json.loads(call["function"]["arguments"])
        demand(isinstance(arguments, dict), "arguments are the text of an object")
        parts.append(ToolUse(call["id"], call["function"]["name"], arguments))
    return tuple(parts)


def _result(message: Any) -> ToolResult:
    demand_fields(message, {"role", "tool_call_id", "content"}, set(), "a result")
    words = demand_words(message["content"], "a result")
    failed = words.startswith("Failed: ")
    return ToolResult(message["tool_call_id"], words.removeprefix("Failed: "), failed)


def _content(content: Any) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(demand_words(content, "the content")),)
    demand(content, "content is not empty")
    return tuple(map(_content_part, content))


def _content_part(part: Any) -> Part:
    if part["type"] == "text":
        demand_fields(part, {"type", "text"}, set(), "a text")
        return Text(demand_words(part["text"], "a text"))
    demand_fields(part, {"type", "image_url"}, set(), "a picture")
    demand_fields(part["image_url"], {"url"}, {"detail"}, "its URL")
    found = re.fullmatch(r"data:(image/\w+);base64,(.+)", part["image_url"]["url"])
    demand(found, "a picture is a data URL")
    assert found is not None
    return Image(found[1], b64decode(found[2], validate=True))


def _call(call: ToolUse) -> dict[str, Any]:
    arguments = json.dumps(call.arguments)
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
