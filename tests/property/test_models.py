"""Whatever an API writes, a connector gives an answer that can be sent back, or a typed failure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mesh.models.contract import (
    ModelFailure,
    Opaque,
    Side,
    Stop,
    Text,
    ToolResult,
    ToolUse,
    Turn,
)
from tests.fakes.model_servers import Counted, WireReply
from tests.unit.models.apis import BUILDERS, Api, request, user

ANSWER = (
    Text("I look."),
    ToolUse("call_1", "look_up", {"word": "ibex"}),
    ToolUse("call_2", "look_up", {"word": "gnu"}),
)
THOUGHTS = {
    "anthropic": Opaque({"type": "thinking", "thinking": "So?", "signature": "EqQB"}),
    "bedrock": Opaque({"reasoningContent": {"reasoningText": {"text": "So?"}}}),
}

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["text", "tool_use", "thinking", "end_turn", "max_tokens", "{}", '{"a":1}'])
)


def values(names: list[str]) -> st.SearchStrategy[Any]:
    """JSON values whose objects have the API's own names as often as others."""
    keys = st.sampled_from(names) | st.text(max_size=4)
    return st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    )


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value within."""
    inner = list(value.items()) if isinstance(value, dict) else []
    inner += list(enumerate(value)) if isinstance(value, list) else []
    return [path, *(place for key, child in inner for place in places(child, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], other)
    return copy


@st.composite
def spoiled(draw: st.DrawFn, api: Api) -> Any:
    """A true answer of the API, or error, in which one or two values are others."""
    said: Any
    if draw(st.integers(0, 4)):
        thought = [THOUGHTS[api.name]] if api.name in THOUGHTS else []
        said = api.server.answer((*thought, *ANSWER), draw(st.sampled_from(Stop)), Counted())
    else:
        said = json.loads(api.server.error(429, "").body)
    names = sorted({str(key) for place in places(said) for key in place})
    for _ in range(draw(st.integers(1, 2))):
        said = replaced(said, draw(st.sampled_from(places(said))), draw(values(names)))
    return said


@pytest.mark.parametrize("name", BUILDERS)
@given(data=st.data())
def test_what_an_api_writes_never_breaks_a_connector(name: str, data: st.DataObject) -> None:
    api = BUILDERS[name]()
    status = data.draw(st.sampled_from([200, 200, 200, 400, 429, 500]))
    # NaN and the like go out as Python writes them, which is no JSON.
    body = json.dumps(data.draw(spoiled(api))).encode()
    asked = request()
    api.server.sends(WireReply(status, body))
    try:
        answer = api.ask(asked)
    except ModelFailure:
        return
    assert bool(answer.calls) == (answer.stop is Stop.CALLS)
    assert answer.usage.input_tokens > 0
    json.dumps([part.block for part in answer.keep if isinstance(part, Opaque)])
    api.server.says(Text("Yes."))
    assert api.ask(request(*asked.turns, *_gone_on(answer.keep, answer.calls))).text == "Yes."


def _gone_on(keep: Any, calls: tuple[ToolUse, ...]) -> tuple[Turn, ...]:
    """The next two turns of the exchange; the stand-in refuses them if they break a rule."""
    results = [ToolResult(call.call_id, "A goat.") for call in calls]
    return (Turn(Side.ASSISTANT, keep), user(*results, "Well?"))
