"""Deleting what was said: with work in flight at each stage, and no word left anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mesh.engine.lease import take, taken
from mesh.engine.ledger import Ledger
from mesh.kernel.ids import ulid_ms
from mesh.kernel.limits import CLAIM_LEFT_MS, LISTS_LAG_MS, SECRETS_LEFT_MS, SLUG_KEPT_MS
from mesh.models.contract import ModelAnswer, ModelRequest
from mesh.models.offline import OfflineModel
from mesh.outbox.commit import Commit, Ending
from mesh.records.run import RunStatus, Step, StepKind
from mesh.storage import keys
from mesh.storage.conversations import read_head
from tests.contract.test_operator_api import Instance, audited
from tests.fakes.between import just_before_a_write_of
from tests.fakes.egress import Call, Reply, answer
from tests.fakes.model import words_of
from tests.fakes.operators import admin, error_of
from tests.fakes.system import Made

WORDS = "the heron flies at dusk"
"""What nobody but the two of them was to read."""
OTHER = "a fresh word"


def room(made: Made, key: str = "room-9") -> str:
    return keys.conversation_id(made.install_id, key)


def holding(instance: Instance, text: str) -> list[tuple[str, str]]:
    """The keys of all rows that hold `text`, in whatever attribute."""
    return sorted(
        (row["pk"], row["sk"]) for row in instance.system.aws.items() if text in repr(row)
    )


def kinds(instance: Instance, *prefixes: str) -> list[str]:
    """The sort keys' first parts of the rows whose partitions begin so, in order."""
    return sorted(
        row["sk"].partition("#")[0]
        for row in instance.system.aws.items()
        if row["pk"].startswith(prefixes)
    )


def ended(instance: Instance, job: Any, seconds: float = 180) -> Any:
    """The job after so much time, which must suffice."""
    instance.system.run(seconds, step_s=5)
    found = instance.admin.ok("GET", f"/api/jobs/{job['job_id']}")
    assert found["status"] == "done", found
    return found


def delete(instance: Instance, made: Made, key: str = "room-9") -> Any:
    response = instance.operator("DELETE", f"/api/conversations/{room(made, key)}")
    assert response.status == 202, response.body
    return response.json()


def deeds(instance: Instance, *actions: str) -> list[tuple[str, str]]:
    rows = sorted(audited(instance.system.aws).values(), key=lambda row: row["id"])
    return [(row["action"], row["target"]) for row in rows if row["action"] in actions]


def said(instance: Instance, made: Made, message_id: str, text: str = WORDS, **more: Any) -> str:
    response = instance.system.say(made, text, message_id, **more)
    assert response.status == 202, response.body
    told: str = response.json()["id"]
    return told.removeprefix("msg_")


# ---- a conversation


def test_a_conversation_is_erased_to_the_last_word_and_its_numbers_are_not_given_again() -> None:
    instance = Instance()
    made = instance.install()
    story = said(instance, made, "m-1")
    said(instance, made, "m-2", topology="group", display_name="Heron")
    instance.system.settle()
    assert len(holding(instance, WORDS)) == 4, "two messages, a step and a reply"
    job = delete(instance, made)
    done = ended(instance, job)
    assert (done["kind"], done["target"], done["done"]) == ("conversation.delete", room(made), 3)
    assert holding(instance, WORDS) == []
    assert holding(instance, "Heron") == []
    assert kinds(instance, "CONV#") == ["OUTBOX"]
    assert kinds(instance, "STORY#") == ["STEP", "STEP"], "bars against a worker that may live"
    assert [row["status"] for row in instance.system.rows("STEP#")] == ["uncertain"] * 2
    for minted in ("run_", "msg_", "out_", "req_"):
        assert instance.admin("GET", f"/api/explain/{minted}{story}").status == 404
    assert deeds(instance, "conversation.delete", "conversation.deleted") == [
        ("conversation.delete", room(made)),
        ("conversation.deleted", room(made)),
    ]
    said(instance, made, "m-3", OTHER)
    instance.system.settle()
    assert [each["sequence"] for each in instance.system.delivered()[-2:]] == [1, 2]
    assert WORDS not in instance.system.delivered()[-1]["body"]


