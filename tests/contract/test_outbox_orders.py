"""Orders about many outbox entries: by state and time, as jobs that can be made twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from mesh.kernel.clock import rfc3339
from mesh.kernel.limits import JOB_PAGE_ROWS, SLOTS_PER_INSTALL
from mesh.storage import keys
from mesh.storage.writes import delete, update
from tests.contract.test_operator_api import Instance, audited
from tests.fakes.egress import Call, answer
from tests.fakes.operators import error_of
from tests.fakes.system import Made, Reply


def path_of(made: Made, action: str) -> str:
    return f"/api/connectors/{made.install_id}/outbox/{action}"


def asked(instance: Instance, made: Made, count: int, first: int = 0) -> None:
    """So many messages, each in a conversation of its own, and their replies' first attempts."""
    for number in range(first, first + count):
        instance.system.say(made, "hello", f"m-{number}", conversation_key=f"room-{number}")
    instance.system.settle()
    instance.system.clock.forward(4)  # longer than an index lags


def dead(instance: Instance, made: Made, count: int, first: int = 0) -> None:
    """So many entries that died."""
    asked(instance, made, count, first)
    for row in instance.system.rows(keys.ENTRY):
        if row["state"] == "pending":
            set_state(instance, row, "dead")


def set_state(instance: Instance, row: dict[str, Any], state: str) -> None:
    key = keys.Key(row["pk"], row["sk"])
    instance.system.table.write(update(key, "SET #state = :state", state=state))


def states(instance: Instance) -> Counter[str]:
    return Counter(row["state"] for row in instance.system.rows(keys.ENTRY))


