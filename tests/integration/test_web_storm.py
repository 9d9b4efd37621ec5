"""Two hundred calls of the web at once against one meter: exactly as many are admitted and sent as
the limit says, whatever AWS does meanwhile."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest

from infra.local.aws import Faults
from infra.local.aws.faults import Kind
from infra.local.egress import LoopbackEgress
from mesh.control.rows import item_of
from mesh.engine.calls import Calls
from mesh.engine.contract import Materials
from mesh.engine.ledger import Ledger
from mesh.engine.watch import InlineWatch
from mesh.kernel.clock import MINUTE_MS
from mesh.kernel.errors import Failed
from mesh.records.agent import Agent
from mesh.records.connection import Capability
from mesh.records.conversation import Pending
from mesh.records.run import Asked, Step, StepStatus
from mesh.storage import keys
from mesh.storage.writes import put
from mesh.tools.gate import gate_of
from mesh.tools.offers import offering_of
from tests.fakes.brave_server import BraveServer
from tests.fakes.system import System, parts_of
from tests.fakes.time import START_MS, CrowdClock
from tests.fakes.web import Connections

CALLS = 200
MINUTE = START_MS // MINUTE_MS
FAULTS = {Kind.CONFLICT: 0.2, Kind.THROTTLE: 0.05, Kind.LOST: 0.08, Kind.UNREACHABLE: 0.04}
LEASES_MAX = 20


class NobodyLooks:
    """A lease that nobody takes away."""

    def look(self) -> None:
        """Nothing."""


@dataclass
class Run:
    """A run whose worker makes calls of its own, on a clock of its own."""

    agent: Agent
    number: int
    at_ms: int
    place: int = 1
    """Of the call's step in the run's ledger; the first in a run that makes one."""

    @property
    def story(self) -> str:
        return f"{self.number:026d}"

    @property
    def conversation_id(self) -> str:
        return f"conv_{self.story}"

    def pending(self, lease_no: int) -> Pending:
        return Pending(
            story=self.story,
            order=1,
            created_at=START_MS,
            message_id="m-1",
            install_id="ins_" + "0" * 26,
            agent_id=self.agent.agent_id,
            lease_no=lease_no,
        )


@dataclass
class Storm:
    """A system with a search provider's stand-in, and workers that call all at once."""

    faults: Faults | None = None
    ended: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = CrowdClock()
        self.system = System(faults=self.faults, clock=self.clock)
        self.server = BraveServer()
        self.peer = self.server.on_loopback()
        egress = LoopbackEgress([], stand_ins={"brave": f"127.0.0.1:{self.peer.port}"})
        self.gate = gate_of(replace(parts_of(self.system), egress=lambda: egress))

    def connect(
        self, *, per_minute: int = 10_000, per_run: int = 10_000, owner: str = "instance"
    ) -> None:
        connections = Connections(
            self.system.table, self.system.control.wrapper, self.system.random
        )
        with self.system.aws.without_faults():
            connections.connect(owner, per_minute=per_minute, per_run=per_run, key=self.server.key)

    def breaks(self, runs: Sequence[Run]) -> None:
        """Every run makes its call at the same time. Where AWS fails for too long the invocation
        ends, and another one goes on under the next lease: with all such calls at once again."""
        with self.system.aws.without_faults():
            asked = {
                each.agent_id: self._asked(each)
                for each in {r.agent.agent_id: r.agent for r in runs}.values()
            }
        left = list(runs)
        for lease_no in range(1, LEASES_MAX):
            with self.system.aws.without_faults():
                for run in {run.story: run for run in left}.values():
                    self._lease(run, lease_no)
            work = self._at_once(len(left), lease_no, asked)
            with ThreadPoolExecutor(len(left)) as pool:
                came_to = list(pool.map(work, left))
            self.ended += [step for step in came_to if step is not None]
            left = [run for run, step in zip(left, came_to, strict=True) if step is None]
            if not left:
                return
        raise AssertionError("some never came to an end")

    def _at_once(
        self, count: int, lease_no: int, asked: Mapping[str, Asked]
    ) -> Callable[[Run], Step | None]:
        """The work of one of so many, which begin together."""
        ready = threading.Barrier(count)

        def work(run: Run) -> Step | None:
            self.clock.begin(run.at_ms)  # nobody's back-off moves another's time
            ready.wait(60)
            try:
                return self._under(run, asked[run.agent.agent_id], lease_no)
            except Failed:
                return None

        return work

    def close(self) -> None:
        self.peer.close()
        assert self.server.broken == []

    # ---- what came of it

    def sent(self) -> int:
        return len(self.server.requests)

    def meters(self, prefix: str = "METER") -> Counter[tuple[str, str]]:
        """What was counted, by the rows' keys."""
        rows = self.system.rows(prefix)
        return Counter({(row["pk"], row["sk"]): int(row["calls"]) for row in rows})

    def admitted(self) -> list[Step]:
        return [step for step in self.ended if step.replay is not None]

    def _lease(self, run: Run, lease_no: int) -> None:
        self.system.table.write(
            put(keys.pending(run.conversation_id, 1), item_of(run.pending(lease_no)))
        )

    def _asked(self, agent: Agent) -> Asked:
        offers = offering_of(self.system.table, agent, self.gate.definitions).offers
        offer = offers["web_search"]
        return Asked(
            call_id="cal_" + "0" * 26,
            model_call_id="c-1",
            name="web_search",
            arguments='{"query": "ibex"}',
            agent_version=offer.agent_version,
            binding_version=offer.binding_version,
            grant=offer.grant,
        )

    def _under(self, run: Run, asked: Asked, lease_no: int) -> Step:
        ledger = Ledger(self.system.table, run.conversation_id, run.pending(lease_no), 30)
        steps = [step for step in ledger.steps() if step.number == run.place]
        for step in steps:
            if step.status is not StepStatus.RUNNING:
                return step
        materials = Materials(
            agent=run.agent,
            install_id="ins_" + "0" * 26,
            conversation_id=run.conversation_id,
            run_id=f"run_{run.story}",
            before=1,
            order=1,
            lines=(),
            notes=(),
            started_at=run.at_ms,
            stop_at=run.at_ms + 10 * MINUTE_MS,
        )
        calls = Calls(
            materials,
            ledger=ledger,
            gate=self.gate,
            watch=InlineWatch(self.clock),
            holding=NobodyLooks(),
            clock=self.clock,
        )
        calls.make([(run.place, asked)], steps)
        (step,) = steps
        return step


