"""Jobs go on whatever dies: each step may be made twice, and what it came to counts once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from infra.local.aws import Killed
from mesh.app import Handler, Ports, build
from mesh.control.audit import AuditTrail, Cause
from mesh.control.installs import Installs
from mesh.control.jobs import Jobs
from mesh.control.rows import item_of
from mesh.jobs.contract import Kind, Progress
from mesh.jobs.entries import DiscardEntries, ReplayEntries
from mesh.jobs.worker import JobWorker
from mesh.kernel.clock import DAY_MS, HOUR_MS
from mesh.kernel.errors import Failed
from mesh.kernel.limits import CHORES_STOP_BEFORE_LIMIT_MS, JOBS_KEPT_DAYS
from mesh.records.job import Job, JobKind
from mesh.records.outbox import Chosen, EntryState
from mesh.storage import keys
from mesh.storage.doorbells import answer_doorbells
from mesh.storage.keys import Key
from mesh.storage.queues import Bell, ChoreBell
from mesh.storage.writes import put, update
from tests.fakes.egress import answer
from tests.simulation.direct import Site
from tests.simulation.world import World

WORKER = "chore_worker"
STEPS = 4
SOON_S = 400.0
"""Within so much simulated time a job is done after one death: a redelivery, or two sweeps."""


@dataclass
class Toy:
    """A kind of job: each step writes its number down, as often as it is made."""

    ports: Ports
    ended = "toy.ended"
    before_each: Callable[[int], None] = lambda _: None
    made: list[int] = field(default_factory=list)

    def step(self, job: Job, _stop_at_ms: int) -> Progress:
        number = int(job.place.get("number", 0)) + 1
        self.before_each(number)
        self.made.append(number)
        self.ports.table.write(put(Key("TOY", f"{number}"), {"number": number}))
        place = None if number == STEPS else {"number": number}
        return Progress(place=place, done=1)


@dataclass
class Works:
    """A world whose chore worker knows one kind of job, and a job of it."""

    kind: Callable[[Ports], Kind] = Toy
    before_each: Callable[[int], None] = lambda _: None
    toys: list[Toy] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(watching=False, handler=self._handler)
        self.jobs = Jobs(self.world.table, self.world.clock, self.world.ids)

    def _handler(self, name: str, ports: Ports) -> Handler:
        if name != WORKER:
            return build(name, ports)
        made = self.kind(ports)
        if isinstance(made, Toy):
            made.before_each = self.before_each
            self.toys.append(made)
        worker = JobWorker(
            Jobs(ports.table, ports.clock, ports.ids),
            {JobKind.REPLAY_ENTRIES: made},
            table=ports.table,
            bell=ports.bell,
            clock=ports.clock,
            audit=AuditTrail(ports.table, ports.clock, ports.ids, 400),
            log=ports.log(name),
        )
        return answer_doorbells(
            ChoreBell,
            lambda bell, stop_at: worker.work(bell.chore_id, stop_at),
            ports.clock,
            ports.log(name),
            CHORES_STOP_BEFORE_LIMIT_MS,
        )

    def order(self, wanted: dict[str, Any] | None = None) -> Job:
        world = self.world
        job = self.jobs.new(
            JobKind.REPLAY_ENTRIES,
            world.made.install_id,
            Cause("opr_test", "req_test"),
            agent_id=world.agent.agent_id,
            wanted=wanted,
        )
        world.table.write(self.jobs.order(job))
        Bell(world.clients.sqs, world.settings.queue_urls, world.ids).chore(job.job_id)
        return job

    def now(self, job: Job) -> Job:
        found = self.jobs.find(job.job_id)
        assert found is not None
        return found

    def ends(self, action: str) -> int:
        """How many audit rows tell of the job's end."""
        return sum(row.get("action") == action for row in self.world.rows().values())

    def check(self, job: Job) -> None:
        """The job was done, once."""
        stands = self.now(job)
        assert (stands.status, stands.done, stands.due_pk) == ("done", STEPS, None)
        assert self.ends(Toy.ended) == 1
        rows = sorted(sk for pk, sk in self.world.rows() if pk == "TOY")
        assert rows == [f"{number}" for number in range(1, STEPS + 1)]

    @contextmanager
    def dying(self, index: int, when: str) -> Iterator[None]:
        """The chore worker dies at its call of that number (from 1)."""
        count = 0

        def before(site: Site) -> None:
            nonlocal count
            count += site.function == WORKER
            if site.function == WORKER and count == index and when == "before":
                raise Killed(f"before {index}")

        def after(site: Site) -> None:
            if site.function == WORKER and count == index and when == "after":
                raise Killed(f"after {index}")

        self.world.hooks.on_before, self.world.hooks.on_after = before, after
        yield
        assert self.world.kills == 1, f"nobody died {when} {index}"


def test_a_job_is_kept_from_its_end_on_and_never_goes_before() -> None:
    works = Works()
    job = works.order()
    key = keys.job(job.job_id.removeprefix("job_"))
    assert "ttl" not in works.world.rows()[key]
    works.world.run(60)
    works.check(job)
    ended = works.now(job).ended_at
    assert ended is not None
    assert works.world.rows()[key]["ttl"] == (ended + JOBS_KEPT_DAYS * DAY_MS) // 1000


def calls_of(works: Works, job_of: Callable[[Works], Job], seconds: float) -> int:
    """How many calls the chore worker makes for a job that nothing disturbs."""
    count = 0

    def note(site: Site) -> None:
        nonlocal count
        count += site.function == WORKER

    works.world.hooks.on_before = note
    job = job_of(works)
    works.world.run(seconds)
    assert works.now(job).status == "done"
    return count


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_dies_at_any_call_leaves_a_job_that_goes_on_to_its_end(when: str) -> None:
    calls = calls_of(Works(), Works.order, 10)
    assert calls > 3 * STEPS
    for index in range(1, calls + 1):
        works = Works()
        with works.dying(index, when):
            job = works.order()
            works.world.run(SOON_S)
        works.check(job)


