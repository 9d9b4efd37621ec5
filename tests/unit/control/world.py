"""Owns the world of the control plane's tests: the embedded AWS under a clock of its own."""

from __future__ import annotations

from collections.abc import Sequence

from infra.local.aws import Faults, LocalAws
from mesh.control.agents import Agents
from mesh.control.audit import AuditTrail, Cause
from mesh.control.enablement import Enablement, Step
from mesh.control.idempotency import Minting
from mesh.control.installs import Installs, Wanted, Whole
from mesh.control.instance_key import InstanceKeys
from mesh.control.operators import Operators
from mesh.control.rotation import Rotation
from mesh.control.web_access import WebAccess
from mesh.kernel.errors import MeshError
from mesh.kernel.ids import Ids
from mesh.records.agent import Agent, Limits, Model
from mesh.records.connection import Provider
from mesh.records.install import Caps, Engagement, Install
from mesh.security.sealing import KeyWrapper
from mesh.security.urls import Allowlist, Refusal, judge_url
from mesh.storage.table import Table
from mesh.tools.web.catalogue import PROVIDERS, kept_for
from tests.fakes.time import SeededRandom, SimulatedClock

ALICE = Cause("opr_alice", "req_alice")


class PlainWrapper:
    """A key service that wraps by remembering."""

    def __init__(self, random: SeededRandom) -> None:
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
        self.clock = SimulatedClock()
        self.random = SeededRandom()
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
        self.rotation = Rotation(
            self.table,
            self.clock,
            self.random,
            audit=self.audit,
            installs=self.installs,
            instance_keys=self.keys,
        )
        self.enablement = Enablement(self.table, self.clock, self.ids, self.audit, self.installs)
        self.operators = Operators(self.table, self.clock, self.ids, self.random, self.audit)
        self._minted = 0

    def minting(self, key: str | None = None, digest: str = "d") -> Minting:
        self._minted += 1
        return Minting("opr_alice", "POST", "/api/x", key or f"key-{self._minted}", digest)

    def agent(self, slug: str = "ada") -> Agent:
        return self.agent_with(self.minting(), slug)

    def agent_with(self, minting: Minting, slug: str = "ada") -> Agent:
        return self.agents.create(
            slug=slug,
            name=slug.title(),
            handle=slug,
            instructions="Be brief.",
            model=Model(),
            limits=Limits(),
            cause=ALICE,
            minting=minting,
        )

    def web_access(self, wrapper: KeyWrapper, **more: Provider) -> WebAccess:
        """Web access over a key service, with the providers that ship and `more`."""
        return WebAccess(
            self.table,
            self.clock,
            self.random,
            audit=self.audit,
            wrapper=wrapper,
            providers=PROVIDERS | more,
            kept_for=kept_for,
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

    def actions(self) -> list[str]:
        """What the audit rows say was done, in order as far as milliseconds tell."""
        return [
            item["action"]
            for item in sorted(
                (i for i in self.aws.items() if i["pk"].startswith("AUDIT#")),
                key=lambda i: i["sk"],
            )
        ]


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