@pytest.fixture
def storm() -> Iterator[Storm]:
    storm = Storm()
    yield storm
    storm.close()


def one_call_each(
    agents: Sequence[Agent], at_ms: Callable[[int], int] = lambda _: START_MS
) -> list[Run]:
    """As many runs, of the agents in turn; the worker of the n-th begins at `at_ms(n)`."""
    of = itertools.cycle(agents)
    return [Run(next(of), number, at_ms(number)) for number in range(CALLS)]


def kinds(storm: Storm) -> Counter[str]:
    """How often the calls came to what."""
    return Counter(str(step.observation_kind) for step in storm.ended)


@pytest.mark.behaviour("meters:per-minute", "meters:before-request", "meters:exhausted")
@pytest.mark.parametrize("limit", [1, 37])
def test_two_hundred_calls_at_once_get_what_a_minute_admits(storm: Storm, limit: int) -> None:
    storm.connect(per_minute=limit)
    storm.breaks(one_call_each([storm.system.agent]))
    assert kinds(storm) == {"result": limit, "limited": CALLS - limit}
    assert storm.sent() == len(storm.admitted()) == limit
    minute = keys.minute_meter("instance", Capability.SEARCH, START_MS)
    assert storm.meters()[(minute.pk, minute.sk)] == limit
    assert sum(storm.meters("METER#").values()) == limit, "a run is not charged for what is refused"


@pytest.mark.behaviour("meters:per-run", "meters:before-request", "admission:one-transaction")
@pytest.mark.parametrize("limit", [37, CALLS - 1])
def test_two_hundred_calls_of_one_run_at_once_get_what_the_run_admits(
    storm: Storm, limit: int
) -> None:
    storm.connect(per_run=limit)
    storm.breaks([Run(storm.system.agent, 0, START_MS, place) for place in range(1, CALLS + 1)])
    assert kinds(storm) == {"result": limit, "limited": CALLS - limit}
    assert storm.sent() == len(storm.admitted()) == limit
    assert set(storm.meters().values()) == {limit}, "nor is the minute charged for it"
    assert len(storm.meters()) == 2


@pytest.mark.behaviour("meters:per-minute", "meters:inherited-limit")
def test_agents_that_inherit_share_one_minute_and_one_that_does_not_has_its_own(
    storm: Storm,
) -> None:
    agents = [storm.system.agent, *(storm.system.make_agent(slug) for slug in ("ben", "cleo"))]
    storm.connect(per_minute=30)
    storm.connect(per_minute=11, owner=agents[2].agent_id)
    storm.breaks(one_call_each(agents))
    assert storm.sent() == len(storm.admitted()) == 41
    assert sorted(storm.meters("METER").values())[-2:] == [11, 30]
    payers = Counter(step.payer for step in storm.admitted())
    assert payers == {"instance/brave": 30, "agent/brave": 11}


@pytest.mark.behaviour("meters:per-minute")
def test_the_turn_of_a_minute_admits_the_limit_on_either_side_of_it(storm: Storm) -> None:
    turn = (MINUTE + 1) * MINUTE_MS
    storm.connect(per_minute=20)
    storm.breaks(one_call_each([storm.system.agent], lambda n: turn - n % 2))
    assert storm.sent() == len(storm.admitted()) == 40
    for at_ms in (turn - 1, turn):
        minute = keys.minute_meter("instance", Capability.SEARCH, at_ms)
        assert storm.meters()[(minute.pk, minute.sk)] == 20
    begun = Counter(step.started_at // MINUTE_MS for step in storm.admitted())
    assert begun == {MINUTE: 20, MINUTE + 1: 20}


@pytest.mark.behaviour("admission:consumed", "admission:repeat", "admission:no-retry-no-refund")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("what", ["minute", "run"])
def test_faults_of_aws_admit_nothing_beyond_the_limit_and_send_nothing_twice(
    seed: int, what: str
) -> None:
    faults, limit = Faults(seed, rates=FAULTS), 40
    storm = Storm(faults)
    if what == "minute":
        storm.connect(per_minute=limit)
        runs = one_call_each([storm.system.agent])
    else:
        storm.connect(per_run=limit)
        runs = [Run(storm.system.agent, 0, START_MS, place) for place in range(1, CALLS + 1)]
    storm.breaks(runs)
    storm.close()
    assert set(faults.counts) >= set(FAULTS)
    came = kinds(storm)
    assert sum(came.values()) == CALLS
    assert set(came) <= {"result", "limited", "uncertain", "failed"}
    # Who was admitted and then died has cost its unit, sent or not.
    assert len(storm.admitted()) == limit
    assert came["limited"] == CALLS - limit
    assert came["result"] <= storm.sent() <= limit
    meter = {
        "minute": keys.minute_meter("instance", Capability.SEARCH, START_MS),
        "run": keys.run_meter("0" * 26, Capability.SEARCH),
    }[what]
    assert storm.meters()[(meter.pk, meter.sk)] == limit
