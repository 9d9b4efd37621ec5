"""Owns Bedrock's Converse API as tests have it, as JSON on the wire (service model 2023-09-30)."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

from mesh.models.bedrock import IN_WORDS
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
    Stop.REFUSED: "guardrail_intervened",
}
_TYPES = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}
_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")


class ConverseServer(ModelServer):
    """Converse, whole answers only."""

    def read(self, request: WireRequest, body: Mapping[str, Any]) -> Asked:
        path = re.fullmatch(r"/model/([^/]+)/converse", request.path)
        demand(request.method == "POST" and path, "POST /model/{modelId}/converse")
        assert path is not None
        demand_fields(body, {"messages", "inferenceConfig"}, {"system", "toolConfig"}, "body")
        demand_fields(body["inferenceConfig"], {"maxTokens"}, set(), "inferenceConfig")
        system = [demand_words(block["text"], "system") for block in body.get("system", [])]
        tools: tuple[str, ...] = ()
        if "toolConfig" in body:
            demand_fields(body["toolConfig"], {"tools"}, {"toolChoice"}, "toolConfig")
            demand("toolChoice" not in body["toolConfig"], "auto is the default")
            tools = tuple(map(_tool, body["toolConfig"]["tools"]))
            demand(tools, "a list of tools is not empty")
        turns = tuple(map(_turn, body["messages"]))
        _demand_order(turns)
        of_tools = any(
            isinstance(part, ToolUse | ToolResult) for turn in turns for part in turn.parts
        )
        demand(tools or not of_tools, "toolConfig is defined where a history has calls")
        return Asked(
            model=unquote(path[1]),
            system="".join(text for text in system if text != IN_WORDS),
            turns=turns,
            tools=tools,
            in_words=IN_WORDS in system,
            max_tokens=body["inferenceConfig"]["maxTokens"],
            credential=request.headers.get("authorization"),
        )

    def answer(self, parts: tuple[Said, ...], stop: Stop, counted: Counted | None) -> Any:
        said: dict[str, Any] = {
            "metrics": {"latencyMs": 1_234},
            "output": {"message": {"role": "assistant", "content": [_block(p) for p in parts]}},
            "stopReason": _STOPS[stop],
        }
        if counted is not None:
            said["usage"] = {
                "inputTokens": counted.read,
                "outputTokens": counted.written,
                "totalTokens": counted.read + counted.written,
                "cacheReadInputTokens": counted.from_cache,
                "cacheWriteInputTokens": counted.into_cache,
            }
        return said

    def error(self, status: int, code: str) -> WireReply:
        kind = code or _TYPES.get(status, f"Unknown{status}Exception")
        headers = {"content-type": "application/json", "x-amzn-errortype": f"{kind}:http://aws/"}
        return WireReply(status, as_json({"message": "PRIVATE words of the API"}), headers)


def _only(block: Any) -> str:
    demand(isinstance(block, dict) and len(block) == 1, "a block is of one kind")
    return str(next(iter(block)))


def _tool(tool: Any) -> str:
    demand(_only(tool) == "toolSpec", "a tool is specified")
    spec = tool["toolSpec"]
    demand_fields(spec, {"name", "inputSchema"}, {"description"}, "a tool")
    demand(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", spec["name"]), "a tool's name is one")
    demand("description" not in spec or spec["description"], "a description is not empty")
    demand(spec["inputSchema"]["json"]["type"] == "object", "a schema is an object's")
    return str(spec["name"])


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
    return Turn(side, parts)


def _part(block: Any) -> Part:
    match _only(block):
        case "text":
            return Text(demand_words(block["text"], "a text"))
        case "image":
            return _image(block["image"])
        case "toolUse":
            call = block["toolUse"]
            demand_fields(call, {"toolUseId", "name", "input"}, set(), "a call")
            demand(isinstance(call["input"], dict), "a call's input is an object")
            demand(_ID.fullmatch(call["toolUseId"]), "a call's id is one")
            return ToolUse(call["toolUseId"], call["name"], call["input"])
        case "toolResult":
            return _result(block["toolResult"])
        case "reasoningContent":
            return Opaque(block)
        case other:
            demand(False, f"a block of kind {other} is known")
            raise AssertionError


def _image(image: Any) -> Image:
    demand_fields(image, {"format", "source"}, set(), "a picture")
    demand(image["format"] in {"png", "jpeg", "gif", "webp"}, "a known picture")
    data = b64decode(image["source"]["bytes"], validate=True)
    return Image(f"image/{image['format']}", data)


def _result(result: Any) -> ToolResult:
    # `status` is there for some models alone.
    demand_fields(result, {"toolUseId", "content"}, set(), "a result")
    demand(result["content"], "a result is not empty")
    words, image = "", None
    for part in map(_part, result["content"]):
        if isinstance(part, Text):
            words += part.text
        else:
            assert isinstance(part, Image)
            image = part
    failed = words.startswith("Failed: ")
    return ToolResult(result["toolUseId"], words.removeprefix("Failed: "), failed, image)


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


def _block(part: Said) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"text": text}
        case ToolUse(call_id=call_id, name=name, arguments=arguments):
            return {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}
        case Opaque(block=block):
            return dict(block)
