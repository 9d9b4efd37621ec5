"""Owns the count of tokens where an API tells none: the length in bytes, over four.

Refuses to be exact: a tokenizer is a model's own. It holds budgets, which only need a measure that
does not come to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from mesh.kernel.limits import MODEL_IMAGE_TOKENS, MODEL_TOKEN_BYTES
from mesh.models.contract import Image, ModelRequest, Opaque, Part, Text, ToolResult, ToolUse
from mesh.models.reading import Json, encoded


def of_request(request: ModelRequest) -> int:
    """About how many tokens the request is."""
    tools = sum(
        _bytes(tool.name) + _bytes(tool.description) + len(encoded(tool.input_schema))
        for tool in request.tools
    )
    parts = (part for turn in request.turns for part in turn.parts)
    return _tokens(_bytes(request.system) + tools) + of_parts(parts)


def of_text(text: str) -> int:
    """About how many tokens the text is."""
    return _tokens(_bytes(text))


def of_parts(parts: Iterable[Part]) -> int:
    """About how many tokens these parts are."""
    size, images = 0, 0
    for part in parts:
        match part:
            case Text(text=text):
                size += _bytes(text)
            case ToolUse(name=name, arguments=arguments):
                size += _bytes(name) + _json_bytes(arguments or {})
            case ToolResult(text=text, image=image):
                size += _bytes(text)
                images += image is not None
            case Image():
                images += 1
            case Opaque(block=block):
                size += _json_bytes(block)
    return _tokens(size) + images * MODEL_IMAGE_TOKENS


def _tokens(size: int) -> int:
    return -(-size // MODEL_TOKEN_BYTES)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _json_bytes(value: Json) -> int:
    return len(encoded(value))
