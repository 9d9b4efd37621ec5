"""The operator is told of what happens of itself: once of each thing, whatever stands still."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from infra.local.aws.events import PutEvent
from mesh.kernel.clock import HOUR_MS
from mesh.security.signing import standard_webhooks_signature
from mesh.storage import keys
from tests.fakes.operators import admin
from tests.fakes.system import URL, Made, System, answer
from tests.scenarios.test_held import operate

CANARY = "tangerine"
SECRET_URL = f"{URL}/{CANARY}"


def told(system: System) -> list[PutEvent]:
    """What the bus has, after everything that waits was sent."""
    system.run(240, step_s=20)
    return system.aws.events.events()


def kinds(events: list[PutEvent]) -> Counter[str]:
    return Counter(event.detail_type for event in events)


def fail_until_degraded(system: System) -> Made:
    made = system.make_install()
    fail(system, made, "room")
    return made


def fail(system: System, made: Made, room: str) -> None:
    system.receiver(answer(500))
    for number in range(5):
        key = f"{room}-{number}"
        system.say(made, "Hello", f"m-{number}", conversation_key=key)
    system.settle()
    assert endpoint(system)["state"] == "degraded"


def endpoint(system: System) -> dict[str, Any]:
    (row,) = system.rows(keys.DELIVERY)
    return row


def later(system: System, hours: float) -> None:
    """Hours in which nothing runs."""
    system.clock.forward(hours * HOUR_MS / 1000)


def test_an_endpoint_that_fails_for_a_day_is_told_of_at_each_turn_and_once() -> None:
    system = System()
    made = fail_until_degraded(system)
    expected = {"delivery.degraded": 1}
    for hours, kind, count in (
        (0, "delivery.degraded", 1),
        (11.5, "delivery.degraded", 1),
        (0.5, "delivery.failing", 1),
        (1, "delivery.failing", 1),
        (8.5, "delivery.failing", 2),
        (2.3, "delivery.paused", 1),
        (3, "delivery.paused", 1),
    ):
        later(system, hours)
        expected[kind] = count
        assert kinds(told(system)) == expected, hours

    events = system.aws.events.events()
    assert [e.detail["figures"]["percent"] for e in events if "failing" in e.detail_type] == [
        50,
        90,
    ]
    for event in events:
        assert event.source == "mesh.local"
        assert event.detail["install_id"] == made.install_id
        assert event.detail["agent_id"] == system.agent.agent_id
        assert event.detail["type"] == event.detail_type
    assert events[-1].detail["reason"] == "failed_for_a_day"
    assert all("due_pk" not in row for row in system.rows(keys.NOTICE)), "nobody waits any more"


@pytest.mark.parametrize(
    ("hours", "expected"),
    [(13, {"delivery.failing": 1}), (23, {"delivery.failing": 2})]
    + [(hours, {"delivery.failing": 2, "delivery.paused": 1}) for hours in (25, 90)],
)
def test_a_sweep_that_stood_still_for_hours_tells_of_all_that_it_missed(
    hours: float, expected: dict[str, int]
) -> None:
    system = System()
    fail_until_degraded(system)
    later(system, hours)
    assert kinds(told(system)) == {"delivery.degraded": 1, **expected}
    later(system, 0.5)
    assert kinds(told(system)) == {"delivery.degraded": 1, **expected}


def test_an_endpoint_that_comes_back_is_told_of_and_later_fails_anew() -> None:
    system = System()
    made = fail_until_degraded(system)
    later(system, 13)
    assert kinds(told(system)) == {"delivery.degraded": 1, "delivery.failing": 1}
    system.receiver(answer(200))
    system.run(300, step_s=20)
    assert kinds(told(system))["delivery.recovered"] == 1
    assert "told" not in endpoint(system)

    fail(system, made, "again")
    later(system, 13)
    assert kinds(told(system)) == {
        "delivery.degraded": 2,
        "delivery.failing": 2,
        "delivery.recovered": 1,
    }


def test_the_time_in_which_a_failing_connector_is_disabled_does_not_count_to_its_pause() -> None:
    system = System()
    token = system.stack.bootstrap()
    made = fail_until_degraded(system)
    install = f"connectors/{made.install_id}"
    later(system, 6)
    operate(system, token, f"{install}/disable")
    later(system, 48)
    assert kinds(told(system)) == {"delivery.degraded": 1}, "nothing was tried"
    operate(system, token, f"{install}/enable", b'{"skip_ping":true}')
    later(system, 5)
    assert kinds(told(system)) == {"delivery.degraded": 1}
    later(system, 14)
    assert kinds(told(system))["delivery.failing"] == 2
    assert endpoint(system)["state"] == "paused"


def test_a_receiver_that_is_gone_is_told_of_with_its_entry_and_a_resume_is_not() -> None:
    system = System()
    api = admin(system)
    made = system.make_install()
    system.receiver(answer(410))
    run_id = system.say(made, "Hello").json()["run_id"]
    system.settle()
    assert kinds(told(system)) == {"outbox.dead": 1, "delivery.paused": 1}
    by_kind = {event.detail_type: event.detail for event in system.aws.events.events()}
    out_id = run_id.replace("run_", "out_")
    dead = by_kind["outbox.dead"]
    assert (dead["outbound_id"], dead["reason"], dead["figures"]["attempts"]) == (out_id, "gone", 1)
    assert (by_kind["delivery.paused"]["reason"], by_kind["delivery.paused"]["outbound_id"]) == (
        "gone",
        None,
    )

    explained = api.ok("GET", f"/api/explain/{out_id}")
    (event,) = [event for event in explained["events"] if event["kind"] == "notice"]
    assert event["ids"] == {"outbound_id": out_id, "notice_id": dead["notice_id"]}

    system.receiver(answer(200))
    api.ok("POST", f"/api/connectors/{made.install_id}/resume-delivery")
    api.ok("POST", f"/api/outbox/{out_id}/replay")
    later(system, 1)
    assert kinds(told(system)) == {"outbox.dead": 1, "delivery.paused": 1}


def test_requests_in_flight_that_are_all_told_that_it_is_gone_pause_it_once() -> None:
    system = System()
    made = system.make_install()
    system.receiver(answer(410))
    for number in range(3):
        system.say(made, "Hello", f"m-{number}", conversation_key=f"room-{number}")
    system.settle()
    assert kinds(told(system))["delivery.paused"] == 1


def test_what_an_operator_ends_is_no_notice() -> None:
    system = System()
    api = admin(system)
    made = system.make_install()
    system.receiver(answer(503))
    system.say(made, "Hello")
    system.settle()
    api.ok("DELETE", f"/api/connectors/{made.install_id}")
    later(system, 1)
    assert kinds(told(system)) == {}
    assert not [row for row in system.rows(keys.ENTRY) if row["state"] == "pending"]


def test_an_enabling_that_fails_is_told_of_by_the_name_of_its_step() -> None:
    system = System()
    api = admin(system)
    system.egress.script(SECRET_URL, answer(500))
    body = {"kind": "generic", "delivery_url": SECRET_URL, "enable": True}
    made = api.ok("POST", "/api/agents/ada/connectors", body)
    assert made["state"] == "error"
    (event,) = told(system)
    assert (event.detail_type, event.detail["reason"]) == ("connector.error", "ping_failed")
    api.ok("POST", f"/api/connectors/{made['install_id']}/enable")
    assert kinds(told(system)) == {"connector.error": 2}


def test_no_event_holds_what_was_said_an_address_or_a_secret() -> None:
    system = System()
    api = admin(system)
    system.egress.script(SECRET_URL, answer(500), answer(200), answer(400))
    body = {"kind": "generic", "delivery_url": SECRET_URL, "enable": True}
    shown = api.ok("POST", "/api/agents/ada/connectors", body)
    made = Made(shown["install_id"], shown["secret"])
    api.ok("POST", f"/api/connectors/{made.install_id}/enable")
    system.say(made, CANARY, CANARY, conversation_key=CANARY, actor_id=CANARY)
    system.run(1800, step_s=20)
    system.egress.script(SECRET_URL, answer(500))
    for number in range(6):
        system.say(made, CANARY, f"m-{number}", conversation_key=f"{CANARY} {number}")
    system.settle()
    later(system, 13)
    events = told(system)
    assert set(kinds(events)) == {
        "connector.error",
        "outbox.dead",
        "delivery.degraded",
        "delivery.failing",
    }
    kept = json.dumps([event.detail for event in events]) + json.dumps(system.rows(keys.NOTICE))
    for secret in (CANARY, "receiver.example", made.secret, "whsec_", "https:"):
        assert secret not in kept


def test_the_operators_webhook_is_told_from_when_it_is_set_until_it_is_removed() -> None:
    system = System()
    api = admin(system)
    pager = f"https://pager.example/{CANARY}"
    settings = {"allow_hosts": [], "operator_webhook_url": pager, "retention_days": None}
    saved = api.ok("PUT", "/api/instance/settings", {**settings, "version": 0})
    secret = saved["webhook_secret"]
    system.egress.script(pager, answer(503), answer(204))

    made = system.make_install()
    system.receiver(answer(410))
    system.say(made, CANARY)
    system.settle()
    events = told(system)
    posts = system.calls(pager)
    assert {json.loads(post.body)["notice_id"] for post in posts} == {
        event.detail["notice_id"] for event in events
    }
    assert len(posts) == len(events) + 1, "one was sent again"
    for post in posts:
        assert post.headers["webhook-signature"] == standard_webhooks_signature(
            secret, post.headers["webhook-id"], post.headers["webhook-timestamp"], post.body
        )
    rows = json.dumps(system.rows(keys.NOTICE)) + json.dumps(system.rows("WEBHOOK"))
    logged = json.dumps(system.log.events)
    for hidden in (CANARY, "pager.example", secret):
        assert hidden not in rows
        assert hidden not in logged
        assert all(hidden.encode() not in post.body for post in posts)

    settings["operator_webhook_url"] = None
    api.ok("PUT", "/api/instance/settings", {**settings, "version": saved["version"]})
    api.ok("POST", f"/api/connectors/{made.install_id}/resume-delivery")
    system.say(made, CANARY, "m-2", conversation_key="room-2")
    system.settle()
    assert len(told(system)) > len(events)
    assert len(system.calls(pager)) == len(posts)
    assert all("due_pk" not in row for row in system.rows(keys.NOTICE))
