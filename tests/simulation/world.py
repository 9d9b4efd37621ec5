"""Owns the simulated world: the whole system on one simulated clock, stepped event by event.

Refuses to help the system along: it delivers doorbells, ticks schedules, lets time pass and kills;
whatever else happens is the system's own doing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from infra import topology
from infra.local.aws import Faults, Killed, LocalAws
from infra.local.gateway import Gateway, Request, Response
from infra.local.pollers import Source
from infra.local.runtime import Runtime
from infra.local.schedule import Schedule
from infra.local.stack import make_resources
from mesh.app import Handler, Ports, build
from mesh.control.agents import Agents
from mesh.control.audit import AuditTrail
from mesh.control.enablement import Enablement, Step
from mesh.control.idempotency import Minting
from mesh.control.installs import Installs, Wanted, Whole
from mesh.control.instance_key import InstanceKeys
from mesh.engine.thinking import Models
from mesh.engine.watch import InlineWatch, Watch as CallWatch
from mesh.kernel.clock import MINUTE_MS, Clock
from mesh.kernel.ids import Ids
from mesh.kernel.settings import Settings
from mesh.records.agent import Limits, Model
from mesh.records.install import Busy, Caps, Engagement, Install
from mesh.security.signing import sign_inbound
from mesh.storage import keys
from mesh.storage.clients import Clients
from mesh.storage.kms import KmsWrapper
from mesh.storage.table import Table
from mesh.storage.writes import update
from mesh.tools.contract import Parts
from mesh.tools.gate import Gate
from tests.fakes.egress import ScriptedEgress
from tests.fakes.system import CAUSE, URL, Made, SilentLog
from tests.fakes.time import SeededRandom, SimulatedClock
from tests.simulation.direct import DirectClients, Hooks, Site
from tests.simulation.invariants import (
    BrokenInvariantError,
    Watch,
    check_replies,
    check_request,
    check_settled,
)
from tests.simulation.receiver import Answers, Receiver, always_ok

Wrap = Callable[[Clients], Clients]
"""Gives functions other clients than the usual: how a test switches a rule off."""
MakeHandler = Callable[[str, Ports], Handler]


@dataclass(frozen=True)
class SkewedClock:
    """One instance's clock: it runs right and is set wrong."""

    inner: Clock
    offset_ms: int

    def now_ms(self) -> int:
        return self.inner.now_ms() + self.offset_ms

    def monotonic(self) -> float:
        return self.inner.monotonic()

    def sleep(self, seconds: float) -> None:
        self.inner.sleep(seconds)


