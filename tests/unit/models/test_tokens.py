"""Tokens that nobody told are taken from the length: no part of a request costs nothing."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.kernel.limits import MODEL_IMAGE_TOKENS
from mesh.models import tokens
from mesh.models.contract import Image, Opaque, Text, ToolResult, ToolUse
from tests.unit.models.apis import request, user

PICTURE = Image("image/png", b"\x89PNG" * 1_000)


@pytest.mark.parametrize(
    ("part", "count"),
    [
        (Text("four"), 1),
        (Text("fours"), 2),
        (Text("山羊"), 2),
        (Text("half of a pair \ud800"), 5),
        (ToolUse("call_1", "look_up", {"word": "ibex"}), 6),
        (ToolUse("call_1", "look_up", None), 3),
        (ToolResult("call_1", "A goat."), 2),
        (ToolResult("call_1", "A goat.", image=PICTURE), 2 + MODEL_IMAGE_TOKENS),
        (PICTURE, MODEL_IMAGE_TOKENS),
        (Opaque({"type": "thinking"}), 5),
    ],
)
def test_a_part_costs_its_length(part: Any, count: int) -> None:
    assert tokens.of_parts((part,)) == count


def test_the_prompt_and_the_tools_cost_as_well() -> None:
    bare = tokens.of_request(request(user("Hello."), system="", tools=()))
    prompted = tokens.of_request(request(user("Hello."), system="Be kind.", tools=()))
    offered = tokens.of_request(request(user("Hello."), system="Be kind."))
    assert bare == 2
    assert prompted == bare + 2
    assert offered > prompted + 30