def test_nothing_is_shown_from_the_order_on_however_slow_the_job_is() -> None:
    instance = Instance()
    made = instance.install()
    run_id = instance.answered(made)
    path = f"/api/conversations/{room(made)}"
    delete(instance, made)  # and no queue is polled
    for target in (path, f"{path}/messages", f"/api/runs/{run_id}", f"/api/explain/{run_id}"):
        response = instance.admin("GET", target)
        assert (response.status, error_of(response)) == (404, "not_found"), target
    assert instance.admin.ok("GET", "/api/agents/bob/conversations")["items"] == []
    by_ids = f"install_id={made.install_id}&conversation_key=room-9&message_id=m-1"
    assert instance.admin("GET", f"/api/explain?{by_ids}").status == 404
    assert instance.operator("DELETE", path).status == 404
    said(instance, made, "m-2", OTHER)
    assert [m["body"] for m in instance.viewer.ok("GET", f"{path}/messages")["items"]] == [OTHER]
    assert len(instance.admin.ok("GET", "/api/agents/bob/conversations")["items"]) == 1


def test_what_comes_while_a_deletion_runs_is_kept_and_answered_without_what_was_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = Instance()
    made = instance.install()
    heard: list[str] = []
    whole = OfflineModel.answer

    def listening(model: OfflineModel, request: ModelRequest, timeout_s: float) -> ModelAnswer:
        heard.append(words_of(request))
        return whole(model, request, timeout_s)

    monkeypatch.setattr(OfflineModel, "answer", listening)
    for number in range(30):  # more than a page of them
        said(instance, made, f"m-{number}", topology="group")
    job = delete(instance, made)
    said(instance, made, "m-new", OTHER)
    done = ended(instance, job)
    assert done["done"] == 30
    assert holding(instance, WORDS) == []
    (words,) = heard
    assert OTHER in words
    assert WORDS not in words
    assert kinds(instance, "CONV#") == ["ENTRY", "MSG", "MSG", "ORDER", "OUTBOX"]
    (delivered,) = instance.system.delivered()[-1:]
    assert (delivered["in_reply_to"], delivered["sequence"]) == ("m-new", 1)
    found = instance.viewer.ok("GET", f"/api/conversations/{room(made)}/messages")["items"]
    assert [each["role"] for each in found] == ["reply", "utterance"]


def test_a_retry_of_a_deleted_message_still_gets_its_first_answer() -> None:
    instance = Instance()
    made = instance.install()
    first = instance.system.say(made, WORDS).json()
    ended(instance, delete(instance, made))
    again = instance.system.say(made, WORDS)
    assert (again.status, again.json()) == (200, first | {"status": "duplicate"})
    (claim,) = instance.system.rows("CLAIM")
    assert claim["ttl"] == (ulid_ms(first["id"][4:]) + CLAIM_LEFT_MS) // 1000


def test_runs_that_wait_are_cancelled_and_nothing_of_them_is_sent() -> None:
    instance = Instance()
    made = instance.install()
    before = len(instance.system.calls())
    for number in range(3):
        said(instance, made, f"m-{number}")
    job = delete(instance, made)
    ended(instance, job)
    assert holding(instance, WORDS) == []
    assert len(instance.system.calls()) == before
    assert kinds(instance, "CONV#", "STORY#") == []


@pytest.mark.parametrize("job_runs", [True, False])
@pytest.mark.parametrize("where", ["before its step", "while it thinks"])
def test_a_worker_that_is_at_a_deleted_message_leaves_no_word(
    monkeypatch: pytest.MonkeyPatch, where: str, job_runs: bool
) -> None:
    """The order alone comes between, or the whole job, and the worker stands still meanwhile."""
    instance = Instance()
    made = instance.install()
    said(instance, made, "m-1")
    jobs: list[Any] = []

    def meanwhile() -> None:
        if not jobs:
            jobs.append(delete(instance, made))
            if job_runs:  # in no time: a lease that has to be renewed would be found lost
                instance.system.stack.poll_once("chores")
                assert holding(instance, WORDS) == []

    think, begin = OfflineModel.answer, Ledger.begin

    def slow_think(model: OfflineModel, request: ModelRequest, timeout_s: float) -> ModelAnswer:
        meanwhile()
        return think(model, request, timeout_s)

    def slow_begin(ledger: Ledger, number: int, kind: StepKind, now_ms: int) -> Step:
        meanwhile()
        return begin(ledger, number, kind, now_ms)

    if where == "while it thinks":
        monkeypatch.setattr(OfflineModel, "answer", slow_think)
    else:
        monkeypatch.setattr(Ledger, "begin", slow_begin)
    before = len(instance.system.calls())
    instance.system.settle()
    ended(instance, jobs[0])
    assert holding(instance, WORDS) == []
    assert len(instance.system.calls()) == before, "no reply is made"
    assert kinds(instance, "CONV#") == []


