"""Owns the making of an answer out of what an API said, in the order in which it said it.

Refuses to let an API's word decide what Mesh does: ids are made unique, names and arguments are
judged, calls are bounded, and none is passed on from an answer that was cut, refused or asked to be
in words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mesh.kernel.limits import (
    MODEL_CALL_ID_CHARS_MAX,
    MODEL_CALLS_MAX,
    MODEL_TOOL_NAME_CHARS_MAX,
)
from mesh.models import tokens
from mesh.models.contract import (
    ModelAnswer,
    ModelFailureKind,
    ModelRequest,
    Opaque,
    Part,
    Stop,
    Text,
    ToolChoice,
    ToolUse,
    Usage,
)
from mesh.models.failures import failure
from mesh.models.reading import Json, arguments_of
from mesh.models.turns import call_ids

UNKNOWN_TOOL: Final = "unknown_tool"
"""Stands for a name that no tool can have: an API would refuse it when it is sent back."""

_CALL_ID: Final = re.compile(rf"[A-Za-z0-9_.:-]{{1,{MODEL_CALL_ID_CHARS_MAX}}}\Z")
_TOOL_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{MODEL_TOOL_NAME_CHARS_MAX}}}\Z")


class Heard:
    """What an API said in answer to one request, collected part by part."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._parts: list[Text | ToolUse | Opaque] = []
        self._ids = call_ids(request.turns)
        self._calls = 0

    def text(self, words: object) -> None:
        """Words. What is none, or blank, was not said: no API takes it back."""
        if isinstance(words, str) and words.strip():
            self._parts.append(Text(words))

    def opaque(self, block: Json) -> None:
        """A block that is to be sent back as it is."""
        self._parts.append(Opaque(block))

    def call(self, call_id: object, name: object, arguments: object) -> None:
        """A call, whose arguments came as a JSON object or as its text. Raises ModelFailure for
        one without a name."""
        if not isinstance(name, str) or not name:
            raise failure(ModelFailureKind.MALFORMED)
        self._calls += 1
        if self._calls > MODEL_CALLS_MAX:
            return
        known = name if _TOOL_NAME.match(name) else UNKNOWN_TOOL
        self._parts.append(ToolUse(self._unique(call_id), known, arguments_of(arguments)))

    def answer(
        self, stop: Stop, *, input_tokens: int | None, output_tokens: int | None
    ) -> ModelAnswer:
        """All of it, given why the API says that it stopped and what it counted, if it did."""
        asked_for_words = self._request.tool_choice is ToolChoice.NONE or not self._request.tools
        parts: Sequence[Part] = self._parts
        calls = tuple(part for part in self._parts if isinstance(part, ToolUse))
        left_out = max(0, self._calls - MODEL_CALLS_MAX)
        if calls and (asked_for_words or stop in (Stop.LENGTH, Stop.REFUSED)):
            parts, calls, left_out = [part for part in parts if isinstance(part, Text)], (), 0
        said = any(isinstance(part, Text | ToolUse) for part in parts)
        if calls:
            stop = Stop.CALLS
        elif stop is Stop.CALLS:
            stop = Stop.END
        return ModelAnswer(
            text="\n\n".join(part.text for part in parts if isinstance(part, Text)),
            calls=calls,
            stop=stop,
            usage=self._usage(input_tokens, output_tokens),
            # A thought alone is no turn.
            keep=tuple(parts) if said else (),
            calls_left_out=left_out,
        )

    def _unique(self, call_id: object) -> str:
        """The id, or one made up where it is missing, malformed, or some other call's.

        An API that counts its calls anew in each answer would otherwise be sent results that two
        calls could claim.
        """
        unique = call_id if isinstance(call_id, str) and _CALL_ID.match(call_id) else ""
        number = self._calls
        while not unique or unique in self._ids:
            unique = f"call_{len(self._request.turns)}_{number}"
            number += MODEL_CALLS_MAX
        self._ids.add(unique)
        return unique

    def _usage(self, told_input: int | None, told_output: int | None) -> Usage:
        # No request is of no tokens: servers that do not count write zeros.
        if told_input and told_output is not None:
            return Usage(told_input, told_output)
        return Usage(
            told_input or tokens.of_request(self._request),
            tokens.of_parts(self._parts) if told_output is None else told_output,
            estimated=True,
        )
