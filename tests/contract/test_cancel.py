"""Cancelling a run: it ends once, makes no reply, and lets the next go on."""

from __future__ import annotations

from typing import Any

import pytest

from infra.local.aws import Faults, Kind
from mesh.models.contract import ModelAnswer, ModelRequest
from mesh.models.offline import OfflineModel
from mesh.storage import keys
from mesh.storage.writes import put
from tests.contract.test_operator_api import Instance, audited
from tests.fakes.operators import admin, error_of
from tests.fakes.system import System


def asked(instance: Instance, made: Any, message_id: str) -> str:
    """A message whose run waits; the run's id."""
    run_id: str = instance.system.say(made, "hello", message_id).json()["run_id"]
    return run_id


def cancels(instance: Instance) -> list[dict[str, Any]]:
    return [r for r in audited(instance.system.aws).values() if r["action"] == "run.cancel"]


def test_a_queued_run_is_cancelled_and_the_next_is_answered() -> None:
    instance = Instance()
    made = instance.install()
    first, second = asked(instance, made, "m-1"), asked(instance, made, "m-2")
    before = len(instance.system.calls())
    ended = instance.operator.ok("POST", f"/api/runs/{first}/cancel")
    assert (ended["status"], ended["reason"], ended["outbound_id"]) == (
        "cancelled",
        "operator",
        None,
    )
    assert ended["started_at"] is None, "nobody had begun it"
    (row,) = cancels(instance)
    assert (row["target"], row["agent_id"] is not None) == (first, True)
    instance.system.settle()
    replies = instance.system.delivered()[before:]
    assert [(r["sequence"], r["in_reply_to"]) for r in replies] == [(1, "m-2")]
    assert instance.viewer.ok("GET", f"/api/runs/{second}")["status"] == "completed"
    story = instance.viewer.ok("GET", f"/api/explain/{first}")
    assert [event["kind"] for event in story["events"]][-1] == "run_ended"
    assert story["next"] == "nothing: the run ended cancelled and made no reply"


def test_the_last_waiting_run_takes_the_conversations_mark_with_it() -> None:
    instance = Instance()
    run_id = asked(instance, instance.install(), "m-1")
    instance.operator.ok("POST", f"/api/runs/{run_id}/cancel")
    (order,) = instance.system.rows("ORDER")
    assert order["pending"] == 0
    assert "due_pk" not in order
    assert instance.system.rows("PEND#") == []


def test_a_run_behind_the_head_is_cancelled_in_its_place() -> None:
    instance = Instance()
    made = instance.install()
    first, second, third = (asked(instance, made, f"m-{n}") for n in range(3))
    instance.operator.ok("POST", f"/api/runs/{second}/cancel")
    instance.system.settle()
    states = [instance.viewer.ok("GET", f"/api/runs/{r}")["status"] for r in (first, second, third)]
    assert states == ["completed", "cancelled", "completed"]


def test_a_run_that_has_ended_is_not_cancelled() -> None:
    instance = Instance()
    made = instance.install()
    done = instance.answered(made)
    queued = asked(instance, made, "m-2")
    instance.operator.ok("POST", f"/api/runs/{queued}/cancel")
    for run_id in (done, queued):
        again = instance.operator("POST", f"/api/runs/{run_id}/cancel")
        assert (again.status, error_of(again)) == (409, "state_conflict")
    assert len(cancels(instance)) == 1
    heard = instance.system.say(made, "hello all", "m-3", topology="group").json()
    no_run = instance.operator("POST", f"/api/runs/{heard['id'].replace('msg_', 'run_')}/cancel")
    assert no_run.status == 404


def test_only_an_operator_of_the_agent_cancels() -> None:
    instance = Instance()
    mine = asked(instance, instance.install(), "m-1")
    theirs = asked(instance, instance.install("ada"), "m-1")
    assert instance.viewer("POST", f"/api/runs/{mine}/cancel").status == 403
    assert instance.operator("POST", f"/api/runs/{theirs}/cancel").status == 404
    assert cancels(instance) == []


def test_a_worker_that_is_at_it_loses_the_run_and_leaves_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = Instance()
    made = instance.install()
    run_id = asked(instance, made, "m-1")
    seen: list[dict[str, Any]] = []
    whole = OfflineModel.answer

    def cancelled_meanwhile(
        model: OfflineModel, request: ModelRequest, timeout_s: float
    ) -> ModelAnswer:
        if not seen:
            seen.append(instance.viewer.ok("GET", f"/api/runs/{run_id}"))
            seen.append(instance.operator.ok("POST", f"/api/runs/{run_id}/cancel"))
        return whole(model, request, timeout_s)

    monkeypatch.setattr(OfflineModel, "answer", cancelled_meanwhile)
    before = len(instance.system.calls())
    instance.system.settle()
    assert [each["status"] for each in seen] == ["running", "cancelled"]
    assert seen[1]["started_at"] is not None
    assert instance.viewer.ok("GET", f"/api/runs/{run_id}")["status"] == "cancelled"
    assert len(instance.system.calls()) == before, "no reply is made"
    assert instance.system.rows("ENTRY#") == []
    later = asked(instance, made, "m-2")
    instance.system.settle()
    assert instance.viewer.ok("GET", f"/api/runs/{later}")["status"] == "completed"


@pytest.mark.parametrize("seed", range(6))
def test_a_cancelling_whose_answers_are_lost_is_done_once(seed: int) -> None:
    faults = Faults(seed, rates={Kind.LOST: 0.2, Kind.CONFLICT: 0.2, Kind.THROTTLE: 0.1})
    system = System(seed=seed, faults=faults)
    made = system.make_install()
    with system.aws.without_faults():
        api = admin(system)
        first = system.say(made, "hello", "m-1").json()["run_id"]
        second = system.say(made, "hello", "m-2").json()["run_id"]
    for _ in range(20):
        response = api("POST", f"/api/runs/{first}/cancel")
        if response.status in (200, 409):
            break
        assert response.status == 503, response.body
    with system.aws.without_faults():
        assert api.ok("GET", f"/api/runs/{first}")["status"] == "cancelled"
        (order,) = system.rows("ORDER")
        assert order["pending"] == 1
        system.run(180)
        assert api.ok("GET", f"/api/runs/{second}")["status"] == "completed"
    done = [r for r in audited(system.aws).values() if r["action"] == "run.cancel"]
    assert len(done) == 1


def test_a_step_that_was_under_way_when_its_run_ended_is_told_as_uncertain() -> None:
    instance = Instance()
    run_id = asked(instance, instance.install(), "m-1")
    story = run_id.removeprefix("run_")
    step = {"number": 1, "kind": "model", "status": "running", "lease_no": 1, "started_at": 1}
    instance.system.table.write(put(keys.step(story, 1), step))
    running = instance.viewer.ok("GET", f"/api/runs/{run_id}")
    instance.operator.ok("POST", f"/api/runs/{run_id}/cancel")
    ended = instance.viewer.ok("GET", f"/api/runs/{run_id}")
    assert [run["steps"][0]["status"] for run in (running, ended)] == ["running", "uncertain"]
