"""A deletion whose worker dies, before or after any AWS call, or that two workers make at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from infra.local.aws import Faults, Killed, Kind
from mesh.jobs.worker import JobWorker
from mesh.kernel.limits import JOB_PAGE_ROWS, LISTS_LAG_MS
from mesh.storage import keys
from tests.fakes.egress import answer
from tests.fakes.operators import Api, admin
from tests.fakes.system import Made, System

WORDS = "the heron flies at dusk"
OTHER = "a fresh word"
WORKER = "chore_worker"


@dataclass
class Room:
    """A system with a conversation that was answered, one reply that waits, and a run that waits,
    and another actor's word in it."""

    system: System
    api: Api
    made: Made

    @property
    def conversation(self) -> str:
        return keys.conversation_id(self.made.install_id, "room-9")

    def holding(self, text: str) -> list[tuple[str, str]]:
        rows = self.system.aws.items()
        return sorted((row["pk"], row["sk"]) for row in rows if text in repr(row))

    def kinds(self, *prefixes: str) -> list[str]:
        rows = self.system.aws.items()
        return sorted(row["sk"].partition("#")[0] for row in rows if row["pk"].startswith(prefixes))

    def ended(self) -> list[str]:
        rows = self.system.aws.items()
        actions = [row["action"] for row in rows if row["pk"].startswith("AUDIT#")]
        return sorted(each for each in actions if each.endswith("deleted"))


def room(faults: Faults | None = None) -> Room:
    system = System(faults=faults)
    with system.aws.without_faults():
        api, made = admin(system), system.make_install()
        system.say(made, WORDS, "m-1")
        system.settle()
        system.receiver(answer(503))
        system.say(made, WORDS, "m-2")
        system.say(made, OTHER, "m-3", actor_id="u-1", topology="group")
        system.settle()
        system.say(made, WORDS, "m-4")
        system.clock.forward(30)  # the lists show it, and every clock is past it
    return Room(system, api, made)


def order_conversation(room: Room) -> None:
    room.api.ok("DELETE", f"/api/conversations/{room.conversation}")


def order_actor(room: Room) -> None:
    actor = keys.actor_id(room.made.install_id, "u-42")
    room.api.ok("DELETE", f"/api/agents/ada/actors/{actor}")


def order_install(room: Room) -> None:
    room.api.ok("DELETE", f"/api/connectors/{room.made.install_id}")


def order_agent(room: Room) -> None:
    room.api.ok("PUT", "/api/agents/ada/vault/TOKEN", {"value": "kept"})
    room.api.ok("POST", "/api/agents/ada/pause")
    room.api.ok("DELETE", "/api/agents/ada")


def check_conversation(room: Room) -> None:
    assert room.kinds("CONV#") == ["OUTBOX"]
    assert room.holding(OTHER) == []
    assert room.ended() == ["conversation.deleted"]


def check_actor(room: Room) -> None:
    assert room.kinds("CONV#") == ["MSG", "ORDER", "OUTBOX"]
    assert len(room.holding(OTHER)) == 1
    assert room.ended() == ["actor.deleted"]


def check_install(room: Room) -> None:
    assert room.kinds("CONV#") == ["OUTBOX"]
    assert room.kinds(f"CAPS#{room.made.install_id}") == []
    kept = [
        row for row in room.system.rows("SE") if row["pk"] == keys.install(room.made.install_id)
    ]
    assert ["ttl" in row for row in kept] == [True, True], "the settings, and a secret"
    assert room.ended() == ["connector.deleted"]


def check_agent(room: Room) -> None:
    assert room.kinds("CONV#") == ["OUTBOX"]
    assert room.kinds(f"CAPS#{room.made.install_id}") == []
    assert room.kinds("AGENT#") == ["SETTINGS"]
    assert room.holding("Be brief") == []
    assert room.ended() == ["agent.deleted"]


Order = Callable[[Room], None]

DELETIONS: dict[str, tuple[Order, Order]] = {
    "conversation": (order_conversation, check_conversation),
    "actor": (order_actor, check_actor),
    "install": (order_install, check_install),
    "agent": (order_agent, check_agent),
}
EACH = pytest.mark.parametrize("what", DELETIONS)


