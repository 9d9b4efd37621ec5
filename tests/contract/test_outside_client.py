"""A third party that knows the contract's page and nothing of the code talks to the whole system.

`Sender` and `Receiver` are written from the page alone, on the standard library's hmac and json.
What is delivered is verified a second time by the Standard Webhooks package.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from infra.local.gateway import Request, Response
from mesh.control.rotation import Rotation
from tests.fakes.egress import Call, Reply, answer
from tests.fakes.system import CAUSE, Made, System

ULID = r"[0-9A-HJKMNP-TV-Z]{26}"
PATH = "/generic/events"

Clock = Callable[[], int]
"""Unix seconds."""


class Sender:
    """The third party's way in: signs, posts, and tries again when the contract says so."""

    def __init__(self, system: System, install_id: str, secret: str) -> None:
        self._system = system
        self.install_id = install_id
        self.secret = secret

    def signed(self, body: bytes) -> list[tuple[str, str]]:
        timestamp = str(self._system.clock.now_ms() // 1000)
        message = b":".join([b"v1", b"in", self.install_id.encode(), timestamp.encode(), body])
        digest = hmac.new(self.secret.encode(), message, hashlib.sha256).hexdigest()
        return [
            ("content-type", "application/json"),
            ("X-Mesh-Install", self.install_id),
            ("X-MESH-TIMESTAMP", timestamp),
            ("x-mesh-signature", f"v1={digest}"),
        ]

    def send(self, lines: list[tuple[str, str]], body: bytes, target: str = PATH) -> Response:
        return self._system.stack.gateway.answer(Request("POST", target, tuple(lines), body))

    def say(self, text: str, message_id: str, room: str = "room-9", **more: Any) -> Response:
        payload = {
            "message_id": message_id,
            "conversation_key": room,
            "actor_id": "u-42",
            "body": text,
            **more,
        }
        body = json.dumps(payload).encode()
        return self.send(self.signed(body), body)

    def say_until_taken(self, text: str, message_id: str, patience: int = 50) -> Response:
        """Tries again with the same id and body, freshly signed, on what is to be tried again."""
        for _ in range(patience):
            answered = self.say(text, message_id)
            if answered.status in (200, 202):
                return answered
            assert answered.status in (429, 500, 503), answered.body
            self._system.clock.forward(int(answered.header("Retry-After") or 5))
        raise AssertionError("never taken")


class SimulatedWebhook(Webhook):  # type: ignore[misc]  # the package ships no types
    """The package's own verification, but for the machine's clock that it asks."""

    def __init__(self, secret: str, now: Clock) -> None:
        super().__init__(secret)
        self._now = now

    def _Webhook__verify_timestamp(self, header: str) -> datetime:  # its private name for it
        if abs(int(header) - self._now()) > 300:
            raise WebhookVerificationError("outside of the window")
        return datetime.fromtimestamp(int(header), tz=UTC)


@dataclass
class Receiver:
    """The third party's endpoint: verifies, drops repeats, keeps what it was told in order."""

    install_id: str
    secret: str
    now: Clock
    statuses: Iterator[int] = field(default_factory=lambda: iter(()))
    """What it answers; 200 when these have run out."""
    seen: list[Call] = field(default_factory=list)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __call__(self, call: Call) -> Reply:
        self.seen.append(call)
        if not self.verifies(call.headers, call.body):
            return answer(401)
        told = SimulatedWebhook(self.secret, self.now).verify(call.body, dict(call.headers))
        self.kept.setdefault(told["outbound_id"], told)
        return answer(next(self.statuses, 200))

    def verifies(self, headers: Mapping[str, str], body: bytes) -> bool:
        timestamp = headers["X-Mesh-Timestamp"]
        if headers["X-Mesh-Install"] != self.install_id or abs(int(timestamp) - self.now()) > 300:
            return False
        message = f"v1:out:{self.install_id}:{timestamp}:".encode() + body
        expected = hmac.new(self.secret.encode(), message, hashlib.sha256).hexdigest()
        offered = [part.strip() for part in headers["X-Mesh-Signature"].split(",")]
        return any(hmac.compare_digest(f"v1={expected}", part) for part in offered)

    def rooms(self) -> dict[str, list[int]]:
        """The sequences of each conversation, in the order that they first came."""
        found: dict[str, list[int]] = {}
        for told in self.kept.values():
            found.setdefault(told["conversation_key"], []).append(told["sequence"])
        return found


@dataclass
class Party:
    """One third party, both its ends, and the system that it talks to."""

    system: System
    made: Made
    sender: Sender
    receiver: Receiver

    def seconds(self) -> int:
        return self.system.clock.now_ms() // 1000


@pytest.fixture
def party() -> Party:
    system = System()
    made = system.make_install()
    receiver = Receiver(made.install_id, made.secret, lambda: system.clock.now_ms() // 1000)
    system.receiver(receiver)
    return Party(system, made, Sender(system, made.install_id, made.secret), receiver)


@pytest.mark.behaviour(
    "seams:afternoon",
    "seams:inbound-direction",
    "signing:outbound-same-secret",
    "egress:delivery-post",
    "ingress:webhook",
    "ingress:generic-only-agent",
)
def test_a_message_is_acknowledged_and_answered_by_a_verified_push(party: Party) -> None:
    acknowledged = party.sender.say("hello", "m-1")
    assert acknowledged.status == 202
    told = acknowledged.json()
    assert told.keys() == {"status", "id", "message_id", "engagement", "run_id"}
    assert re.fullmatch(f"msg_{ULID}", told["id"])
    assert re.fullmatch(f"run_{ULID}", told["run_id"])
    assert party.receiver.seen == []  # the acknowledgement never waits for the answer
    party.system.settle()

    (reply,) = party.receiver.kept.values()
    created_at = reply.pop("created_at")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", created_at)
    assert re.fullmatch(f"out_{ULID}", reply.pop("outbound_id"))
    assert "hello" in reply.pop("body")
    assert reply == {
        "type": "message.reply",
        "install_id": party.made.install_id,
        "conversation_key": "room-9",
        "epoch": 1,
        "sequence": 1,
        "in_reply_to": "m-1",
        "run_id": told["run_id"],
        "outcome": "reply",
        "agent": {"slug": "ada", "name": "Ada", "handle": "ada"},
        "body_format": "markdown",
        "truncated": False,
    }


def test_a_delivery_bears_the_contracts_headers(party: Party) -> None:
    party.sender.say('naïve \u2028 👩‍👩‍👦 "quoted" \\ /', "m-é")
    party.system.settle()
    (call,) = party.receiver.seen
    body = json.loads(call.body)
    headers = call.headers
    assert call.method == "POST"
    assert headers["Content-Type"] == "application/json"
    assert re.fullmatch(r"Mesh/[0-9.]+", headers["User-Agent"])
    assert headers["X-Mesh-Outbound-Id"] == body["outbound_id"]
    assert headers["X-Mesh-Attempt"] == "1"
    assert "X-Mesh-Replay" not in headers
    assert headers["webhook-id"] == f"out:{party.made.install_id}:{body['outbound_id']}"
    assert headers["webhook-timestamp"] == headers["X-Mesh-Timestamp"] == str(party.seconds())
    # UTF-8 with no escape that JSON does not demand
    assert call.body == json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def test_a_failed_delivery_comes_again_with_the_same_bytes_and_a_fresh_signature(
    party: Party,
) -> None:
    party.receiver.statuses = iter([500, 503])
    party.sender.say("hello", "m-1")
    party.system.run(120)
    calls = party.receiver.seen
    assert [call.headers["X-Mesh-Attempt"] for call in calls] == ["1", "2", "3"]
    assert len({call.body for call in calls}) == 1
    assert len({call.headers["webhook-id"] for call in calls}) == 1
    timestamps = [int(call.headers["X-Mesh-Timestamp"]) for call in calls]
    assert timestamps == sorted(set(timestamps))
    assert len({call.headers["X-Mesh-Signature"] for call in calls}) == 3
    assert len(party.receiver.kept) == 1  # the receiver drops repeats by outbound_id


@pytest.mark.behaviour("outbox:ordered", "outbox:at-least-once")
def test_each_conversation_has_its_own_sequence_without_gaps(party: Party) -> None:
    party.receiver.statuses = iter([500, 200, 500, 500, 200])
    for number in range(12):
        room = "ab"[number % 2]
        assert party.sender.say(f"line {number}", f"m-{number}", room).status == 202
        party.system.clock.forward(0.3)
    party.system.run(400)
    assert party.receiver.rooms() == {"a": [1, 2, 3, 4, 5, 6], "b": [1, 2, 3, 4, 5, 6]}
    for room in "ab":
        answered = [
            told["in_reply_to"]
            for told in party.receiver.kept.values()
            if told["conversation_key"] == room
        ]
        assert answered == [f"m-{n}" for n in range(12) if "ab"[n % 2] == room]


@pytest.mark.behaviour("signing:no-reflection")
def test_a_delivery_posted_back_is_refused_in_every_form(party: Party) -> None:
    party.sender.say("hello", "m-1")
    party.system.settle()
    (call,) = party.receiver.seen
    ours = [(k, v) for k, v in call.headers.items() if k.lower() != "x-mesh-signature"]
    hexed = b64decode(call.headers["webhook-signature"].split(",")[1]).hex()
    for value in (
        call.headers["X-Mesh-Signature"],
        call.headers["webhook-signature"],
        f"v1={hexed}",
    ):
        assert party.sender.send([*ours, ("X-Mesh-Signature", value)], call.body).status == 401


def test_a_request_never_verifies_as_a_delivery(party: Party) -> None:
    body = b'{"type":"message.reply"}'
    sent = dict(party.sender.signed(body))
    headers = {
        "X-Mesh-Install": sent["X-Mesh-Install"],
        "X-Mesh-Timestamp": sent["X-MESH-TIMESTAMP"],
        "X-Mesh-Signature": sent["x-mesh-signature"],
    }
    assert not party.receiver.verifies(headers, body)


def test_a_rotation_goes_unnoticed_by_a_party_that_changes_over_within_the_overlap(
    party: Party,
) -> None:
    system, old = party.system, party.made.secret
    rotation = Rotation(
        system.table,
        system.clock,
        system.random,
        audit=system.installs._audit,
        installs=system.installs,
        instance_keys=system.installs._keys,
    )
    rotated = rotation.rotate(
        party.made.install_id,
        overlap_s=3600,
        force=False,
        cause=CAUSE,
        minting=system.control.minting(),
    )
    assert rotated.secret != old
    # sends with the old one, and receives with the old one
    assert party.sender.say("one", "m-1").status == 202
    system.settle()
    # then receives with the new one
    party.receiver.secret = rotated.secret
    assert party.sender.say("two", "m-2").status == 202
    system.settle()
    # then sends with it
    party.sender.secret = rotated.secret
    assert party.sender.say("three", "m-3").status == 202
    system.settle()
    for call in party.receiver.seen:
        assert len(call.headers["X-Mesh-Signature"].split(",")) == 2
        assert len(call.headers["webhook-signature"].split(" ")) == 2
    assert party.receiver.rooms() == {"room-9": [1, 2, 3]}

    system.clock.forward(3600)
    party.sender.secret = old
    assert party.sender.say("late", "m-4").status == 401
    party.sender.secret = rotated.secret
    assert party.sender.say("four", "m-4").status == 202
    system.settle()
    (last,) = party.receiver.seen[3:]
    assert "," not in last.headers["X-Mesh-Signature"]
    assert " " not in last.headers["webhook-signature"]


def test_a_party_signs_with_both_secrets_and_either_is_enough(party: Party) -> None:
    body = json.dumps(
        {"message_id": "m", "conversation_key": "c", "actor_id": "a", "body": "b"}
    ).encode()
    *others, (name, good) = party.sender.signed(body)
    assert party.sender.send([*others, (name, f"v1={'0' * 64} , {good}")], body).status == 202
    # a repeated header is one list: the gateway joins it
    assert party.sender.send([*others, (name, f"v1={'0' * 64}"), (name, good)], body).status == 200


def test_a_caller_that_tries_again_while_an_agent_is_paused_is_answered_once(party: Party) -> None:
    system = party.system
    paused = system.agents.pause(system.agent, CAUSE)
    refused = party.sender.say("hello", "m-1")
    assert (refused.status, refused.header("Retry-After")) == (503, "300")
    assert refused.json()["error"]["code"] == "agent_paused"
    system.agents.resume(paused, CAUSE)
    assert party.sender.say_until_taken("hello", "m-1").status == 202
    assert party.sender.say_until_taken("hello", "m-1").status == 200
    system.settle()
    assert party.receiver.rooms() == {"room-9": [1]}


def test_a_replayed_request_is_a_duplicate_within_the_window_and_refused_after(
    party: Party,
) -> None:
    body = json.dumps(
        {"message_id": "m", "conversation_key": "c", "actor_id": "a", "body": "b"}
    ).encode()
    lines = party.sender.signed(body)
    assert party.sender.send(lines, body).status == 202
    party.system.clock.forward(300)
    assert party.sender.send(lines, body).status == 200
    party.system.clock.forward(1)
    assert party.sender.send(lines, body).status == 401


def test_an_answer_to_the_agents_reply_starts_the_next_turn(party: Party) -> None:
    party.sender.say("@ada hello", "m-1", topology="group")
    party.system.settle()
    (outbound_id,) = party.receiver.kept
    party.system.clock.forward(1)
    ignored = party.sender.say("to somebody else", "m-2", topology="group")
    assert ignored.json()["engagement"] == {"verdict": "observe", "reason": "not_addressed"}
    asked = party.sender.say("and now?", "m-3", topology="group", parent_id=outbound_id)
    assert asked.json()["engagement"] == {"verdict": "engage", "reason": "reply_to_agent"}
    party.system.settle()
    assert party.receiver.rooms() == {"room-9": [1, 2]}


def test_a_cloudevent_is_the_same_message(party: Party) -> None:
    event = {
        "specversion": "1.0",
        "type": "mesh.message.v1",
        "id": "m-1",
        "source": "/shop",
        "data": {"conversation_key": "room-9", "actor_id": "u-42", "body": "hello"},
    }
    body = json.dumps(event).encode()
    (_, _), *lines = party.sender.signed(body)
    typed = [("Content-Type", "application/cloudevents+json; charset=utf-8"), *lines]
    assert party.sender.send(typed, body).status == 202
    assert party.sender.say("hello", "m-1").status == 200


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [("GET", PATH, 404), ("PUT", PATH, 404), ("POST", "/generic", 404), ("POST", PATH + "/", 404)],
)
def test_what_is_answered_in_front_of_mesh_has_no_code(
    party: Party, method: str, target: str, status: int
) -> None:
    answered = party.system.stack.gateway.answer(Request(method, target, (), b"{}"))
    assert answered.status == status
    assert "error" not in answered.json()


def test_a_party_without_a_url_is_heard_and_its_replies_are_kept(party: Party) -> None:
    deaf = party.system.make_install(url=None)
    sender = Sender(party.system, deaf.install_id, deaf.secret)
    assert sender.say("hello", "m-1").status == 202
    party.system.settle()
    assert party.receiver.seen == []
    (entry,) = party.system.rows("ENTRY#")
    assert entry["state"] == "undeliverable"


def test_a_party_that_was_given_the_wrong_secret_refuses_every_delivery(party: Party) -> None:
    party.receiver.secret = "whsec_" + "A" * 43 + "="
    party.sender.say("hello", "m-1")
    party.system.settle()
    assert party.receiver.kept == {}
    (entry,) = party.system.rows("ENTRY#")
    assert entry["state"] == "pending"
