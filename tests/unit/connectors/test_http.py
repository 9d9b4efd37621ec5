"""What a trigger document becomes, and what becomes of an answer."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from mesh.connectors.http import HttpRequest, HttpResponse, from_event
from mesh.kernel.errors import Invalid

EVENTS = Path(__file__).parents[3] / "events" / "generic"


def sample(name: str) -> dict[str, object]:
    event: dict[str, object] = json.loads((EVENTS / name).read_text("utf-8"))
    return event


@pytest.mark.parametrize("name", sorted(path.name for path in EVENTS.glob("*.json")))
def test_every_sample_gives_the_request_that_was_sent(name: str) -> None:
    request = from_event(sample(name))
    assert (request.method, request.path, request.query) == ("POST", "/generic/events", "")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-mesh-install"].startswith("ins_")
    assert json.loads(request.body)["message_id"]


def test_a_base64_body_is_decoded_to_the_bytes_that_were_signed() -> None:
    event = sample("http-api-2.0-base64.json")
    assert from_event(event).body == base64.b64decode(str(event["body"]))


@pytest.mark.parametrize(
    "body",
    ["e30", "e3 0=", "e30=\n", "e30==", "e3-_", "e31=x", "QR==", "=", "é", "e30=e30="],
)
def test_a_body_that_is_not_base64_to_the_letter_is_invalid(body: str) -> None:
    event = sample("http-api-2.0-base64.json") | {"body": body}
    with pytest.raises(Invalid) as caught:
        from_event(event)
    assert (caught.value.code, caught.value.status) == ("malformed_request", 400)


@pytest.mark.parametrize("name", ["http-api-2.0.json", "rest-1.0.json"])
def test_a_body_that_is_absent_is_empty(name: str) -> None:
    event = sample(name)
    assert from_event(event | {"body": None}).body == b""
    del event["body"]
    assert from_event(event).body == b""


def test_text_that_is_not_unicode_becomes_bytes_that_are_not_utf_8() -> None:
    request = from_event(sample("http-api-2.0.json") | {"body": '{"a":"\ud800"}'})
    with pytest.raises(UnicodeDecodeError):
        request.body.decode("utf-8")


def test_header_names_are_lower_case_and_repeated_ones_are_joined_by_commas() -> None:
    event = sample("rest-1.0.json") | {
        "multiValueHeaders": {"X-Mesh-Signature": ["v1=a", "v1=b"], "x-mesh-signature": ["v1=c"]}
    }
    assert from_event(event).headers == {"x-mesh-signature": "v1=a,v1=b,v1=c"}


def test_a_rest_event_without_its_maps_of_lists_is_read_from_the_plain_ones() -> None:
    event = sample("rest-1.0.json") | {
        "multiValueHeaders": None,
        "headers": {"X-One": "1"},
        "queryStringParameters": {"a b": "é&="},
    }
    request = from_event(event)
    assert request.headers == {"x-one": "1"}
    assert request.query == "a%20b=%C3%A9%26%3D"


def test_a_repeated_query_parameter_stays_repeated() -> None:
    event = sample("rest-1.0.json") | {"multiValueQueryStringParameters": {"a": ["1", "2"]}}
    assert from_event(event).query == "a=1&a=2"


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"version": "2.0"},
        {"version": "2.0", "requestContext": {"http": {"method": "POST"}}, "rawPath": 1},
        {"version": "2.0", "requestContext": "x", "rawPath": "/"},
        {"httpMethod": "POST", "path": "/", "headers": {"a": 1}},
        {"httpMethod": "POST", "path": "/", "multiValueHeaders": []},
        {"httpMethod": "POST", "path": "/", "body": {}},
        {"Records": []},
    ],
)
def test_a_document_of_neither_shape_is_invalid(event: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        from_event(event)


def test_a_request_shows_neither_its_headers_nor_its_body() -> None:
    shown = repr(
        HttpRequest(method="POST", path="/", headers={"x-mesh-signature": "v1=ab"}, body=b"secret")
    )
    assert "v1=ab" not in shown
    assert "secret" not in shown


def test_an_answer_of_text_goes_out_as_it_is() -> None:
    assert HttpResponse(200, {"cache-control": "no-store"}, "{}").to_event() == {
        "statusCode": 200,
        "headers": {"cache-control": "no-store"},
        "body": "{}",
        "isBase64Encoded": False,
    }


def test_an_answer_of_bytes_goes_out_in_base64() -> None:
    event = HttpResponse(200, {}, b"\xff\x00").to_event()
    assert (event["body"], event["isBase64Encoded"]) == ("/wA=", True)