def job_of(instance: Instance, job: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = instance.operator.ok("GET", f"/api/jobs/{job['job_id']}")
    return shown


def failing(instance: Instance) -> Made:
    """An install whose receiver refuses what it gets, so that its entries wait or die."""
    made = instance.install()
    instance.system.receiver(answer(400))
    return made


def replays(instance: Instance) -> list[str]:
    """The outbound ids of all replays that were sent."""
    calls = instance.system.calls()
    return [c.headers["X-Mesh-Outbound-Id"] for c in calls if "X-Mesh-Replay" in c.headers]


def sent_to(instance: Instance, made: Made) -> int:
    """How many requests an install's receiver got."""
    calls = instance.system.calls()
    return sum(call.headers["X-Mesh-Install"] == made.install_id for call in calls)


# ---- replay


def test_the_dead_entries_of_a_connector_go_out_again_once_each() -> None:
    instance = Instance()
    made = failing(instance)
    dead(instance, made, 3)
    instance.system.receiver(answer(200))
    job = instance.operator.ok("POST", path_of(made, "replay"))
    assert (job["kind"], job["target"], job["status"]) == (
        "outbox.replay",
        made.install_id,
        "running",
    )
    instance.system.run(10)
    assert (job_of(instance, job)["status"], job_of(instance, job)["done"]) == ("done", 3)
    assert states(instance) == {"delivered": 3}
    assert len(replays(instance)) == len(set(replays(instance))) == 3
    actions = [r["action"] for r in audited(instance.system.aws).values()]
    assert (actions.count("outbox.replay"), actions.count("outbox.replayed")) == (1, 1)


def test_many_replays_never_wait_for_more_slots_than_there_are_by_much() -> None:
    instance = Instance()
    made = failing(instance)
    count = 3 * JOB_PAGE_ROWS
    dead(instance, made, count)
    most = 0

    def counts_what_waits(_: Call) -> Reply:
        nonlocal most
        waiting = sum(row["tries"] == 0 for row in instance.system.rows(keys.REPLAY))
        most = max(most, waiting)
        return answer(200)

    instance.system.receiver(counts_what_waits)
    job = instance.operator.ok("POST", path_of(made, "replay"))
    instance.system.run(120)
    assert job_of(instance, job)["done"] == count
    assert states(instance) == {"delivered": count}
    assert len(replays(instance)) == len(set(replays(instance))) == count
    assert most <= JOB_PAGE_ROWS + SLOTS_PER_INSTALL


def test_states_and_times_choose_what_goes_out_again() -> None:
    instance = Instance()
    other, made = instance.install(name="Other"), failing(instance)
    dead(instance, made, 2)
    since = instance.system.clock.now_ms()
    dead(instance, made, 1, first=2)
    until = instance.system.clock.now_ms()
    dead(instance, made, 1, first=3)
    asked(instance, other, 1, first=4)
    for row in instance.system.rows(keys.ENTRY):
        if since <= row["created_at"] < until:
            set_state(instance, row, "discarded")
            wanted = f"out_{row['story']}"
    instance.system.receiver(answer(200))
    body = {
        "status": ["discarded", "dead"],
        "since": rfc3339(since),
        "until": rfc3339(until),
    }
    instance.operator.ok("POST", path_of(made, "replay"), body)
    instance.system.run(10)
    assert replays(instance) == [wanted]


def test_what_was_delivered_goes_out_once_more_and_not_twice() -> None:
    instance = Instance()
    made = instance.install()
    asked(instance, made, 3)
    job = instance.operator.ok("POST", path_of(made, "replay"), {"status": "delivered"})
    instance.system.run(10)
    assert len(replays(instance)) == 3
    row = keys.job(job["job_id"].removeprefix("job_"))
    again = {"status": "running", "place": {}, "due_pk": keys.due(job["job_id"]), "due_at": 0}
    sets = ", ".join(f"#{name} = :{name}" for name in again)
    instance.system.table.write(update(row, f"SET {sets}", **again))
    instance.system.run(130)
    assert job_of(instance, job)["status"] == "done"
    assert len(replays(instance)) == 3, "the job from its beginning does nothing anew"


def test_a_replay_waits_while_the_connector_is_disabled_and_goes_on_by_itself() -> None:
    instance = Instance()
    made = failing(instance)
    dead(instance, made, 2)
    instance.system.receiver(answer(200))
    instance.operator.ok("POST", f"/api/connectors/{made.install_id}/disable")
    job = instance.operator.ok("POST", path_of(made, "replay"))
    instance.system.run(600)
    assert (job_of(instance, job)["status"], job_of(instance, job)["done"]) == ("running", 0)
    assert job_of(instance, job)["reason"] == (
        f"the connector is disabled. Then: mesh connector enable {made.install_id}"
    )
    instance.operator.ok("POST", f"/api/connectors/{made.install_id}/enable")
    instance.system.run(120)
    shown = job_of(instance, job)
    assert (shown["status"], shown["reason"], len(replays(instance))) == ("done", None, 2)


def test_a_replay_of_a_connector_that_is_deleted_meanwhile_fails_and_says_so() -> None:
    instance = Instance()
    made = failing(instance)
    dead(instance, made, 1)
    job = instance.operator.ok("POST", path_of(made, "replay"))
    instance.operator.ok("DELETE", f"/api/connectors/{made.install_id}")
    instance.system.run(5)
    shown = job_of(instance, job)
    assert (shown["status"], shown["done"]) == ("failed", 0)
    assert "deleted" in shown["reason"]
    assert replays(instance) == []
    actions = {row["action"] for row in audited(instance.system.aws).values()}
    assert "outbox.replay_failed" in actions
    assert "outbox.replayed" not in actions, "the audit tells of no end that there was not"


def test_without_a_delivery_url_there_is_nowhere_to_send_to() -> None:
    instance = Instance()
    made = instance.install()
    asked(instance, made, 1)
    (entry,) = instance.system.rows(keys.ENTRY)
    settings = instance.operator.ok("GET", f"/api/connectors/{made.install_id}")
    taken = ("name", "engagement", "caps", "failure_replies", "version")
    body = {name: settings[name] for name in taken} | {"delivery_url": None}
    instance.operator.ok("PUT", f"/api/connectors/{made.install_id}", body)
    for path in (path_of(made, "replay"), f"/api/outbox/out_{entry['story']}/replay"):
        refused = instance.operator("POST", path)
        assert (refused.status, error_of(refused)) == (409, "state_conflict")
    assert instance.system.rows(keys.REPLAY) == []


def test_a_reply_whose_words_were_deleted_is_not_said_to_go_out_again() -> None:
    instance = Instance()
    made = failing(instance)
    dead(instance, made, 1)
    (entry,) = instance.system.rows(keys.ENTRY)
    instance.system.table.write(delete(keys.message(entry["pk"][5:], entry["reply_order"])))
    refused = instance.operator("POST", f"/api/outbox/out_{entry['story']}/replay")
    assert (refused.status, error_of(refused)) == (409, "state_conflict")
    assert instance.system.rows(keys.REPLAY) == []


def test_a_replay_that_waits_is_explained_with_what_it_waits_for() -> None:
    instance = Instance()
    made = instance.install()
    asked(instance, made, 1)
    (entry,) = instance.system.rows(keys.ENTRY)
    outbound_id = f"out_{entry['story']}"

    def next_of() -> str:
        return str(instance.viewer.ok("GET", f"/api/explain/{outbound_id}")["next"])

    assert next_of() == "nothing: the reply is delivered"
    instance.operator.ok("POST", f"/api/connectors/{made.install_id}/disable")
    instance.operator.ok("POST", f"/api/outbox/{outbound_id}/replay")
    assert next_of().endswith(f"Then: mesh connector enable {made.install_id}")
    instance.system.run(10)
    assert next_of().endswith(f"Then: mesh connector enable {made.install_id}")
    instance.operator.ok("POST", f"/api/connectors/{made.install_id}/enable")
    assert next_of().startswith("a replay was ordered, and is tried by ")
    instance.system.run(120)
    assert (next_of(), replays(instance)) == ("nothing: the reply is delivered", [outbound_id])


# ---- discard


def test_what_waits_is_discarded_and_nothing_of_it_is_sent_any_more() -> None:
    instance = Instance()
    other, made = instance.install(name="Other"), failing(instance)
    asked(instance, made, 3)
    for number in range(3):  # more behind each head
        instance.system.say(made, "again", f"n-{number}", conversation_key=f"room-{number}")
    instance.system.settle()
    asked(instance, other, 1, first=9)
    job = instance.operator.ok("POST", path_of(made, "discard"), {"status": "pending"})
    instance.system.settle()
    before = sent_to(instance, made)
    assert (job_of(instance, job)["status"], job_of(instance, job)["done"]) == ("done", 6)
    assert states(instance) == {"discarded": 6, "pending": 1}
    reasons = {r.get("state_reason") for r in instance.system.rows(keys.ENTRY)}
    assert reasons == {"operator", None}
    marked = [r for r in instance.system.rows("OUTBOX") if "due_pk" in r]
    assert len(marked) == 1, "only the other connector's conversation waits for anything"
    instance.system.receiver(answer(200))
    instance.system.run(7200, step_s=30)
    assert sent_to(instance, made) == before, "nothing of it was sent any more"
    assert states(instance) == {"discarded": 6, "delivered": 1}


def test_an_entry_whose_attempt_is_in_flight_is_discarded_after_it() -> None:
    instance = Instance()
    made = instance.install()
    jobs: list[dict[str, Any]] = []

    def orders_meanwhile(_: Call) -> Reply:
        instance.system.clock.forward(4)
        if not jobs:
            jobs.append(instance.operator.ok("POST", path_of(made, "discard")))
            assert instance.system.stack.poll_once("chores")
            assert job_of(instance, jobs[0])["status"] == "running"
        return answer(500)

    instance.system.receiver(orders_meanwhile)
    instance.system.say(made, "hello")
    instance.system.run(30)
    assert states(instance) == {"discarded": 1}
    assert job_of(instance, jobs[0])["status"] == "done"


def test_what_is_made_after_the_order_is_the_next_orders() -> None:
    instance = Instance()
    made = failing(instance)
    asked(instance, made, 1)
    job = instance.operator.ok("POST", path_of(made, "discard"))
    instance.system.clock.forward(1)
    instance.system.say(made, "hello", "m-9", conversation_key="room-9")
    assert instance.system.stack.poll_once("turns")
    instance.system.clock.forward(4)
    instance.system.settle()
    assert job_of(instance, job)["done"] == 1
    assert states(instance) == {"discarded": 1, "pending": 1}


# ---- what is refused


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("replay", {"status": "pending"}),
        ("replay", {"status": []}),
        ("replay", {"status": ["dead", "asleep"]}),
        ("replay", {"since": "yesterday"}),
        ("replay", {"since": "2026-11-30T00:00:00Z", "until": "2026-11-30T00:00:00Z"}),
        ("replay", {"limit": 1}),
        ("discard", {"status": "dead"}),
        ("discard", {"status": ["pending", "dead"]}),
        ("discard", {"until": 7}),
    ],
)
def test_what_cannot_be_ordered_is_refused_and_orders_nothing(
    action: str, body: dict[str, Any]
) -> None:
    instance = Instance()
    made = instance.install()
    refused = instance.operator("POST", path_of(made, action), body)
    assert (refused.status, error_of(refused)) == (422, "invalid_request")
    assert instance.system.rows(keys.JOB) == []


@pytest.mark.parametrize("action", ["replay", "discard"])
def test_only_an_operator_of_the_agent_orders(action: str) -> None:
    instance = Instance()
    mine, theirs = instance.install(), instance.install("ada")
    assert instance.viewer("POST", path_of(mine, action)).status == 403
    assert instance.operator("POST", path_of(theirs, action)).status == 404
    assert instance.system.rows(keys.JOB) == []