def test_an_attempt_in_flight_ends_before_its_entry_goes_and_no_other_begins() -> None:
    instance = Instance()
    made = instance.install()
    jobs: list[Any] = []
    before = len(instance.system.calls())

    def failing(_: Call) -> Reply:
        if not jobs:
            jobs.append(delete(instance, made))
            instance.system.stack.poll_once("chores")
            assert kinds(instance, "CONV#") == ["ENTRY", "ORDER", "OUTBOX"], "the words went first"
        return answer(500)

    instance.system.receiver(failing)
    said(instance, made, "m-1")
    instance.system.settle()
    ended(instance, jobs[0], 600)
    assert len(instance.system.calls()) == before + 1
    assert holding(instance, WORDS) == []
    assert kinds(instance, "CONV#") == ["OUTBOX"]
    (outbox,) = instance.system.rows("OUTBOX")
    assert (outbox["seq"], outbox["head"], "due_pk" in outbox) == (1, 2, False)


# ---- an actor


def delete_actor(instance: Instance, made: Made, actor: str) -> Any:
    actor_id = keys.actor_id(made.install_id, actor)
    response = instance.operator("DELETE", f"/api/agents/bob/actors/{actor_id}")
    assert response.status == 202, response.body
    return response.json()


def test_what_an_actor_said_is_erased_in_every_conversation_and_nothing_of_others() -> None:
    instance = Instance()
    made, other = instance.install(), instance.install()
    for key in ("a", "b"):
        said(instance, made, "m-1", conversation_key=key)
        said(instance, made, "m-2", OTHER, conversation_key=key, actor_id="u-1")
        said(instance, made, "m-3", conversation_key=key, topology="group")
    said(instance, other, "m-1", "the same name elsewhere")
    instance.system.settle()
    instance.system.clock.forward(24 * 3600)
    said(instance, made, "m-4", conversation_key="b")  # and its run waits
    job = delete_actor(instance, made, "u-42")
    done = ended(instance, job)
    assert (done["kind"], done["done"]) == ("actor.delete", 5)
    # What the agent said to another quotes nobody but him: the offline model repeats its message.
    assert holding(instance, WORDS) == []
    assert len(holding(instance, OTHER)) == 6, "two messages, two steps, two replies"
    assert len(holding(instance, "the same name elsewhere")) == 3
    for key in ("a", "b"):
        path = f"/api/conversations/{room(made, key)}"
        items = instance.viewer.ok("GET", f"{path}/messages")["items"]
        assert [each["actor_id"] for each in items] == [None, "u-1"]
    assert deeds(instance, "actor.delete", "actor.deleted") == [
        ("actor.delete", job["target"]),
        ("actor.deleted", job["target"]),
    ]
    said(instance, made, "m-5", conversation_key="a")
    instance.system.settle()
    assert instance.system.delivered()[-1]["sequence"] == 3, "1 was theirs, and is not given again"


def test_what_an_actor_says_after_the_order_is_kept() -> None:
    instance = Instance()
    made = instance.install()
    said(instance, made, "m-1")
    job = delete_actor(instance, made, "u-42")
    instance.system.clock.forward(1)
    said(instance, made, "m-2", OTHER)
    done = ended(instance, job)
    assert done["done"] == 1
    assert holding(instance, WORDS) == []
    assert instance.system.delivered()[-1]["in_reply_to"] == "m-2"


def test_the_job_of_an_actor_who_said_nothing_ends_with_nothing_done() -> None:
    instance = Instance()
    made = instance.install()
    done = ended(instance, delete_actor(instance, made, "nobody"))
    assert done["done"] == 0
    for target in ("/api/agents/ada/actors/act_" + "0" * 26, "/api/agents/bob/actors/u-42"):
        assert instance.operator("DELETE", target).status == 404


def test_an_actors_reply_in_flight_ends_before_its_entry_goes() -> None:
    instance = Instance()
    made = instance.install()
    jobs: list[Any] = []
    before = len(instance.system.calls())

    def failing(_: Call) -> Reply:
        if not jobs:
            jobs.append(delete_actor(instance, made, "u-42"))
            instance.system.clock.forward(LISTS_LAG_MS / 1000 + 1)
            instance.system.stack.poll_once("chores")
            instance.system.stack.poll_once("chores")
            assert holding(instance, WORDS) != []
        return answer(500)

    instance.system.receiver(failing)
    said(instance, made, "m-1")
    instance.system.settle()
    ended(instance, jobs[0], 600)
    assert len(instance.system.calls()) == before + 1
    assert holding(instance, WORDS) == []
    assert kinds(instance, "CONV#") == ["ORDER", "OUTBOX"]


