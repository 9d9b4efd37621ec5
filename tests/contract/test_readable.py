"""Readable before it runs: plans and simulations have no effect, and say what would be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.test_operator_api import Instance
from tests.fakes.egress import answer
from tests.fakes.operators import error_of
from tests.fakes.system import URL


def rows(instance: Instance) -> list[dict[str, Any]]:
    """Every row as it is stored."""
    return sorted(instance.system.aws.items(), key=lambda item: (item["pk"], item["sk"]))


def steps(part: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(step["name"], step["done"]) for step in part["steps"]]


@pytest.mark.behaviour("enablement:readable-first")
def test_a_plan_tells_the_very_steps_that_enabling_then_runs_and_does_nothing() -> None:
    instance = Instance()
    made = instance.install(enable=False)
    path = f"/api/connectors/{made.install_id}"
    before = rows(instance)
    plan = instance.viewer.ok("POST", f"{path}/plan")
    assert rows(instance) == before
    assert instance.system.calls() == []
    assert plan["state"] == "disabled"
    assert steps(plan["enable"]) == [("check_url", False), ("ping", False), ("open", False)]
    assert all(step["description"] for step in plan["enable"]["steps"])
    assert plan["enable"]["next"].endswith("runs: check_url, ping, open")
    skipped = instance.viewer.ok("POST", f"{path}/plan", {"skip_ping": True})
    assert steps(skipped["enable"]) == [("check_url", False), ("open", False)]
    instance.operator.ok("POST", f"{path}/enable")
    after = instance.viewer.ok("POST", f"{path}/plan")
    assert {done for _, done in steps(after["enable"])} == {True}
    assert after["enable"]["next"].startswith("nothing:")


def test_a_plan_of_a_connector_without_a_url_only_opens() -> None:
    instance = Instance()
    made = instance.install(delivery_url=None, enable=False)
    plan = instance.viewer.ok("POST", f"/api/connectors/{made.install_id}/plan")
    assert steps(plan["enable"]) == [("open", False)]


def test_a_plan_after_a_failed_enabling_says_why_and_what_is_left() -> None:
    instance = Instance()
    instance.system.receiver(answer(401))
    made = instance.install()
    plan = instance.viewer.ok("POST", f"/api/connectors/{made.install_id}/plan")
    assert plan["state"] == "error"
    assert "401" in plan["state_reason"]
    assert ("ping", False) in steps(plan["enable"])


def test_a_plan_of_disabling_tells_what_is_in_flight_and_what_waits() -> None:
    instance = Instance()
    made = instance.install()
    instance.system.receiver(answer(500))
    instance.answered(made)
    path = f"/api/connectors/{made.install_id}"
    seen: list[dict[str, Any]] = []

    def look() -> None:
        seen.append(instance.viewer.ok("POST", f"{path}/plan")["disable"])

    look()
    assert (seen[0]["in_flight"], seen[0]["waiting"]) == (0, 1)
    assert steps(seen[0]) == [("close", False), ("hold", False), ("drain", False)]
    instance.system.table.write(slot_taken(instance, made.install_id))
    look()
    assert (seen[1]["in_flight"], seen[1]["in_flight_until"] is None) == (1, False)
    instance.system.clock.forward(60)
    instance.operator.ok("POST", f"{path}/disable")
    look()
    assert (seen[2]["in_flight"], steps(seen[2])[0]) == (0, ("close", True))
    assert {done for _, done in steps(seen[2])} == {True}


def slot_taken(instance: Instance, install_id: str) -> Any:
    """A write that takes a slot of an install's endpoint, as a delivery does."""
    from mesh.storage import keys
    from mesh.storage.writes import update

    until = instance.system.clock.now_ms() + 30_000
    return update(keys.delivery(install_id), "SET #slot_0 = :until", until=until)


def test_a_plan_takes_nothing_else_and_is_of_ones_own_connectors_alone() -> None:
    instance = Instance()
    made = instance.install("ada", delivery_url=URL)
    path = f"/api/connectors/{made.install_id}/plan"
    assert instance.operator("POST", path).status == 404
    wrong = instance.admin("POST", path, {"what": 1})
    assert (wrong.status, error_of(wrong)) == (422, "invalid_request")


# ---- simulation

PAYLOAD = {"message_id": "s-1", "conversation_key": "room-9", "actor_id": "u-42", "body": "hello"}


def simulated(instance: Instance, install_id: str, payload: Any = PAYLOAD, **more: Any) -> Any:
    """What a payload would come to; no row changes, and nothing is sent or rung."""
    before, sent = rows(instance), len(instance.system.calls())
    path = f"/api/connectors/{install_id}/simulate"
    with instance.system.aws.recording() as calls:
        if isinstance(payload, bytes):
            response = instance.viewer("POST", path, raw=payload, **more)
        else:
            response = instance.viewer("POST", path, payload, **more)
    assert rows(instance) == before
    assert len(instance.system.calls()) == sent
    assert {call.operation for call in calls} <= {"GetItem", "Query", "BatchGetItem"}
    assert response.status == 200, response.body
    return response.json()