def ordered(what: str, faults: Faults | None = None) -> Room:
    made = room(faults)
    with made.system.aws.without_faults():
        DELETIONS[what][0](made)
        made.system.clock.forward(LISTS_LAG_MS / 1000 + 1)
    return made


def finish(room: Room, what: str) -> None:
    """Lets sweeps and rings do what is left, and looks at what stands then."""
    system = room.system
    system.run(1500, step_s=60)
    (job,) = system.rows("JOB")
    assert job["status"] == "done", job
    assert room.holding(WORDS) == []
    bars = [row for row in system.rows("STEP#") if room.holding(row["pk"])]
    assert all(row["status"] == "uncertain" for row in bars)
    assert room.kinds("STORY#").count("ATTEMPTS") == 0
    (outbox,) = system.rows("OUTBOX")
    assert outbox["seq"] >= 2, "the run that waited may have been answered before its turn to go"
    assert (outbox["head"], outbox.get("due_pk")) == (outbox["seq"] + 1, None)
    DELETIONS[what][1](room)


def calls_of(what: str) -> int:
    """How many calls the worker makes when nothing disturbs it."""
    found = ordered(what)
    with found.system.aws.recording() as calls:
        while found.system.stack.poll_once("chores"):
            pass
    count = sum(call.caller == WORKER for call in calls)
    finish(found, what)
    return count


@EACH
def test_a_deletion_that_dies_at_any_call_is_ended_by_the_next_worker(
    what: str, exhaustive: bool
) -> None:
    count = calls_of(what)
    assert count > 30
    for number in range(1, count + 1, 1 if exhaustive else count // 5):
        for when in ("before", "after"):
            found = ordered(what)
            found.system.aws.kill_at(number, when, WORKER)
            died = False
            try:
                while found.system.stack.poll_once("chores"):
                    pass
            except Killed:
                died = True
            found.system.aws.spare()
            try:
                finish(found, what)
            except BaseException as error:
                error.add_note(f"{what}: killed {when} call {number} of {count} ({died})")
                raise
            assert died, f"nobody died {when} call {number}"


@EACH
@pytest.mark.parametrize("seed", range(3))
def test_a_deletion_among_ordinary_faults_ends_once(what: str, seed: int) -> None:
    rates = {Kind.LOST: 0.1, Kind.CONFLICT: 0.1, Kind.THROTTLE: 0.05}
    found = ordered(what, Faults(seed, rates=rates))
    for _ in range(200):
        with suppress(BotoCoreError, ClientError):  # the poller's own
            found.system.stack.poll_once("chores")
        found.system.clock.forward(10)
        if found.system.rows("JOB")[0]["status"] == "done":
            break
        if found.system.clock.now_ms() // 60_000 % 2 == 0:
            found.system.stack.tick()
    with found.system.aws.without_faults():
        finish(found, what)


@EACH
def test_two_workers_at_one_deletion_end_it_once(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a step and the keeping of its place another worker makes the whole job."""
    found = ordered(what)
    kept = JobWorker._kept  # the one line between a step and its place
    other: list[Any] = []

    def late(worker: JobWorker, *step: Any) -> Any:
        if not other:
            other.append(step[0].job_id)
            worker.work(step[0].job_id, found.system.clock.now_ms() + 90_000)
        return kept(worker, *step)

    monkeypatch.setattr(JobWorker, "_kept", late)
    while found.system.stack.poll_once("chores"):
        pass
    monkeypatch.setattr(JobWorker, "_kept", kept)
    assert other
    finish(found, what)


def test_a_long_conversation_is_erased_page_by_page() -> None:
    found = room()
    for number in range(3 * JOB_PAGE_ROWS):
        found.system.say(found.made, WORDS, f"g-{number}", topology="group")
    found.system.clock.forward(30)
    order_conversation(found)
    with found.system.aws.recording() as calls:
        found.system.stack.poll_once("chores")
    assert found.holding(WORDS) == []
    pages = sum(call.operation == "Query" for call in calls)
    assert pages > 6
    finish(found, "conversation")
