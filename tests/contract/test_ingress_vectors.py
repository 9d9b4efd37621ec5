"""Every vector of the contract through the real function, in each shape that a gateway sends."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.door import INSTALL, SECRET, Door, Shape, signature, utterance

VECTORS = Path(__file__).parents[1] / "vectors"
SIGNING: dict[str, Any] = json.loads((VECTORS / "signing.json").read_text())
PAYLOADS: dict[str, Any] = json.loads((VECTORS / "payloads.json").read_text())
OPAQUE_401 = '{"error":{"code":"unauthorized","message":"unauthorized"}}'

each_shape = pytest.mark.parametrize("shape", list(Shape))


@pytest.fixture(scope="module")
def shared() -> Door:
    return Door()


@pytest.fixture
def door(shared: Door) -> Door:
    shared.forget_everything()
    return shared


def _named(vectors: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=[v["name"] for v in vectors])


def _in_each_shape(vectors: list[dict[str, Any]], body: str) -> pytest.MarkDecorator:
    """Each vector in each shape that can carry its bytes, which are base64 in the field `body`."""
    return pytest.mark.parametrize(
        ("vector", "shape"),
        [
            pytest.param(vector, shape, id=f"{vector['name']}-{shape}")
            for vector in vectors
            for shape in Shape
            if shape.carries(base64.b64decode(vector[body]))
        ],
    )


@pytest.mark.behaviour(
    "signing:hmac-sha256",
    "signing:covers",
    "signing:signature-header",
    "signing:timestamp-header",
    "signing:install-header",
    "signing:replay-window",
    "signing:direction-tag",
    "signing:install-binding",
)
@_in_each_shape(SIGNING["verification"], "body_base64")
def test_a_signing_vector_is_judged_as_it_says(
    door: Door, vector: dict[str, Any], shape: Shape
) -> None:
    body = base64.b64decode(vector["body_base64"])
    door.clock.ms = vector["now"] * 1000
    # A routing key of another form names the same install only where folding were allowed.
    door.install(INSTALL, vector["secret"], previous=vector["previous_secret"])
    headers = {
        "Content-Type": "application/json",
        "X-Mesh-Install": vector["install_id"],
        "X-Mesh-Timestamp": vector["timestamp"],
        "X-Mesh-Signature": vector["signature"],
    }
    before = door.everything()
    answer = door.ask(headers, body, shape=shape)
    if vector["verifies"]:
        assert answer.status == 202, answer.body
    else:
        assert (answer.status, answer.body) == (401, OPAQUE_401)
        after = door.kept()
        assert after == before


@_in_each_shape(SIGNING["signatures"], "body_base64")
def test_worked_signatures_pass_inbound_and_never_outbound(
    door: Door, vector: dict[str, Any], shape: Shape
) -> None:
    body = base64.b64decode(vector["body_base64"])
    door.clock.ms = int(vector["timestamp"]) * 1000
    door.install(vector["install_id"], vector["secret"])
    headers = {
        "Content-Type": "application/json",
        "X-Mesh-Install": vector["install_id"],
        "X-Mesh-Timestamp": vector["timestamp"],
        "X-Mesh-Signature": vector["signature"],
    }
    answer = door.ask(headers, body, shape=shape)
    if vector["direction"] == "out":
        assert (answer.status, answer.body) == (401, OPAQUE_401)
    else:  # verified: what is wrong with the body itself is told only then
        assert answer.status in (202, 400, 422), answer.body


@pytest.mark.behaviour("signing:no-reflection")
@_in_each_shape(SIGNING["deliveries"], "body_base64")
def test_a_delivery_sent_back_never_passes(
    door: Door, vector: dict[str, Any], shape: Shape
) -> None:
    body = base64.b64decode(vector["body_base64"])
    headers = {"Content-Type": "application/json", **vector["headers"]}
    secrets = vector["secrets_current_first"]
    door.clock.ms = int(headers["X-Mesh-Timestamp"]) * 1000
    previous = secrets[1] if len(secrets) > 1 else None
    door.install(headers["X-Mesh-Install"], secrets[0], previous=previous)
    assert door.ask(headers, body, shape=shape).status == 401
    for value in headers["webhook-signature"].split(" "):
        swapped = headers | {"X-Mesh-Signature": value}
        assert door.ask(swapped, body, shape=shape).status == 401


@pytest.mark.behaviour("ingress:payload:flat-json", "seams:payload-without-tools")
@_in_each_shape(PAYLOADS["payloads"], "raw_base64")
def test_a_payload_vector_is_answered_as_it_says(
    door: Door, vector: dict[str, Any], shape: Shape
) -> None:
    body = base64.b64decode(vector["raw_base64"])
    door.install()
    answer = door.post(body, shape=shape)
    assert (answer.status, answer.code) == (vector["status"], vector["code"])
    if answer.status == 422:
        assert answer.json()["error"]["fields"]
        assert door.rows("CLAIM") == door.rows("MSG#") == []
    if answer.status == 202:
        sent = json.loads(body)
        assert answer.json()["message_id"] == sent["message_id"]
        (stored,) = door.rows("MSG#")
        assert stored["body"] == sent["body"]


@_named(PAYLOADS["claim_digests"])
def test_a_claim_holds_the_digest_of_the_vector(door: Door, vector: dict[str, Any]) -> None:
    door.install()
    assert door.post(vector["payload"]).status == 202
    (claim,) = door.rows("CLAIM")
    assert (claim["digest"], claim["digest_version"]) == (vector["sha256"], 1)


@pytest.mark.parametrize("first", PAYLOADS["claim_digests"], ids=lambda v: v["name"])
def test_equal_digests_are_duplicates_and_others_conflict(
    door: Door, first: dict[str, Any]
) -> None:
    door.install()
    accepted = door.post(first["payload"])
    for second in PAYLOADS["claim_digests"]:
        again = door.post(second["payload"])
        if second["sha256"] == first["sha256"]:
            assert again.status == 200
            assert again.json() == accepted.json() | {"status": "duplicate"}
        else:
            assert (again.status, again.code) == (409, "idempotency_conflict")


@pytest.mark.parametrize("vector", [v for v in PAYLOADS["mentions"] if v["body"]])
def test_a_mention_vector_engages_or_observes(door: Door, vector: dict[str, Any]) -> None:
    door.install()
    assert door.system.agent.handle == vector["handle"]
    answer = door.say("m", body=vector["body"], topology="group")
    expected = ("engage", "mentioned") if vector["mentioned"] else ("observe", "not_addressed")
    gate = answer.json()["engagement"]
    assert (gate["verdict"], gate["reason"]) == expected


@pytest.mark.behaviour("seams:cloudevents-optional")
@each_shape
@_named(PAYLOADS["cloudevents"])
def test_a_cloudevent_vector_is_answered_as_it_says(
    door: Door, vector: dict[str, Any], shape: Shape
) -> None:
    door.install()
    headers = {"Content-Type": "application/cloudevents+json"}
    answer = door.post(vector["event"], headers=headers, shape=shape)
    assert answer.status == vector["status"]
    if answer.status == 202:
        event = vector["event"]
        assert answer.json()["message_id"] == event["data"].get("message_id", event["id"])


def test_the_claim_ignores_the_envelope(door: Door) -> None:
    door.install()
    event = PAYLOADS["cloudevents"][0]["event"]
    headers = {"Content-Type": "application/cloudevents+json"}
    assert door.post(event, headers=headers).status == 202
    other = event | {"source": "/elsewhere", "time": "2025-11-30T05:20:00Z"}
    assert door.post(other, headers=headers).status == 200
    plain = utterance(message_id=event["id"], **event["data"])
    assert door.post(plain).status == 200


def test_a_lower_case_routing_key_finds_nothing_even_where_it_is_signed(door: Door) -> None:
    door.install()
    low, at = INSTALL.lower(), str(door.clock.now_ms() // 1000)
    body = json.dumps(utterance()).encode()
    for signed in (low, INSTALL):
        headers = {"X-Mesh-Install": low, "X-Mesh-Signature": signature(SECRET, signed, at, body)}
        assert door.post(body, headers=headers).status == 401