def test_a_job_whose_ring_was_lost_is_rung_for_by_the_sweep() -> None:
    works = Works()
    works.world.hooks.lose = lambda site: site.function == ""
    job = works.order()
    works.world.run(130)
    works.check(job)


@pytest.mark.parametrize("at", range(1, STEPS + 1))
def test_two_workers_at_once_keep_each_step_once(at: int) -> None:
    works = Works()
    world = works.world
    bell = Bell(world.clients.sqs, world.settings.queue_urls, world.ids)
    nested: list[int] = []

    def meanwhile(number: int) -> None:
        if number == at and not nested:
            nested.append(number)
            bell.chore(job.job_id)
            assert world.poll("chores")

    works.before_each = meanwhile
    job = works.order()
    world.run(SOON_S)
    assert nested
    works.check(job)
    assert len(works.toys) == 2, "each was a worker of its own"
    assert sum(toy.made.count(at) for toy in works.toys) == 2


def test_a_write_whose_answer_is_lost_is_not_taken_for_another_workers() -> None:
    places = calls_of(Works(), Works.order, 10)
    for index in range(1, places + 1):
        works = Works()
        count = 0

        def loses(site: Site, index: int = index) -> None:
            nonlocal count
            count += site.function == WORKER
            if site.function == WORKER and count in (index, index + 1):
                raise ReadTimeoutError(endpoint_url="https://aws.local")  # of both its tries

        works.world.hooks.on_after = loses
        job = works.order()
        works.world.run(SOON_S)
        works.check(job)


def test_a_step_that_fails_for_ever_backs_off_and_goes_on_once_it_can() -> None:
    works = Works()
    failing = [True]
    tries: list[int] = []

    def fail(number: int) -> None:
        tries.append(works.world.clock.ms)
        if number == 2 and failing:
            raise Failed("unavailable", "not now")

    works.before_each = fail
    job = works.order()
    works.world.run(6 * HOUR_MS / 1000)
    stands = works.now(job)
    assert (stands.status, stands.done) == ("running", 1)
    assert len(tries) < 250, "each ring is received ten times at most, and rings grow rare"
    failing.clear()
    works.world.run(1800 + 120)
    works.check(job)


def test_a_job_that_cannot_be_read_hides_no_other() -> None:
    works = Works()
    for shard in range(64):
        row = {"due_pk": keys.due_shard(shard), "due_at": 1, "job_id": 7}
        works.world.table.write(put(keys.job(f"unreadable-{shard}"), row))
    works.world.hooks.lose = lambda site: site.function == ""
    job = works.order()
    works.world.run(SOON_S)
    works.check(job)


# ---- the orders about many entries


def entries_kind(action: str) -> Callable[[Ports], Kind]:
    def make(ports: Ports) -> Kind:
        if action == "discard":
            return DiscardEntries(ports.table, ports.bell, ports.clock)
        audit = AuditTrail(ports.table, ports.clock, ports.ids, 400)
        installs = Installs(
            ports.table,
            ports.clock,
            ports.ids,
            ports.random,
            audit=audit,
            instance_keys=ports.instance_keys,
            judge=lambda url, hosts: None,
        )
        return ReplayEntries(ports.table, ports.bell, ports.clock, installs)

    return make


def order_about_entries(works: Works, state: EntryState) -> Job:
    """Three entries in that state, of two conversations, and an order about them."""
    world = works.world
    world.receiver.answers = lambda *_: answer(400)
    for conversation, message_id in (("A", "a-1"), ("A", "a-2"), ("B", "b-1")):
        world.say(conversation, message_id)
    world.drain()
    for row in world.entries():
        if state is not EntryState.PENDING:
            key = Key(row["pk"], row["sk"])
            world.table.write(update(key, "SET #state = :state", state=state.value))
    world.clock.forward(5)  # longer than an index lags
    world.receiver.answers = lambda *_: answer(200 if state is not EntryState.PENDING else 400)
    world.receiver.received.clear()
    chosen = Chosen(
        install_id=world.made.install_id,
        states=frozenset({state}),
        since=0,
        until=world.clock.ms,
    )
    since = chosen.until - HOUR_MS
    return works.order(item_of(chosen) | {"since": since})


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("state", [EntryState.DEAD, EntryState.DELIVERED])
def test_a_replay_order_whose_worker_dies_sends_each_entry_once(
    when: str, state: EntryState
) -> None:
    calls = calls_of(Works(entries_kind("replay")), lambda w: order_about_entries(w, state), 30)
    for index in range(1, calls + 1):
        works = Works(entries_kind("replay"))
        with works.dying(index, when):
            job = order_about_entries(works, state)
            works.world.run(SOON_S)
        assert works.now(job).status == "done"
        sent = [got.outbound_id for got in works.world.receiver.received]
        assert len(sent) == len(set(sent)) == 3, (when, index)
        assert works.ends("outbox.replayed") == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_discard_order_whose_worker_dies_leaves_nothing_that_waits(when: str) -> None:
    def order(works: Works) -> Job:
        return order_about_entries(works, EntryState.PENDING)

    calls = calls_of(Works(entries_kind("discard")), order, 30)
    for index in range(1, calls + 1):
        works = Works(entries_kind("discard"))
        with works.dying(index, when):
            job = order(works)
            works.world.run(SOON_S)
        assert works.now(job).status == "done"
        assert {row["state"] for row in works.world.entries()} == {"discarded"}, (when, index)
        assert works.world.waiting() == [], "no mark is left"
        assert works.ends("outbox.discarded") == 1
