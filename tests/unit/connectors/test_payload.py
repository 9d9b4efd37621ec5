"""The inbound payload, its claim digest and its media types, held against worked values."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from mesh.connectors.contract import Normalizer
from mesh.connectors.generic.payload import (
    WHITE_SPACE,
    check_media_type,
    digest,
    normalize,
    parse,
)
from mesh.connectors.http import HttpRequest, from_event
from mesh.kernel.errors import Invalid
from mesh.kernel.limits import FIELD_PATH_CODE_POINTS_MAX, FIELD_PROBLEMS_MAX
from mesh.records.message import BodyFormat, NormalizedMessage, Topology

ROOT = Path(__file__).parents[3]
VECTORS = json.loads((ROOT / "tests" / "vectors" / "payloads.json").read_text("utf-8"))
BODIES = ROOT / "events" / "generic" / "bodies"
GOOD: Mapping[str, object] = {
    "message_id": "m-1",
    "conversation_key": "room-9",
    "actor_id": "u-42",
    "body": "hello",
}
EVENT: Mapping[str, object] = {
    "specversion": "1.0",
    "type": "mesh.message.v1",
    "id": "ce-1",
    "source": "/shop",
    "data": GOOD,
}


def named(cases: list[dict[str, object]]) -> list[object]:
    return [pytest.param(case, id=str(case["name"])) for case in cases]


def raw_of(document: object) -> bytes:
    return json.dumps(document).encode()


def problems(raw: bytes, cloudevent: bool = False) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        parse(raw, cloudevent)
    assert (caught.value.code, caught.value.status) == ("invalid_payload", 422)
    return {problem.path: problem.problem for problem in caught.value.fields}


def answer(request: HttpRequest) -> tuple[int, str | None]:
    try:
        normalize(request)
    except Invalid as error:
        return error.status, error.code
    return 202, None


def http_api(raw: bytes, encoded: bool) -> dict[str, object]:
    return {
        "version": "2.0",
        "rawPath": "/generic/events",
        "rawQueryString": "",
        "headers": {"content-type": "application/json"},
        "requestContext": {"http": {"method": "POST"}},
        "body": base64.b64encode(raw).decode() if encoded else raw.decode(),
        "isBase64Encoded": encoded,
    }


def rest_api(raw: bytes) -> dict[str, object]:
    return {
        "httpMethod": "POST",
        "path": "/generic/events",
        "multiValueHeaders": {"Content-Type": ["application/json"]},
        "body": raw.decode(),
        "isBase64Encoded": False,
    }


@pytest.mark.behaviour("ingress:payload:flat-json")
@pytest.mark.parametrize("case", named(VECTORS["payloads"]))
def test_a_payload_gets_its_answer_whatever_shape_the_gateway_gives_it(
    case: dict[str, str | int | None],
) -> None:
    raw = base64.b64decode(str(case["raw_base64"]))
    events = [http_api(raw, encoded=True)]
    try:
        raw.decode()
    except UnicodeDecodeError:
        pass  # such bytes arrive in base64 alone
    else:
        events += [http_api(raw, encoded=False), rest_api(raw)]
    for event in events:
        assert answer(from_event(event)) == (case["status"], case["code"])


@pytest.mark.parametrize("case", named(VECTORS["claim_digests"]))
def test_a_claim_digest_is_the_worked_one(case: dict[str, object]) -> None:
    assert digest(parse(raw_of(case["payload"]), False)) == case["sha256"]


def test_a_digest_of_an_unknown_version_is_a_bug() -> None:
    with pytest.raises(ValueError, match="version 2"):
        digest(parse(raw_of(GOOD), False), 2)


@pytest.mark.parametrize("case", named(VECTORS["cloudevents"]))
def test_a_cloudevent_gets_its_answer(case: dict[str, object]) -> None:
    request = HttpRequest(
        method="POST",
        path="/generic/events",
        headers={"content-type": "application/cloudevents+json"},
        body=raw_of(case["event"]),
    )
    assert answer(request)[0] == case["status"]


@pytest.mark.parametrize("path", sorted(BODIES.iterdir()), ids=lambda path: path.name)
def test_every_sample_body_gets_the_answer_in_its_name(path: Path) -> None:
    kind = "cloudevents+json" if "cloudevent" in path.name else "json"
    request = HttpRequest(
        method="POST",
        path="/generic/events",
        headers={"content-type": f"application/{kind}"},
        body=path.read_bytes(),
    )
    expected = 202 if path.name.startswith("good-") else int(path.name.split("-")[1])
    assert answer(request)[0] == expected


@pytest.mark.behaviour("ingress:payload:optional", "ingress:normalize")
def test_every_field_of_a_payload_reaches_the_message() -> None:
    full = {
        **GOOD,
        "body_format": "text",
        "parent_id": "m-0",
        "display_name": "Ada",
        "topology": "channel",
        "sent_at": "2025-11-30T05:20:00.5+02:00",
    }
    assert parse(raw_of(full), False) == NormalizedMessage(
        message_id="m-1",
        conversation_key="room-9",
        actor_id="u-42",
        body="hello",
        body_format=BodyFormat.TEXT,
        parent_id="m-0",
        display_name="Ada",
        topology=Topology.CHANNEL,
        sent_at="2025-11-30T05:20:00.5+02:00",
    )


def test_what_is_left_out_has_its_default() -> None:
    message = parse(raw_of(GOOD), False)
    assert message.body_format is BodyFormat.MARKDOWN
    assert message.topology is Topology.DIRECT
    assert (message.parent_id, message.display_name, message.sent_at) == (None, None, None)


def test_generic_fills_the_seam_that_every_surface_fills() -> None:
    normalizer: Normalizer = normalize
    request = HttpRequest("POST", "/", "", {"content-type": "application/json"}, raw_of(GOOD))
    assert normalizer(request).message_id == "m-1"


@pytest.mark.behaviour("seams:payload-without-tools")
@pytest.mark.parametrize("key", ["tools", "capabilities", "system", "Body", "body ", "id"])
def test_an_unknown_key_is_refused_by_its_name(key: str) -> None:
    assert problems(raw_of({**GOOD, key: []})) == {key: "is not known"}


def test_every_problem_is_reported_at_once() -> None:
    sent = {"message_id": 1, "body": " ", "topology": None, "sent_at": "now", "x": 1, "y": 2}
    assert list(problems(raw_of(sent))) == [
        "message_id",
        "conversation_key",
        "actor_id",
        "body",
        "topology",
        "sent_at",
        "x",
        "y",
    ]


def test_an_answer_never_grows_with_what_was_sent() -> None:
    found = problems(raw_of({f"{n:03}" * 500: 0 for n in range(100)}))
    assert len(found) == FIELD_PROBLEMS_MAX
    assert max(map(len, found)) == FIELD_PATH_CODE_POINTS_MAX


@pytest.mark.parametrize("key", ["message_id", "conversation_key", "actor_id", "parent_id"])
def test_an_id_has_1_to_256_characters_and_no_control(key: str) -> None:
    for good in ["x", "\U0001f469" * 256, " ", "\u200b", "a#b/c", "\u2028"]:
        assert getattr(parse(raw_of({**GOOD, key: good}), False), key) == good
    for bad in ["", "x" * 257, "a\n", "\x00", "\x1f", "\x7f", "\x80", "\x9f", 1, True, [], {}]:
        assert list(problems(raw_of({**GOOD, key: bad}))) == [key]


def test_a_display_name_has_1_to_128_characters() -> None:
    assert parse(raw_of({**GOOD, "display_name": "é" * 128}), False).display_name == "é" * 128
    for bad in ["", "x" * 129, "a\tb"]:
        assert list(problems(raw_of({**GOOD, "display_name": bad}))) == ["display_name"]


@pytest.mark.parametrize("key", ["message_id", "body", "body_format", "topology"])
def test_null_is_no_value_of_a_field_that_the_contract_does_not_let_be_null(key: str) -> None:
    assert list(problems(raw_of({**GOOD, key: None}))) == [key]


def test_white_space_is_the_25_characters_that_unicode_names() -> None:
    assert len(set(WHITE_SPACE)) == 25
    for character in WHITE_SPACE:
        assert list(problems(raw_of({**GOOD, "body": character}))) == ["body"]
    for visible in ["\u200b", "\ufeff", "\u180e", "\u2060", "."]:
        assert parse(raw_of({**GOOD, "body": f" {visible} "}), False).body == f" {visible} "


def test_a_body_holds_tab_line_feed_and_carriage_return_but_no_other_control() -> None:
    for code in [*range(0x20), *range(0x7F, 0xA0)]:
        raw = raw_of({**GOOD, "body": f"a{chr(code)}b"})
        if chr(code) in "\t\n\r":
            parse(raw, False)
        else:
            assert list(problems(raw)) == ["body"]


def test_a_body_is_counted_in_bytes_of_utf_8() -> None:
    parse(raw_of({**GOOD, "body": "\U0001f469" * (16 * 1024)}), False)
    assert list(problems(raw_of({**GOOD, "body": "\U0001f469" * (16 * 1024) + "x"}))) == ["body"]


@pytest.mark.parametrize(
    "good",
    [
        "2025-11-30T05:20:00Z",
        "2025-11-30t05:20:00z",
        "2025-11-30T05:20:00.123456789-00:00",
        "2024-02-29T00:00:00+23:59",
        "2000-02-29T00:00:00Z",
        "0000-02-29T23:59:59Z",
        "2016-12-31T23:59:60Z",
        "2017-01-01T08:59:60+09:00",
        "2016-12-31T15:59:60.5-08:00",
    ],
)
def test_sent_at_is_kept_as_it_was_written(good: str) -> None:
    assert parse(raw_of({**GOOD, "sent_at": good}), False).sent_at == good


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "2025-11-30",
        "2025-11-30T05:20:00",
        "2025-11-30 05:20:00Z",
        "2025-11-30T05:20Z",
        "2025-11-30T05:20:00.Z",
        "2025-11-30T05:20:00,5Z",
        "2025-11-30T05:20:00+0200",
        "2025-11-30T05:20:00+02",
        "2025-11-30T05:20:00+24:00",
        "2025-11-30T05:20:00+02:60",
        "2025-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2025-04-31T00:00:00Z",
        "2025-00-01T00:00:00Z",
        "2025-13-01T00:00:00Z",
        "2025-01-00T00:00:00Z",
        "2025-01-01T24:00:00Z",
        "2025-01-01T00:60:00Z",
        "2025-01-01T00:00:61Z",
        "2025-01-01T12:00:60Z",
        "2016-12-31T23:59:60+01:00",
        "2025-11-30T05:20:00Z\n",
        " 2025-11-30T05:20:00Z",
        "٢025-11-30T05:20:00Z",
        "2025-11-30T05:20:00." + "1" * 60 + "Z",
        1764480000,
    ],
)
def test_sent_at_is_a_date_time_of_rfc_3339_or_refused(bad: object) -> None:
    assert list(problems(raw_of({**GOOD, "sent_at": bad}))) == ["sent_at"]


@pytest.mark.parametrize(
    ("content_type", "cloudevent"),
    [
        ("application/json", False),
        ("Application/JSON", False),
        (" application/json\t", False),
        ("application/json;charset=utf-8", False),
        ("application/json ; Charset=UTF-8 ", False),
        ('application/json; charset="utf-8"', False),
        ("application/cloudevents+json", True),
        ("APPLICATION/CloudEvents+JSON; charset=UTF-8", True),
    ],
)
def test_json_and_cloudevents_are_taken(content_type: str, cloudevent: bool) -> None:
    assert check_media_type(content_type, None) is cloudevent


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json5",
        "application/problem+json",
        "application/cloudevents-batch+json",
        "application/jſon",
        "application/json,application/json",
        "application/json, text/plain",
        "application/json; charset=utf-8, application/json",
        "application/json; charset=latin-1",
        "application/json; charset = utf-8",
        "application/json; charset=utf-8; charset=utf-8",
        "application/json; charset='utf-8'",
        "application/json; profile=x",
        "application/json; charset=utf-8; v=1",
        "application/json\n",
    ],
)
def test_other_media_types_are_not_supported(content_type: str | None) -> None:
    with pytest.raises(Invalid) as caught:
        check_media_type(content_type, None)
    assert (caught.value.code, caught.value.status) == ("unsupported_media_type", 415)


@pytest.mark.parametrize("coding", ["gzip", "identity", ""])
def test_a_content_coding_is_not_supported(coding: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_media_type("application/json", coding)
    assert caught.value.code == "unsupported_media_type"


def test_the_media_type_is_judged_before_the_query_and_the_query_before_the_body() -> None:
    wrong = HttpRequest("POST", "/", "a=1", {"content-type": "text/plain"}, b"{")
    assert answer(wrong) == (415, "unsupported_media_type")
    queried = HttpRequest("POST", "/", "a=1", {"content-type": "application/json"}, b"{")
    assert answer(queried) == (400, "malformed_request")


def test_a_cloudevent_fills_in_the_message_id_and_the_time() -> None:
    data = {key: value for key, value in GOOD.items() if key != "message_id"}
    message = parse(raw_of({**EVENT, "data": data, "time": "2025-11-30T05:20:00Z"}), True)
    assert (message.message_id, message.sent_at) == ("ce-1", "2025-11-30T05:20:00Z")


def test_what_the_data_says_stands_before_what_the_envelope_says() -> None:
    data = {**GOOD, "sent_at": "2025-01-01T00:00:00Z"}
    message = parse(raw_of({**EVENT, "data": data, "time": "2025-11-30T05:20:00Z"}), True)
    assert (message.message_id, message.sent_at) == ("m-1", "2025-01-01T00:00:00Z")


def test_the_claim_ignores_the_source_and_the_envelope() -> None:
    other = {**EVENT, "source": "/elsewhere", "id": "ce-9", "subject": "s"}
    assert digest(parse(raw_of(other), True)) == digest(parse(raw_of(GOOD), False))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"id": ""}, "id"),
        ({"id": None}, "id"),
        ({"id": 1}, "id"),
        ({"source": ""}, "source"),
        ({"specversion": 0}, "specversion"),
        ({"time": "yesterday"}, "time"),
        ({"data": None}, "data"),
        ({"data": "{}"}, "data"),
        ({"data": [GOOD]}, "data"),
        ({"data": {**GOOD, "tools": []}}, "data.tools"),
        ({"data": {**GOOD, "message_id": None}}, "data.message_id"),
        ({"datacontenttype": "text/plain"}, "datacontenttype"),
        ({"datacontenttype": 1}, "datacontenttype"),
        ({"data_base64": "e30="}, "data_base64"),
        ({"comexample": {"a": 1}}, "comexample"),
        ({"traceParent": "x"}, "traceParent"),
        ({"": "x"}, ""),
    ],
)
def test_a_problem_of_a_cloudevent_is_named_where_it_stands(
    change: dict[str, object], path: str
) -> None:
    assert list(problems(raw_of({**EVENT, **change}), True)) == [path]


def test_a_message_id_out_of_bounds_is_named_as_the_id_that_it_came_from() -> None:
    data = {key: value for key, value in GOOD.items() if key != "message_id"}
    assert list(problems(raw_of({**EVENT, "id": "x" * 257, "data": data}), True)) == ["id"]
    parse(raw_of({**EVENT, "id": "x" * 257}), True)


@pytest.mark.parametrize(
    "change",
    [
        {"time": None, "subject": None, "data_base64": None},
        {"datacontenttype": "application/vnd.shop+json; charset=utf-8"},
        {"datacontenttype": "text/json"},
        {"comexampleextension1": 5, "sampled": True},
    ],
)
def test_what_cloudevents_allows_is_let_through(change: dict[str, object]) -> None:
    assert parse(raw_of({**EVENT, **change}), True).message_id == "m-1"


@pytest.mark.parametrize("document", [[], "x", None, 1, True])
def test_a_document_that_is_no_object_is_invalid_as_a_whole(document: object) -> None:
    for cloudevent in (False, True):
        assert problems(raw_of(document), cloudevent) == {"": "must be an object"}