# ---- an install


def test_a_deleted_install_forgets_what_was_said_and_tells_callers_that_it_is_closed() -> None:
    instance = Instance()
    made, other = instance.install(engagement={"allow_actors": ["u-42"]}), instance.install()
    said(instance, made, "m-1")
    said(instance, other, "m-1", OTHER)
    instance.system.settle()
    said(instance, made, "m-2")
    response = instance.operator("DELETE", f"/api/connectors/{made.install_id}")
    assert response.status == 204
    before = len(instance.system.calls())
    done = ended(instance, {"job_id": response.header("X-Mesh-Job")}, 900)
    assert (done["kind"], done["target"]) == ("connector.delete", made.install_id)
    assert holding(instance, WORDS) == []
    assert len(holding(instance, OTHER)) == 3
    assert len(instance.system.calls()) == before, "nothing of it was sent any more"
    assert kinds(instance, f"INS#{made.install_id}") == ["DELIVERY", "SECRET", "SETTINGS"]
    assert kinds(instance, f"CAPS#{made.install_id}") == []
    assert kinds(instance, f"CONV#{room(made)}") == ["OUTBOX"]
    assert holding(instance, "'u-42'") == holding(instance, OTHER)[:1] + [
        (f"STORY#{row['story']}", "STORY")
        for row in instance.system.rows("STORY")
        if row["install_id"] == other.install_id
    ]
    assert deeds(instance, "connector.delete", "connector.deleted") == [
        ("connector.delete", made.install_id),
        ("connector.deleted", made.install_id),
    ]
    closed = instance.system.say(made, "hello", "m-3")
    assert (closed.status, closed.json()["error"]["code"]) == (403, "connector_disabled")
    instance.system.clock.forward(SECRETS_LEFT_MS / 1000)
    assert instance.system.say(made, "hello", "m-3").status == 401
    last = {row.get("ttl") for row in instance.system.aws.items() if made.install_id in row["pk"]}
    assert None not in last


def test_a_run_that_was_in_flight_when_its_install_went_sends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = Instance()
    made = instance.install()
    said(instance, made, "m-1")
    think = OfflineModel.answer

    def slow(model: OfflineModel, request: ModelRequest, timeout_s: float) -> ModelAnswer:
        response = instance.operator("DELETE", f"/api/connectors/{made.install_id}")
        assert response.status == 204
        return think(model, request, timeout_s)

    monkeypatch.setattr(OfflineModel, "answer", slow)
    before = len(instance.system.calls())
    instance.system.settle()
    (entry,) = instance.system.rows("ENTRY#")
    assert (entry["state"], entry["state_reason"]) == ("dead", "install_deleted")
    instance.system.run(180, step_s=5)
    assert len(instance.system.calls()) == before
    assert holding(instance, WORDS) == []


# ---- an agent


def paused(instance: Instance, slug: str = "bob") -> Any:
    return instance.admin.ok("POST", f"/api/agents/{slug}/pause")


def test_only_a_paused_agent_is_deleted_and_only_by_an_admin() -> None:
    instance = Instance()
    response = instance.admin("DELETE", "/api/agents/bob")
    assert (response.status, error_of(response)) == (409, "state_conflict")
    assert "mesh agent pause bob" in response.json()["error"]["message"]
    paused(instance)
    assert instance.operator("DELETE", "/api/agents/bob").status == 403
    assert instance.admin("DELETE", "/api/agents/nobody").status == 404


