"""Owns the world of the control plane's tests: the embedded AWS under a clock of its own."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mesh.control.agents import Agents
from mesh.control.audit import AuditTrail, Cause, Search
from mesh.control.enablement import Enablement, Step
from mesh.control.idempotency import Minting
from mesh.control.installs import Installs, Wanted, Whole
from mesh.control.instance_key import InstanceKeys
from mesh.control.operators import Operators
from mesh.kernel.errors import MeshError
from mesh.kernel.ids import Ids
from mesh.records.agent import Agent, Limits, Model
from mesh.records.install import Caps, Engagement, Install
from mesh.records.operator import Audit
from mesh.security.urls import Allowlist, Refusal, judge_url
from mesh.storage.table import Table

from infra.local.aws import Faults, LocalAws

START_MS = 1_796_000_000_000
ALICE = Cause("opr_alice", "req_alice")


class OwnClock:
    """A clock that moves when it is slept on, or told to."""

    def __init__(self) -> None:
        self.ms = START_MS
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.ms += max(1, int(seconds * 1000))

    def forward(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


class OwnRandom:
    """Seeded randomness."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


class PlainWrapper:
    """A key service that wraps by remembering."""

    def __init__(self, random: OwnRandom) -> None:
        self._random = random
        self._kept: dict[bytes, tuple[bytes, dict[str, str]]] = {}

    def wrap(self, plaintext: bytes, context: dict[str, str]) -> bytes:
        wrapped = b"wrapped:" + self._random.bytes(8)
        self._kept[wrapped] = (plaintext, context)
        return wrapped

    def generate(self, context: dict[str, str]) -> tuple[bytes, bytes]:
        plaintext = self._random.bytes(32)
        return plaintext, self.wrap(plaintext, context)

    def unwrap(self, wrapped: bytes, context: dict[str, str]) -> bytes:
        plaintext, was = self._kept[wrapped]
        assert was == context
        return plaintext


class ScriptedProvisioner:
    """A connector whose steps do what the test says."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.ran: list[str] = []
        self.failing: dict[str, MeshError] = {}
        self.before_each = lambda: None

    def steps(self, install: Install, *, skip_ping: bool) -> Sequence[Step]:
        return [Step(n, f"does {n}") for n in self.names if not (skip_ping and n == "ping")]

    def run(self, step: Step, whole: Whole) -> None:
        self.before_each()
        self.ran.append(step.name)
        if step.name in self.failing:
            raise self.failing[step.name]


def judged(url: str, allow_hosts: Sequence[str]) -> Refusal | None:
    found = judge_url(url, allow=[Allowlist.parse(allow_hosts)])
    return found if isinstance(found, Refusal) else None


class World:
    """Everything of the control plane over one table."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.clock = OwnClock()
        self.random = OwnRandom()
        self.aws = LocalAws(clock=self.clock, seed=1, faults=faults)
        self.aws.create_table("mesh")
        client = self.aws.session().create_client("dynamodb")
        self.table = Table(client, "mesh", self.clock, self.random)
        self.ids = Ids(self.clock, self.random)
        self.audit = AuditTrail(self.table, self.clock, self.ids, 400)
        self.wrapper = PlainWrapper(self.random)
        self.keys = InstanceKeys(self.wrapper, self.table, self.clock, self.random)
        self.agents = Agents(self.table, self.clock, self.ids, self.audit)
        self.installs = Installs(
            self.table,
            self.clock,
            self.ids,
            self.random,
            audit=self.audit,
            instance_keys=self.keys,
            judge=judged,
        )
        self.enablement = Enablement(self.table, self.clock, self.ids, self.audit, self.installs)
        self.operators = Operators(self.table, self.clock, self.ids, self.random, self.audit)
        self._minted = 0

    def minting(self, key: str | None = None, digest: str = "d") -> Minting:
        self._minted += 1
        return Minting("opr_alice", "POST", "/api/x", key or f"key-{self._minted}", digest)

    def agent(self, slug: str = "ada") -> Agent:
        return self.agents.create(
            slug=slug,
            name=slug.title(),
            handle=slug,
            instructions="Be brief.",
            model=Model(),
            limits=Limits(),
            cause=ALICE,
            minting=self.minting(),
        )

    def install(
        self, agent: Agent, *, url: str | None = None, minting: Minting | None = None
    ) -> tuple[Install, str]:
        return self.installs.create(
            agent,
            wanted(delivery_url=url),
            kind="generic",
            enable=False,
            skip_ping=False,
            cause=ALICE,
            minting=minting or self.minting(),
        )

    def audited(self) -> list[Audit]:
        """Every audit row, oldest first."""
        found: list[Audit] = []
        page, place = self.audit.page(Search(), 200, None)
        found += page
        while place is not None:
            page, place = self.audit.page(Search(), 200, place)
            found += page
        rows = [item for item in self.aws.items() if item["pk"].startswith("AUDIT#")]
        return sorted(found or [_row(item) for item in rows], key=lambda row: row.id)

    def actions(self) -> list[str]:
        return [
            item["action"]
            for item in sorted(
                (i for i in self.aws.items() if i["pk"].startswith("AUDIT#")),
                key=lambda i: i["sk"],
            )
        ]


def _row(item: dict[str, object]) -> Audit:
    from mesh.control.rows import record_of

    return record_of(item, Audit)


def wanted(
    *,
    name: str = "Support",
    delivery_url: str | None = None,
    allow_hosts: tuple[str, ...] = (),
) -> Wanted:
    return Wanted(
        name=name,
        delivery_url=delivery_url,
        allow_hosts=allow_hosts,
        engagement=Engagement(),
        caps=Caps(),
        failure_replies=True,
    )
