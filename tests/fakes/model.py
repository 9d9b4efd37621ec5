"""Owns a language model that says what a test tells it to, and keeps what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mesh.models.contract import (
    ModelAnswer,
    ModelRequest,
    Stop,
    Text,
    ToolResult,
    ToolUse,
    Usage,
)

Line = ModelAnswer | Exception | Callable[[ModelRequest], ModelAnswer]


def says(text: str, *calls: ToolUse, tokens: tuple[int, int] = (100, 10)) -> ModelAnswer:
    """An answer of words, and of calls where there are some."""
    stop = Stop.CALLS if calls else Stop.END
    return ModelAnswer(text=text, calls=calls, stop=stop, usage=Usage(*tokens))


def use(tool: str, call_id: str = "c-1", /, **arguments: Any) -> ToolUse:
    """A call that the model asks for."""
    return ToolUse(call_id, tool, arguments)


class ScriptedModel:
    """Says its lines in order, then the last one for ever."""

    def __init__(self, *lines: Line) -> None:
        self.asked: list[ModelRequest] = []
        self._lines: Sequence[Line] = lines or (says("yes"),)

    def answer(self, request: ModelRequest, timeout_s: float) -> ModelAnswer:
        line = self._lines[min(len(self.asked), len(self._lines) - 1)]
        self.asked.append(request)
        if isinstance(line, Exception):
            raise line
        return line if isinstance(line, ModelAnswer) else line(request)


def words_of(request: ModelRequest) -> str:
    """Everything that a request says, for tests that look for words in it."""
    parts = [part for turn in request.turns for part in turn.parts]
    said = [part.text for part in parts if isinstance(part, Text | ToolResult)]
    return "\n".join([request.system, *said])


def results_of(request: ModelRequest) -> list[str]:
    """What the model is told of its calls, in order."""
    return [p.text for turn in request.turns for p in turn.parts if isinstance(p, ToolResult)]