class WorldHooks(Hooks):
    """Time passes with every call, and whatever a test wants happens at it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.on_before: Callable[[Site], None] = lambda _: None
        self.on_after: Callable[[Site], None] = lambda _: None
        self.lose: Callable[[Site], bool] = lambda _: False

    def before(self, site: Site) -> None:
        if site.function:
            self._world.clock.ms += self._world.dice.randint(1, self._world.call_ms_max)
        self.on_before(site)

    def after(self, site: Site) -> None:
        self.on_after(site)

    def drops(self, site: Site) -> bool:
        return self.lose(site)


class _NoSteps:
    """Enabling without steps: implements `Provisioner`."""

    def steps(self, install: Install, *, skip_ping: bool) -> Sequence[Step]:
        return ()

    def run(self, step: Step, whole: Whole) -> None:
        raise AssertionError(step)


@dataclass
class Posted:
    """One utterance of the third party: posted again, as it is, until it is answered."""

    conversation: str
    message_id: str
    text: str
    response: Response | None = None

    @property
    def answered(self) -> bool:
        return self.response is not None and self.response.status in (200, 202)


@dataclass
class World:
    """One instance with one agent and one install, and a receiver that checks what it gets."""

    seed: int = 1
    faults: Faults | None = None
    skew_ms: int = 0
    """Each instance's clock is off by up to this much, either way."""
    cold: bool = False
    """Every invocation is an instance of its own."""
    sweeping: bool = True
    answers: Answers = always_ok
    limits: Limits = field(default_factory=Limits)
    wrap: Wrap = lambda clients: clients
    handler: MakeHandler = build
    model: Model = field(default_factory=Model)
    models: Models | None = None
    gate: Callable[[Parts], Gate] | None = None
    tools: tuple[str, ...] = ()
    """What the agent may use."""
    busy: Busy = Busy.QUEUE
    calls: CallWatch | None = None
    """How calls under way are watched; left out, one after the other."""
    call_ms_max: int = 8
    watching: bool = True
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    posted: list[Posted] = field(init=False, default_factory=list)
    kills: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.random = SeededRandom(self.seed)
        self.aws = LocalAws(clock=self.clock, seed=self.seed, faults=self.faults)
        self.hooks = WorldHooks(self)
        self.clients: Clients = DirectClients(self.aws, self.hooks)
        self.receiver = Receiver(self.clock.now_ms, self.answers)
        self.egress = ScriptedEgress()
        self.egress.script(URL, self.receiver)
        self.log = SilentLog()
        self.watch = Watch(skew_ms=2 * self.skew_ms)
        resources = make_resources(self.aws)
        self.settings = Settings(
            environment="local",
            table=resources.table,
            queue_urls=dict(resources.queue_urls),
            secrets_key=resources.key,
            ingress_url="https://mesh.example/generic/events",
        )
        self.ids = Ids(self.clock, self.random)
        self.table = Table(self.clients.dynamodb, resources.table, self.clock, self.random)
        self.runtime = Runtime(self._build, self.clock, self.ids, self.log)
        self.gateway = Gateway(self._invoke, self.clock, self.random)
        self.schedule = Schedule(self._invoke, self.clock, self.ids)
        self.sources = {
            queue: Source(
                self.clients.sqs,
                topology.queue(queue),
                resources.queue_urls[queue],
                function.name,
                self._invoke,
            )
            for function in topology.FUNCTIONS
            for queue in function.queues
        }
        with self.aws.without_faults():
            self._make_control_plane()
            self.made = self.make_install()
        if self.watching:
            self.receiver.check = lambda got: check_request(
                got, self.aws.items(), self.clock.ms - 2 * self.skew_ms
            )
            self.aws.on_write(self.watch)
            self.watch(self.aws)

    # ---- how it is made

    def _invoke(self, name: str, event: dict[str, Any]) -> Any:
        if self.cold:
            self.runtime._idle[name].clear()
        return self.runtime.invoke(name, event)

    def _build(self, name: str) -> Handler:
        """One instance of a function: clock, caches and ports of its own."""
        offset = self.dice.randint(-self.skew_ms, self.skew_ms)
        clock: Clock = SkewedClock(self.clock, offset) if offset else self.clock
        ports = Ports(
            settings=self.settings,
            clients=self.wrap(self.clients),
            clock=clock,
            random=self.random,
            egress=lambda _: self.egress,
            log=lambda _: self.log,
            metrics=lambda _: lambda _: None,
            watch=self.calls or InlineWatch(self.clock),
            models=self.models,
            gate=self.gate,
        )
        return self.handler(name, ports)

    def _make_control_plane(self) -> None:
        audit = AuditTrail(self.table, self.clock, self.ids, 400)
        self.agents = Agents(self.table, self.clock, self.ids, audit)
        self.agent = self.agents.create(
            slug="ada",
            name="Ada",
            handle="ada",
            instructions="Be brief.",
            model=self.model,
            limits=self.limits,
            tools=self.tools,
            cause=CAUSE,
            minting=self._minting(),
        )
        wrapper = KmsWrapper(lambda: self.clients.kms, self.settings.secrets_key)
        self.installs = Installs(
            self.table,
            self.clock,
            self.ids,
            self.random,
            audit=audit,
            instance_keys=InstanceKeys(wrapper, self.table, self.clock, self.random),
            judge=lambda url, hosts: None,
        )
        self.enablement = Enablement(self.table, self.clock, self.ids, audit, self.installs)

    def make_install(self, url: str = URL, caps: Caps = Caps()) -> Made:
        """One more enabled install of the agent; what is said goes to `made`."""
        install, secret = self.installs.create(
            self.agent,
            Wanted(
                name="Support",
                delivery_url=url,
                allow_hosts=(),
                engagement=Engagement(busy=self.busy),
                caps=caps,
                failure_replies=True,
            ),
            kind="generic",
            enable=False,
            skip_ping=False,
            cause=CAUSE,
            minting=self._minting(),
        )
        self.table.write(
            update(keys.settings(install.install_id), "SET #state = :state", state="enabled")
        )
        return Made(install.install_id, secret)

    def _minting(self) -> Minting:
        return Minting("opr_test", "POST", "/x", self.ids.ulid(), "digest")

    # ---- what a third party does

    def post(self, posted: Posted) -> None:
        """One try: fresh timestamp and signature, the same message id and body."""
        body = json.dumps(
            {
                "message_id": posted.message_id,
                "conversation_key": posted.conversation,
                "actor_id": "u-42",
                "body": posted.text,
            }
        ).encode()
        at = str(self.clock.now_ms() // 1000)
        headers = {
            "Content-Type": "application/json",
            "X-Mesh-Install": self.made.install_id,
            "X-Mesh-Timestamp": at,
            "X-Mesh-Signature": sign_inbound(self.made.secret, self.made.install_id, at, body),
        }
        request = Request("POST", "/generic/events", tuple(headers.items()), body)
        try:
            posted.response = self.gateway.answer(request)
        except Killed:
            self.kills += 1
            posted.response = None

    def say(self, conversation: str, message_id: str, text: str = "hello") -> Posted:
        """An utterance, posted until it is answered, as the contract asks of a third party."""
        posted = Posted(conversation, message_id, text)
        self.posted.append(posted)
        for _ in range(20):
            self.post(posted)
            if posted.answered:
                return posted
            self.clock.forward(1)
        raise AssertionError(f"never taken in: {posted}")

    @property
    def expected(self) -> dict[str, list[str]]:
        """Conversation → message ids in the order in which they were taken in."""
        expected: dict[str, list[str]] = {}
        for posted in self.posted:
            expected.setdefault(posted.conversation, []).append(posted.message_id)
        return expected

    # ---- time

    def poll(self, queue: str) -> bool:
        """One message through its function. Whether there was one; a death leaves it in flight."""
        try:
            return self.sources[queue].poll_once()
        except Killed:
            self.kills += 1
            return True
        except ClientError:
            return True  # its receipt is no longer good: another has the message by now

    def drain(self, rounds: int = 2000) -> None:
        """Polls every queue until nothing is visible."""
        for _ in range(rounds):
            if sum(self.poll(queue) for queue in self.sources) == 0:
                return
        raise AssertionError("functions ring without end")

    def tick(self) -> None:
        """One tick of the schedules; a sweep that dies is not tried again before the next one."""
        try:
            self.schedule.tick()
            self.watch.sweeps += 1
        except Killed:
            self.kills += 1

    def run(self, seconds: float) -> None:
        """Lets that much time pass, from event to event."""
        until = self.clock.ms + int(seconds * 1000)
        self.drain()
        while self.clock.ms < until:
            self.clock.ms = max(self.clock.ms, min(until, self.next_event()))
            if self.clock.ms // MINUTE_MS != self._minute:
                self._minute = self.clock.ms // MINUTE_MS
                if self.sweeping and self.something_due():
                    self.tick()
            self.drain()

    def run_until_done(self, seconds_max: float) -> float:
        """Runs until nothing waits; answers after how many seconds. Asserts that it ends."""
        began = self.clock.ms
        self.drain()
        while not self.done:
            if (self.clock.ms - began) / 1000 > seconds_max:
                raise BrokenInvariantError("work is done in time", str(self.waiting()))
            before = self.clock.ms
            self.run(max(0.001, (self.next_event() - self.clock.ms) / 1000))
            assert self.clock.ms > before
        return (self.clock.ms - began) / 1000

    _minute: int = field(init=False, default=0)

    def next_event(self) -> int:
        """The next moment at which something can happen: a message shows, or a minute begins."""
        now = self.clock.ms
        moments = [(now // MINUTE_MS + 1) * MINUTE_MS]
        for source in self.sources.values():
            shows = self.aws.sqs.next_visible_ms(source.queue.physical_name)
            if shows is not None and shows > now:
                moments.append(shows)
        return min(moments)

    def shows(self, queue: str) -> bool:
        """Whether a poll of that queue would find a message."""
        name = self.sources[queue].queue.physical_name
        moment = self.aws.sqs.next_visible_ms(name)
        return moment is not None and moment <= self.clock.ms

    def something_due(self) -> bool:
        """Whether a tick would find anything: a sweep that finds nothing changes nothing."""
        now = self.clock.ms + self.skew_ms
        return any(
            image["due_pk"]["S"].startswith(("DUE#", "IDLE#")) and int(image["due_at"]["N"]) <= now
            for image in self.aws.dynamo.items()
            if "due_pk" in image and "due_at" in image
        )

    # ---- what is left

    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(row["pk"], row["sk"]): row for row in self.aws.items()}

    def waiting(self) -> list[dict[str, Any]]:
        """What is not done yet."""
        return [
            row
            for (_, sk), row in self.rows().items()
            if sk.startswith("PEND#")
            or (sk.startswith("ENTRY#") and (row["state"] == "pending" or "open" in row))
            or (sk in ("ORDER", "OUTBOX") and "due_pk" in row)
        ]

    @property
    def done(self) -> bool:
        return not self.waiting()

    def check(self) -> None:
        """Everything that was taken in is answered, once, in order, and nothing is left."""
        check_settled(self.rows(), self.receiver, self.expected)

    def check_replies(self) -> None:
        """Everything that was taken in is answered, once, in order; other rows may be left."""
        check_replies(self.receiver, self.expected)

    def entries(self) -> list[dict[str, Any]]:
        found = [row for (_, sk), row in self.rows().items() if sk.startswith("ENTRY#")]
        return sorted(found, key=lambda row: (row["pk"], row["sk"]))

    def entries_of(self, conversation: str) -> list[dict[str, Any]]:
        """The entries of a conversation, by its caller's key."""
        pk = keys.conversation(keys.conversation_id(self.made.install_id, conversation))
        return [row for row in self.entries() if row["pk"] == pk]

    def story_of(self, message_id: str) -> str:
        """The ULID of a message's story."""
        found = [
            row["story"]
            for (_, sk), row in self.rows().items()
            if sk == "STORY" and row["message_id"] == message_id
        ]
        return str(found[0])

    # ---- what an operator does

    def pause(self) -> None:
        """The agent stops."""
        self.agent = self.agents.pause(self.agent, CAUSE)

    def resume(self) -> None:
        """The agent works again."""
        self.agent = self.agents.resume(self.agent, CAUSE)

    def disable(self) -> None:
        """The install stops."""
        self.enablement.disable(self.made.install_id, CAUSE)

    def enable(self) -> None:
        """The install works again; there is nothing to do first."""
        self.enablement.enable(self.made.install_id, _NoSteps(), skip_ping=True, cause=CAUSE)

    def resume_delivery(self) -> None:
        """The operator takes the endpoint as healthy."""
        self.enablement.resume_delivery(self.made.install_id, CAUSE)
