"""Owns Anthropic's Messages API as tests have it (docs.claude.com/en/api/messages)."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from mesh.models.contract import (
    Image,
    Opaque,
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
    Stop.END: "end_turn",
    Stop.CALLS: "tool_use",
    Stop.LENGTH: "max_tokens",
    Stop.REFUSED: "refusal",
}
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicServer(ModelServer):
    """Messages, whole answers only."""

    def read(self, request: WireRequest, body: Mapping[str, Any]) -> Asked:
        demand((request.method, request.path) == ("POST", "/v1/messages"), "POST /v1/messages")
        demand(request.headers["content-type"] == "application/json", "the body is JSON")
        demand("anthropic-version" in request.headers, "a version is named")
        demand_fields(
            body, {"model", "max_tokens", "messages"}, {"system", "tools", "tool_choice"}, "body"
        )
        demand("system" not in body or body["system"].strip(), "the system prompt is not blank")
        tools = tuple(map(_tool, body.get("tools", [])))
        choice = body.get("tool_choice", {"type": "auto"})
        demand(tools or "tool_choice" not in body, "a choice is among tools")
        demand(choice in ({"type": "auto"}, {"type": "none"}), "the choice is known")
        demand(body["max_tokens"] >= 1, "max_tokens is positive")
        turns = tuple(map(_turn, body["messages"]))
        _demand_order(turns)
        called = any(isinstance(part, ToolUse) for turn in turns for part in turn.parts)
        demand(tools or not called, "tools are named where a history has calls")
        return Asked(
            model=body["model"],
            system=body.get("system", ""),
            turns=turns,
            tools=tools,
            in_words=choice == {"type": "none"},
            max_tokens=body["max_tokens"],
            credential=request.headers.get("x-api-key"),
        )

    def answer(self, parts: tuple[Said, ...], stop: Stop, counted: Counted | None) -> Any:
        said: dict[str, Any] = {
            "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
            "type": "message",
            "role": "assistant",
            "model": "claude-stand-in",
            "content": [_block(part) for part in parts],
            "stop_reason": _STOPS[stop],
            "stop_sequence": None,
        }
        if counted is not None:
            said["usage"] = {
                "input_tokens": counted.read,
                "cache_read_input_tokens": counted.from_cache,
                "cache_creation_input_tokens": counted.into_cache or None,
                "output_tokens": counted.written,
                "service_tier": "standard",
            }
        return said

    def error(self, status: int, code: str) -> WireReply:
        kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        error: dict[str, Any] = {"type": kind, "message": "PRIVATE words of the API"}
        if code:
            error["details"] = {"error_code": code}
        body = {"type": "error", "error": error, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}
        return WireReply(status, as_json(body), {"content-type": "application/json"})


def _tool(tool: Any) -> str:
    demand_fields(tool, {"name", "input_schema"}, {"description"}, "a tool")
    demand(re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"]), "a tool's name is one")
    demand(tool["input_schema"]["type"] == "object", "a schema is an object's")
    return str(tool["name"])


def _turn(message: Any) -> Turn:
    demand_fields(message, {"role", "content"}, set(), "a message")
    demand(message["content"], "a message is not empty")
    side = Side(message["role"])
    parts = tuple(map(_part, message["content"]))
    for part in parts:
        of_user = isinstance(part, ToolResult | Image)
        of_assistant = isinstance(part, ToolUse | Opaque)
        demand(not (of_user and side is Side.ASSISTANT), "results and pictures are the user's")
        demand(not (of_assistant and side is Side.USER), "calls and thoughts are the assistant's")
    results = [isinstance(part, ToolResult) for part in parts]
    demand(results == sorted(results, reverse=True), "results come first")
    return Turn(side, parts)


def _part(block: Any) -> Part:
    match block["type"]:
        case "text":
            demand_fields(block, {"type", "text"}, set(), "a text")
            return Text(demand_words(block["text"], "a text"))
        case "image":
            return _image(block)
        case "tool_use":
            demand_fields(block, {"type", "id", "name", "input"}, set(), "a call")
            demand(isinstance(block["input"], dict), "a call's input is an object")
            demand(re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]), "a call's id is one")
            return ToolUse(block["id"], block["name"], block["input"])
        case "tool_result":
            return _result(block)
        case "thinking":
            demand_fields(block, {"type", "thinking", "signature"}, set(), "a thought")
            return Opaque(block)
        case "redacted_thinking":
            demand_fields(block, {"type", "data"}, set(), "a redacted thought")
            return Opaque(block)
        case other:
            demand(False, f"a block of type {other} is known")
            raise AssertionError


def _image(block: Any) -> Image:
    demand_fields(block, {"type", "source"}, set(), "a picture")
    demand_fields(block["source"], {"type", "media_type", "data"}, set(), "its source")
    demand(block["source"]["type"] == "base64", "a picture comes in base64")
    kind = block["source"]["media_type"]
    demand(kind in {"image/png", "image/jpeg", "image/gif", "image/webp"}, "a known picture")
    return Image(kind, b64decode(block["source"]["data"], validate=True))


def _result(block: Any) -> ToolResult:
    demand_fields(block, {"type", "tool_use_id"}, {"content", "is_error"}, "a result")
    words, image = "", None
    for part in map(_part, block.get("content", [])):
        if isinstance(part, Text):
            words += part.text
        else:
            demand(isinstance(part, Image), "a result holds texts and pictures")
            assert isinstance(part, Image)
            image = part
    return ToolResult(block["tool_use_id"], words, block.get("is_error", False), image)


def _demand_order(turns: tuple[Turn, ...]) -> None:
    sides = [turn.side for turn in turns]
    demand(sides and sides[0] is sides[-1] is Side.USER, "the user begins and is answered")
    demand(all(a is not b for a, b in pairwise(sides)), "sides alternate")
    called: list[str] = []
    for turn in turns:
        results = [part.call_id for part in turn.parts if isinstance(part, ToolResult)]
        if turn.side is Side.USER:
            demand(sorted(results) == sorted(called), "every call has its result in the next turn")
        called = [part.call_id for part in turn.parts if isinstance(part, ToolUse)]
    every = [p.call_id for turn in turns for p in turn.parts if isinstance(p, ToolUse)]
    demand(len(every) == len(set(every)), "ids of calls are unique")


def _block(part: Said) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text, "citations": None}
        case ToolUse(call_id=call_id, name=name, arguments=arguments):
            return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        case Opaque(block=block):
            return dict(block)
