"""What a proven caller is answered before anything is taken in, and what every answer bears."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from mesh.kernel.errors import HTTP_STATUS
from mesh.kernel.limits import RAW_BODY_BYTES_MAX
from mesh.records.install import AgentStatus, InstallState
from tests.fakes.door import SECRET, Answer, Door, Shape, utterance

WRONG_SECRET = "whsec_" + "A" * 43 + "="
BODY = json.dumps(utterance()).encode()


@pytest.fixture(scope="module")
def shared() -> Door:
    return Door()


@pytest.fixture
def door(shared: Door) -> Door:
    shared.forget_everything()
    shared.install()
    shared.log.events.clear()
    return shared


# ---- the order of checks


@pytest.mark.parametrize("shape", list(Shape))
def test_a_body_over_256_kib_is_refused_before_any_look_up(door: Door, shape: Shape) -> None:
    with door.calls() as calls:
        answer = door.post(b" " * (RAW_BODY_BYTES_MAX + 1), shape=shape)
        unsigned = door.ask({}, b" " * (RAW_BODY_BYTES_MAX + 1), shape=shape)
    assert (answer.status, answer.code) == (413, "body_too_large")
    assert (unsigned.status, unsigned.body) == (answer.status, answer.body)
    assert calls == []
    assert door.post(BODY + b" " * (RAW_BODY_BYTES_MAX - len(BODY)), shape=shape).status == 202


def test_bytes_are_counted_and_not_characters_nor_base64(door: Door) -> None:
    wide = json.dumps(utterance(body="é" * 30_000), ensure_ascii=False).encode()
    assert door.post(wide, shape=Shape.HTTP_BASE64).status == 202
    body = ("é" * (RAW_BODY_BYTES_MAX // 2)).encode()
    assert door.post(body + b" ").status == 413
    assert door.post(body).status == 400


@dataclass(frozen=True)
class Wrong:
    """One request that is wrong in several ways, and which of them is told."""

    status: int
    code: str
    timestamp_ahead_s: int = 0
    secret: str = SECRET
    state: InstallState = InstallState.ENABLED
    agent: AgentStatus = AgentStatus.ACTIVE
    content_type: str = "application/json"
    coding: str | None = None
    query: bool = False
    body: bytes = BODY


HUGE = b"{" * (RAW_BODY_BYTES_MAX + 1)
ORDER = {
    "size before signature": Wrong(413, "body_too_large", secret=WRONG_SECRET, body=HUGE),
    "signature before time": Wrong(401, "unauthorized", -900, WRONG_SECRET),
    "time before state": Wrong(401, "unauthorized", 900, state=InstallState.DISABLED),
    "state before agent": Wrong(
        403, "connector_disabled", state=InstallState.DISABLED, agent=AgentStatus.PAUSED
    ),
    "agent before type": Wrong(
        503, "agent_paused", agent=AgentStatus.PAUSED, content_type="text/plain", body=b"{"
    ),
    "type before query": Wrong(
        415, "unsupported_media_type", content_type="text/plain", query=True, body=b"{"
    ),
    "coding before query": Wrong(415, "unsupported_media_type", coding="gzip", query=True),
    "query before JSON": Wrong(400, "malformed_request", query=True, body=b"{"),
    "JSON before schema": Wrong(400, "malformed_json", body=b'{"x":1,"x":2}'),
    "schema": Wrong(422, "invalid_payload", body=b"{}"),
}


@pytest.mark.parametrize("shape", list(Shape))
@pytest.mark.parametrize("name", ORDER)
def test_of_several_wrongs_the_first_in_the_contracts_order_is_told(
    door: Door, name: str, shape: Shape
) -> None:
    wrong = ORDER[name]
    door.install(state=wrong.state, agent_status=wrong.agent)
    answer = door.post(
        wrong.body,
        secret=wrong.secret,
        timestamp=str(door.clock.now_ms() // 1000 + wrong.timestamp_ahead_s),
        headers={"Content-Type": wrong.content_type, "Content-Encoding": wrong.coding},
        query={"a": "b"} if wrong.query else None,
        shape=shape,
    )
    assert (answer.status, answer.code) == (wrong.status, wrong.code)
    assert door.rows("CLAIM") == door.rows("MSG#") == door.rows("STORY") == []
    refused = [row for row in door.everything() if row["pk"].startswith("REFUSED#")]
    proven = wrong.secret == SECRET and wrong.status != 413
    assert len(refused) == int(proven)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 202),
        ("Application/JSON", 202),
        ("application/json; charset=utf-8", 202),
        ('application/json;charset="UTF-8"', 202),
        ("application/json; charset=latin-1", 415),
        ("application/json; charset=utf-8; q=1", 415),
        ("application/json; profile=x", 415),
        ("application/json, application/json", 415),
        ("application/jsonx", 415),
        ("application/x-www-form-urlencoded", 415),
        ("text/json", 415),
        ("", 415),
        (None, 415),
    ],
)
def test_only_the_contracts_content_types_pass(
    door: Door, content_type: str | None, status: int
) -> None:
    assert door.post(BODY, headers={"Content-Type": content_type}).status == status


@pytest.mark.parametrize("coding", ["gzip", "identity", "br", ""])
def test_any_content_coding_is_refused(door: Door, coding: str) -> None:
    answer = door.post(
        gzip.compress(BODY), headers={"Content-Encoding": coding}, shape=Shape.HTTP_BASE64
    )
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


@pytest.mark.parametrize("shape", list(Shape))
def test_a_query_string_is_refused_whatever_it_says(door: Door, shape: Shape) -> None:
    answer = door.post(BODY, query={"token": "x"}, shape=shape)
    assert (answer.status, answer.code) == (400, "malformed_request")


@pytest.mark.behaviour("seams:payload-without-tools", "seams:utterance-executes-nothing")
@pytest.mark.parametrize("key", ["tools", "capabilities", "system", "instructions", "mcp"])
def test_what_would_grant_something_has_nowhere_to_go(door: Door, key: str) -> None:
    answer = door.post(utterance(**{key: [{"name": "shell"}]}))
    assert (answer.status, answer.code) == (422, "invalid_payload")
    assert answer.json()["error"]["fields"] == [{"path": key, "problem": "is not known"}]


# ---- what every answer bears

ANSWERS: dict[str, Callable[[Door], Answer]] = {
    "accepted": lambda door: door.post(BODY),
    "duplicate": lambda door: (door.post(BODY), door.post(BODY))[1],
    "conflict": lambda door: (door.post(BODY), door.say("m-1", body="other"))[1],
    "opaque": lambda door: door.post(BODY, secret=WRONG_SECRET),
    "malformed headers": lambda door: door.ask({}, BODY),
    "too large": lambda door: door.post(HUGE),
    "bad type": lambda door: door.post(BODY, headers={"Content-Type": "text/plain"}),
    "query": lambda door: door.post(BODY, query={"a": "b"}),
    "bad JSON": lambda door: door.post(b"{"),
    "bad schema": lambda door: door.post(b"{}"),
    "not a document": lambda door: _raw(
        door, {"version": "2.0", "body": "?", "isBase64Encoded": True}
    ),
}


def _raw(door: Door, event: dict[str, Any]) -> Answer:
    answer: Any = door.handler(event, None)
    return Answer(answer["statusCode"], answer["headers"], answer["body"])


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_is_not_to_be_stored_and_names_its_request(door: Door, name: str) -> None:
    answer = ANSWERS[name](door)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Content-Type"] == "application/json"
    request_id = answer.headers["X-Request-Id"]
    assert request_id.startswith("req_")
    assert len(request_id) == 30
    if "error" in answer.json():
        assert answer.status == HTTP_STATUS[answer.json()["error"]["code"]]
        assert answer.json()["error"]["message"]


def test_a_callers_request_id_is_never_echoed(door: Door) -> None:
    mine = "req_01JDXW5Y9ZK3V7Q2M8N4P6R0ST"
    for secret in (SECRET, WRONG_SECRET):
        answer = door.post(BODY, secret=secret, headers={"X-Request-Id": mine})
        assert mine not in str(answer.headers) + answer.body


def test_an_accepted_answer_has_the_contracts_form_and_ids_that_lead_to_each_other(
    door: Door,
) -> None:
    answer = door.post(BODY)
    story = answer.headers["X-Request-Id"][4:]
    assert answer.json() == {
        "status": "accepted",
        "id": f"msg_{story}",
        "message_id": "m-1",
        "engagement": {"verdict": "engage", "reason": "direct_message"},
        "run_id": f"run_{story}",
    }
    observed = door.say("m-2", topology="group")
    assert observed.json()["run_id"] is None
    assert observed.json()["engagement"] == {"verdict": "observe", "reason": "not_addressed"}


def test_a_422_names_each_field_and_repeats_no_value(door: Door) -> None:
    word = "a-word-of-the-caller"
    payload = {"message_id": [word], "conversation_key": word + "\n", "body": word, "x": word}
    answer = door.post(payload)
    assert answer.status == 422
    paths = [field["path"] for field in answer.json()["error"]["fields"]]
    assert paths == ["message_id", "conversation_key", "actor_id", "x"]
    assert word not in answer.body


def test_a_422_does_not_grow_with_what_was_sent(door: Door) -> None:
    answer = door.post({f"{'k' * 200}{n}": 1 for n in range(1000)})
    assert answer.status == 422
    assert len(answer.json()["error"]["fields"]) == 20
    assert len(answer.body) < 4096


# ---- what is taken in is exactly what was said


@pytest.mark.behaviour(
    "ingress:normalize",
    "ingress:perspective",
    "ingress:payload:actor",
    "ingress:payload:conversation",
    "ingress:payload:body",
    "ingress:payload:optional",
)
def test_every_field_is_stored_in_the_perspective_of_the_installs_agent(door: Door) -> None:
    sent = utterance(
        body="hello *you*",
        body_format="text",
        parent_id="m-0",
        display_name="Ada L.",
        topology="channel",
        sent_at="2025-11-30T05:20:00.5+01:00",
    )
    assert door.post(sent).status == 202
    (row,) = door.rows("MSG#")
    stored = {key: row[key] for key in sent if key != "conversation_key"}
    assert stored == {key: value for key, value in sent.items() if key != "conversation_key"}
    (order,) = door.rows("ORDER")
    assert order["conversation_key"] == "room-9"
    assert order["agent_id"] == door.system.agent.agent_id
    (story,) = door.rows("STORY")
    assert (story["conversation_key"], story["actor_id"]) == ("room-9", "u-42")


EVERY_CHARACTER = [
    *(chr(n) for n in range(0x20, 0x7F)),
    *(chr(n) for n in range(0xA0, 0x100)),
    "\u2028",
    "\u200d",
    "\ufeff",
    "\ufffd",
    "\uffff",
    "\U0001f469",
    "\U0010ffff",
]


def test_keys_hold_every_character_that_the_contract_allows(door: Door) -> None:
    everything = "".join(EVERY_CHARACTER)
    for field in ("message_id", "conversation_key", "actor_id"):
        answer = door.post(utterance(**{"message_id": f"for {field}", field: everything}))
        assert answer.status == 202, (field, answer.body)
        assert (
            door.post(utterance(**{"message_id": f"for {field}", field: everything})).status == 200
        )
    assert {story["conversation_key"] for story in door.rows("STORY")} == {"room-9", everything}


@pytest.mark.parametrize("raw", [True, False], ids=["as UTF-8", "as escapes"])
def test_ids_of_256_code_points_of_four_bytes_fit_every_key(door: Door, raw: bool) -> None:
    long = "\U0001f469" * 256
    payload = utterance(message_id=long, conversation_key=long, actor_id=long, parent_id=long)
    body = json.dumps(payload, ensure_ascii=not raw).encode()
    answer = door.post(body)
    assert answer.status == 202
    assert answer.json()["message_id"] == long
    assert door.post(body).status == 200


def test_names_that_differ_only_in_normalization_are_different(door: Door) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    for key in (composed, decomposed):
        assert door.post(utterance(conversation_key=key)).json()["status"] == "accepted"
    assert len(door.rows("ORDER")) == 2


def test_conversations_that_collide_when_joined_naively_stay_apart(door: Door) -> None:
    for key, message_id in (("a#b", "c"), ("a", "b#c"), ("a#b#c", "d"), ("a", "b")):
        answer = door.post(utterance(conversation_key=key, message_id=message_id))
        assert answer.json()["status"] == "accepted"
    assert len(door.rows("ORDER")) == 3
    assert len({row["pk"] for row in door.rows("CLAIM")}) == 4