def test_a_deleted_agent_leaves_a_tombstone_its_outboxes_and_its_audit() -> None:
    instance = Instance()
    instance.admin.ok("PUT", "/api/agents/bob/vault/TOKEN", {"value": "s3cret"})
    bob = instance.admin.ok("GET", "/api/agents/bob")
    taken = {name: bob[name] for name in ("limits", "version")}
    bob = instance.admin.ok(
        "PUT", "/api/agents/bob", {**taken, "instructions": WORDS, "name": "Robert the Bold"}
    )
    made = [instance.install(), instance.install()]
    ours = instance.install("ada")
    for each in made:
        said(instance, each, "m-1")
    said(instance, ours, "m-1", OTHER)
    instance.system.settle()
    said(instance, made[0], "m-2", conversation_key="another")
    paused(instance)
    instance.system.settle()
    job = instance.admin.ok("DELETE", "/api/agents/bob")
    assert job["target"] == "bob"
    for target in ("/api/agents/bob", "/api/agents/bob/connectors", "/api/agents/bob/vault"):
        assert instance.admin("GET", target).status == 404
    assert [a["slug"] for a in instance.admin.ok("GET", "/api/agents")["items"]] == ["ada"]
    assert instance.viewer.ok("GET", "/api/agents")["items"] == []
    assert instance.admin("POST", "/api/agents/bob/resume").status == 404
    done = ended(instance, job)
    assert (done["kind"], done["done"]) == ("agent.delete", 5)
    assert holding(instance, WORDS) == []
    assert holding(instance, "Robert") == []
    assert len(holding(instance, OTHER)) == 3
    assert kinds(instance, f"AGENT#{bob['agent_id']}") == ["SETTINGS"]
    (grave,) = [
        row
        for row in instance.system.rows("SETTINGS")
        if row["pk"].startswith("AGENT#") and row["agent_id"] == bob["agent_id"]
    ]
    assert (grave["status"], grave["name"], grave["instructions"]) == ("deleted", "", "")
    theirs = tuple(f"CONV#{room(each, key)}" for each in made for key in ("room-9", "another"))
    assert kinds(instance, *theirs) == ["OUTBOX", "OUTBOX"]
    told = deeds(instance, "agent.delete", "connector.delete", "agent.deleted")
    assert sorted(told[:-1]) == sorted(  # of one moment, and so in no order
        [("agent.delete", "bob"), *(("connector.delete", each.install_id) for each in made)]
    )
    assert told[-1] == ("agent.deleted", "bob")
    assert instance.system.say(made[0], "hello", "m-9").status == 403


def test_a_slug_is_free_again_after_ninety_days_and_inherits_nothing() -> None:
    instance = Instance()
    paused(instance)
    job = instance.admin.ok("DELETE", "/api/agents/bob")
    again = instance.admin("POST", "/api/agents", {"slug": "bob"})
    assert (again.status, error_of(again)) == (409, "already_exists")
    ended(instance, job)
    instance.system.clock.forward(SLUG_KEPT_MS / 1000 - 3600)
    api = admin(instance.system)
    assert api("POST", "/api/agents", {"slug": "bob"}).status == 409
    instance.system.clock.forward(3601)
    fresh = api.ok("POST", "/api/agents", {"slug": "bob"})
    assert api.ok("GET", "/api/agents/bob")["agent_id"] == fresh["agent_id"]
    for row in instance.system.rows("opr_"):
        assert fresh["agent_id"] not in repr(row)


# ---- a reply that is committed at the very moment of the order


def answered_now(instance: Instance, made: Made) -> Callable[[], None]:
    """Ends the run that waits with a reply, as a worker does that was at it before the order."""
    system, conversation_id = instance.system, room(made)

    def answer() -> None:
        head = read_head(system.table, conversation_id)
        assert head.pending is not None
        until = system.clock.now_ms() + 60_000
        mine = taken(system.ids, system.clock, head.pending, until)
        take(system.table, conversation_id, head.pending, mine)
        ending = Ending(RunStatus.COMPLETED, None, lambda *_: WORDS.encode())
        Commit(system.table, system.clock, system.random, 90).end(head, mine, ending)

    return answer


def test_what_is_answered_at_the_very_moment_of_the_order_is_deleted_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = Instance()
    made = instance.install()
    said(instance, made, "m-1")
    answer = answered_now(instance, made)
    done = just_before_a_write_of(monkeypatch, keys.order(room(made)), answer)
    job = delete(instance, made)
    assert done
    assert len(holding(instance, WORDS)) == 2, "the message, and its reply"
    ended(instance, job)
    assert holding(instance, WORDS) == []
    assert kinds(instance, "CONV#") == ["OUTBOX"]
    assert len(deeds(instance, "conversation.delete")) == 1


@pytest.mark.parametrize("what", ["connector", "agent"])
def test_what_is_answered_just_before_its_conversation_is_forgotten_goes_with_it(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    instance = Instance()
    made = instance.install()
    said(instance, made, "m-1")
    if what == "agent":
        instance.admin.ok("POST", "/api/agents/bob/pause")
        job = instance.admin("DELETE", "/api/agents/bob").json()
    else:
        response = instance.admin("DELETE", f"/api/connectors/{made.install_id}")
        job = {"job_id": response.header("X-Mesh-Job")}
    instance.system.clock.forward(LISTS_LAG_MS / 1000 + 1)
    answer = answered_now(instance, made)
    done = just_before_a_write_of(monkeypatch, keys.order(room(made)), answer)
    while instance.system.stack.poll_once("chores"):
        pass
    assert done
    ended(instance, job)
    assert holding(instance, WORDS) == []
    assert kinds(instance, "CONV#") == ["OUTBOX"]