@pytest.mark.parametrize(
    ("engagement", "more", "verdict", "reason", "rule"),
    [
        ({}, {}, "engage", "direct_message", "engagement.policy"),
        ({}, {"topology": "group"}, "observe", "not_addressed", "engagement.policy"),
        ({}, {"topology": "group", "body": "@bob hi"}, "engage", "mentioned", "engagement.policy"),
        ({"policy": "never"}, {}, "observe", "policy_never", "engagement.policy"),
        ({"deny_actors": ["u-42"]}, {}, "refuse", "actor_denied", "engagement.deny_actors"),
        ({"allow_actors": ["u-1"]}, {}, "refuse", "actor_not_allowed", "engagement.allow_actors"),
    ],
)
def test_a_simulation_says_what_ingress_then_says(
    engagement: dict[str, Any], more: dict[str, Any], verdict: str, reason: str, rule: str
) -> None:
    instance = Instance()
    made = instance.install(engagement=engagement)
    found = simulated(instance, made.install_id, PAYLOAD | more)
    assert (found["outcome"], found["status"], found["error"]) == ("accepted", 202, None)
    assert (found["verdict"], found["reason"], found["rule"]) == (verdict, reason, rule)
    assert found["starts_run"] is (verdict == "engage")
    real = instance.system.post(made, PAYLOAD | more)
    assert real.status == found["status"]
    assert real.json()["engagement"] == {"verdict": verdict, "reason": reason}
    assert found["closed"] is None


@pytest.mark.parametrize(
    "body",
    [
        b"{not json",
        b'{"a":1,"a":2}',
        b"[]",
        b"{}",
        b'{"message_id":"m","conversation_key":"k","actor_id":"a","body":"x","tools":[]}',
        b'{"message_id":7,"conversation_key":"k","actor_id":"a","body":" "}',
    ],
)
def test_a_payload_that_ingress_refuses_is_told_with_the_very_error(body: bytes) -> None:
    instance = Instance()
    made = instance.install()
    found = simulated(instance, made.install_id, body)
    real = instance.system.post(made, body)
    told = real.json()["error"]
    assert (found["outcome"], found["verdict"]) == ("refused", None)
    assert found["status"] == found["error"]["status"] == real.status
    assert (found["error"]["code"], found["error"]["message"]) == (told["code"], told["message"])
    assert found["error"]["fields"] == told.get("fields", [])


def test_a_simulated_cloudevent_is_read_as_one() -> None:
    instance = Instance()
    made = instance.install()
    event = {
        "specversion": "1.0",
        "id": "e-1",
        "source": "/shop",
        "type": "com.example.said",
        "datacontenttype": "application/json",
        "data": PAYLOAD,
    }
    kind = "application/cloudevents+json"
    body = json.dumps(event).encode()
    found = simulated(instance, made.install_id, body, content_type=kind)
    assert found["status"] == instance.system.post(made, body, content_type=kind).status


def test_a_simulation_knows_replies_duplicates_and_conversations_that_are_busy() -> None:
    instance = Instance()
    made = instance.install(caps={"waiting": 1})
    first = instance.answered(made)
    reply = {"topology": "group", "parent_id": first.replace("run_", "out_")}
    assert simulated(instance, made.install_id, PAYLOAD | reply)["reason"] == "reply_to_agent"
    elsewhere = PAYLOAD | reply | {"conversation_key": "room-10"}
    assert simulated(instance, made.install_id, elsewhere)["reason"] == "not_addressed"
    same = simulated(instance, made.install_id, PAYLOAD | {"message_id": "m-1"})
    assert (same["outcome"], same["status"]) == ("duplicate", 200)
    assert (same["duplicate_of"], same["starts_run"]) == (first.replace("run_", "msg_"), False)
    other = simulated(instance, made.install_id, PAYLOAD | {"message_id": "m-1", "body": "x"})
    assert (other["status"], other["error"]["code"]) == (409, "idempotency_conflict")
    instance.system.say(made, "wait", "m-2")
    busy = simulated(instance, made.install_id)
    assert (busy["verdict"], busy["reason"]) == ("observe", "busy")
    real = instance.system.post(made, PAYLOAD).json()
    assert real["engagement"] == {"verdict": "observe", "reason": "busy"}


def test_a_closed_connector_is_simulated_as_if_it_were_open_and_says_that_it_is_not() -> None:
    instance = Instance()
    made = instance.install(enable=False)
    found = simulated(instance, made.install_id)
    assert (found["verdict"], found["closed"]["status"]) == ("engage", 403)
    assert found["closed"]["code"] == "connector_disabled"
    instance.operator.ok("POST", f"/api/connectors/{made.install_id}/enable")
    instance.operator.ok("POST", "/api/agents/bob/pause")
    found = simulated(instance, made.install_id)
    assert (found["closed"]["status"], found["closed"]["code"]) == (503, "agent_paused")


def test_a_simulation_is_refused_as_every_route_is() -> None:
    instance = Instance()
    made = instance.install("ada")
    path = f"/api/connectors/{made.install_id}/simulate"
    assert instance.operator("POST", path, PAYLOAD).status == 404
    plain = instance.admin("POST", path, raw=b"hello", content_type="text/plain")
    assert (plain.status, error_of(plain)) == (415, "unsupported_media_type")
    large = instance.admin("POST", path, raw=b"x" * (300 * 1024))
    assert (large.status, error_of(large)) == (413, "body_too_large")
    assert instance.admin("POST", f"{path}?x=1", PAYLOAD).status == 422
    instance.admin.ok("POST", path, PAYLOAD | {"body": "word-of-a-body"})
    assert "word-of-a-body" not in repr(instance.system.log.events)
