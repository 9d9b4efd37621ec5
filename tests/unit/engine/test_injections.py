"""Whatever a text from outside says, it reaches a model in its frame: on the wire of each API, by
every way that texts take into a prompt."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mesh.engine.context import Line, Speaker
from mesh.engine.framing import Frames
from mesh.engine.prompt import model_request
from mesh.models.contract import Text
from mesh.records.agent import Agent, Model, ModelKind
from mesh.records.note import Note
from mesh.records.run import Asked, Step, StepKind, StepStatus
from tests.fakes.time import SeededRandom
from tests.unit.models.apis import BUILDERS, Api

VECTORS = Path(__file__).parents[2] / "vectors" / "injections.json"
INJECTIONS: list[dict[str, Any]] = json.loads(VECTORS.read_text())
WORD = "ZQXV"
"""What stands in the texts, so that they are known wherever they turn up."""
KINDS = {
    "forged markers",
    "fake turns of the system",
    "fake results of tools",
    "fake notes",
    "hidden and turned words",
    "homoglyphs",
    "huge and nested",
    "imitations by markup",
    "carriers: names and ids",
}
AGENT = Agent(
    agent_id="agt_1",
    slug="ada",
    name="Ada",
    handle="ada",
    model=Model(kind=ModelKind.OPENAI, name="m"),
    version=1,
    created_at=0,
)


def asked_with(text: str, frames: Frames) -> Any:
    """A request in which `text` came by every way: words, names, ids, a note, a call's result."""
    call = Asked(call_id="cal_1", model_call_id="c-1", name="conversation_search", arguments="{}")
    steps = [
        Step(
            number=1,
            kind=StepKind.MODEL,
            status=StepStatus.COMPLETED,
            lease_no=1,
            started_at=0,
            asked=(call,),
        ),
        Step(
            number=2,
            kind=StepKind.TOOL,
            status=StepStatus.COMPLETED,
            lease_no=1,
            started_at=0,
            text=text,
            observation_kind="result",
            provenance={"origin": text},
        ),
    ]
    note = Note(
        name="trust",
        text=text,
        version=1,
        agent_id="agt_1",
        install_id="ins_1",
        conversation_id="cnv_1",
        run_id="run_1",
        created_at=0,
        updated_at=0,
    )
    lines = [
        Line(Speaker.ACTOR, text, text, observed=True, message_id=text, parent_id=text),
        Line(Speaker.AGENT, "", "Good day."),
        Line(Speaker.ACTOR, text, text, message_id=text, parent_id=text),
        Line(Speaker.ACTOR, "Bob", text, message_id="m-3"),
    ]
    return model_request(
        agent=AGENT,
        frames=frames,
        lines=lines,
        notes=[note],
        steps=steps,
        tools=[],
        spent="steps",
        max_output_tokens=100,
    )


def strings_of(value: Any) -> list[str]:
    """Every string of a JSON document, names of fields among them."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for each in value for text in strings_of(each)]
    if isinstance(value, dict):
        return [*value, *(text for each in value.values() for text in strings_of(each))]
    return []


def test_the_collection_has_texts_of_every_kind_and_says_their_idea() -> None:
    assert {each["kind"] for each in INJECTIONS} == KINDS
    assert len({each["text"] for each in INJECTIONS}) == len(INJECTIONS)
    assert all(each["idea"] for each in INJECTIONS)


@pytest.mark.behaviour("untrusted:utterances", "untrusted:tool-text")
@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("injection", INJECTIONS, ids=lambda each: each["idea"].replace(" ", "-"))
def test_it_never_stands_outside_its_frame_on_the_wire(
    injection: dict[str, Any], name: str
) -> None:
    frames = Frames(SeededRandom())
    opening = re.match(r"\[\[mesh:([0-9a-f]{16}) ", frames.frame("message", {}, "x"))
    assert opening is not None
    number = opening[1]
    text = injection["text"].replace("{nonce}", number).replace("{NONCE}", number.upper())
    text *= injection.get("times", 1)
    api: Api = BUILDERS[name]()
    api.server.says(Text("No."))
    api.ask(asked_with(text, frames))
    (sent,) = api.server.requests
    body = json.loads(sent.body)
    system = "\n".join(
        strings_of([body.get("system"), *(m for m in body["messages"] if m["role"] == "system")])
    )
    assert "You are Ada" in system
    assert WORD not in system
    wire = "\n".join(strings_of(body))
    framed = re.compile(
        rf"\[\[mesh:{number} (\w+)(?: \w+=\"[^\]]*\")*\]\]\n(.*?)\n\[\[/mesh:{number}\]\]",
        re.DOTALL,
    )
    said = wire.replace(frames.explained, "")
    kinds = [found[1] for found in framed.finditer(said)]
    assert sorted(kinds) == ["message", "message", "message", "note", "result"]
    for found in framed.finditer(said):
        inside = found[0][len("[[") : -len(f"[[/mesh:{number}]]")].split(" ", 1)[1]
        assert number not in inside.lower(), "no text knows the number of its frame"
        assert re.search(r"\[\s*\[\s*/?\s*[^\W\d_]{3,6}[\s:]", inside) is None
    left = framed.sub("", said)
    assert WORD not in left
    assert number not in left.lower()
    assert re.search(r"[\u200b\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]", wire) is None
