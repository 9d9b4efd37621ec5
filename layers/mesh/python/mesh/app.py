"""Owns the composition: what each function is made of, in one builder a function.

Refuses to run at import: a handler module imports with an empty environment, and its function is
built at the first event, once. `Ports` is the seam through which the local stack and tests give
their own clock, randomness, AWS and way out; nothing that is deployed chooses anything else.

Builders import what they need themselves, so that a function loads its own code alone.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mesh.kernel.clock import Clock, Deadline, SystemClock
from mesh.kernel.ids import Ids, Random, SystemRandom
from mesh.kernel.log import JsonLog, Log
from mesh.kernel.metrics import EmfMetrics, Metrics
from mesh.kernel.settings import Settings
from mesh.kernel.start import uncollected
from mesh.storage.clients import Clients, SessionClients
from mesh.storage.kms import KmsWrapper
from mesh.storage.queues import Bell
from mesh.storage.table import Table

if TYPE_CHECKING:
    from mesh.control.instance_key import InstanceKeys
    from mesh.engine.thinking import Models
    from mesh.engine.watch import Watch
    from mesh.security.egress import Egress
    from mesh.tools.contract import Parts
    from mesh.tools.gate import Gate

Event = Mapping[str, Any]
"""A Lambda trigger document: JSON, whose shape is the trigger's."""

Handler = Callable[[Event, Any], dict[str, Any]]
"""A Lambda entry point: event and context in, a JSON document out."""


def _guarded(clock: Clock) -> Egress:
    from mesh.security.egress import GuardedEgress

    return GuardedEgress(clock)


class Ports(msgspec.Struct, frozen=True, dict=True):
    """What a function is given from outside."""

    settings: Settings
    clients: Clients = msgspec.field(default_factory=SessionClients)
    clock: Clock = msgspec.field(default_factory=SystemClock)
    random: Random = msgspec.field(default_factory=SystemRandom)
    egress: Callable[[Clock], Egress] = _guarded
    """Makes the way out; called only for functions that post."""
    log: Callable[[str], Log] = JsonLog
    watch: Watch | None = None
    """How calls under way are watched; left out, each in a thread of its own."""
    models: Models | None = None
    """Another way to an agent's model than its settings name."""
    gate: Callable[[Parts], Gate] | None = None
    """Makes another gate than the one over every package that ships."""
    metrics: Callable[[str], Metrics] = EmfMetrics
    """Makes the place where an environment's figures go."""

    @cached_property
    def ids(self) -> Ids:
        return Ids(self.clock, self.random)

    @cached_property
    def table(self) -> Table:
        return Table(self.clients.dynamodb, self.settings.table, self.clock, self.random)

    @cached_property
    def bell(self) -> Bell:
        return Bell(self.clients.sqs, self.settings.queue_urls, self.ids)

    @cached_property
    def key_wrapper(self) -> KmsWrapper:
        return KmsWrapper(lambda: self.clients.kms, self.settings.secrets_key)

    @cached_property
    def instance_keys(self) -> InstanceKeys:
        from mesh.control.instance_key import InstanceKeys

        return InstanceKeys(self.key_wrapper, self.table, self.clock, self.random)


HURRIED: Final = frozenset({"generic_ingress"})
"""The functions that somebody waits for: their calls share one deadline."""


def lazy(name: str) -> Handler:
    """The entry point of function `name`: built at its first event from the environment, then
    kept."""
    built: list[Handler] = []

    def handler(event: Event, context: Any) -> dict[str, Any]:
        if not built:
            clients = SessionClients(hurried=name in HURRIED)
            built.append(build(name, Ports(Settings.from_environment(), clients=clients)))
            gc.freeze()  # no later collection walks what the start has made
        return built[0](event, context)

    return handler


def build(name: str, ports: Ports) -> Handler:
    """The function `name`, made of `ports`. KeyError when there is no such function."""
    with uncollected():
        return _BUILDERS[name](ports)


def _generic_ingress(ports: Ports) -> Handler:
    from mesh.connectors.generic.ingress import Ingress
    from mesh.control.instance_key import InstanceKeys
    from mesh.kernel.limits import INGRESS_CALL_S

    clients, settings = ports.clients, ports.settings
    deadline = Deadline(ports.clock, INGRESS_CALL_S)
    table = Table(clients.dynamodb, settings.table, ports.clock, ports.random, deadline)

    def kms() -> Any:
        deadline.demand_a_call()
        return clients.kms

    return Ingress(
        table=table,
        bell=Bell(clients.sqs, settings.queue_urls, ports.ids, deadline),
        instance_keys=InstanceKeys(
            KmsWrapper(kms, settings.secrets_key), table, ports.clock, ports.random
        ),
        deadline=deadline,
        clock=ports.clock,
        ids=ports.ids,
        random=ports.random,
        log=ports.log("generic_ingress"),
        settings=ports.settings,
    )


def _turn_worker(ports: Ports) -> Handler:
    from mesh.connectors.registry import OUTBOUND
    from mesh.control.instance_settings import InstanceHosts
    from mesh.engine.budgets import Budgets
    from mesh.engine.slots import Slots
    from mesh.engine.thinking import Thinking
    from mesh.engine.turn import TurnWorker
    from mesh.kernel.limits import TURN_STOP_BEFORE_LIMIT_MS
    from mesh.models.registry import Models
    from mesh.outbox.commit import Commit
    from mesh.storage.doorbells import answer_doorbells
    from mesh.storage.queues import Doorbell
    from mesh.tools.contract import Parts
    from mesh.tools.gate import gate_of

    log = ports.log("turn_worker")
    parts = Parts(
        table=ports.table,
        clock=ports.clock,
        egress=cache(partial(ports.egress, ports.clock)),
        wrapper=ports.key_wrapper,
    )
    kept_days = ports.settings.messages_kept_days
    budgets = Budgets(ports.table, ports.clock, ports.ids)
    models = Models(
        table=ports.table,
        wrapper=ports.key_wrapper,
        egress=parts.egress,
        own_hosts=ports.settings.own_hosts,
        instance_hosts=InstanceHosts(ports.table, ports.clock),
        bedrock=ports.clients.bedrock,
        clock=ports.clock,
    )
    thinking = Thinking(
        table=ports.table,
        models=ports.models or models,
        gate=(ports.gate or gate_of)(parts),
        watch=_watch(ports),
        budgets=budgets,
        clock=ports.clock,
        ids=ports.ids,
        random=ports.random,
        kept_days=kept_days,
    )
    worker = TurnWorker(
        table=ports.table,
        bell=ports.bell,
        commit=Commit(ports.table, ports.clock, ports.random, kept_days),
        thinking=thinking,
        slots=Slots(ports.table, ports.clock, ports.ids, ports.bell),
        budgets=budgets,
        outbound=OUTBOUND,
        clock=ports.clock,
        ids=ports.ids,
        log=log,
    )
    return answer_doorbells(
        Doorbell,
        lambda bell, stop_at: worker.work(bell.conversation_id, stop_at),
        ports.clock,
        log,
        TURN_STOP_BEFORE_LIMIT_MS,
    )


def _outbox_worker(ports: Ports) -> Handler:
    from mesh.connectors.registry import OUTBOUND
    from mesh.control.instance_settings import InstanceHosts
    from mesh.kernel.limits import OUTBOX_STOP_BEFORE_LIMIT_MS
    from mesh.outbox.dispatch import OutboxWorker
    from mesh.outbox.replay import ReplayWorker
    from mesh.storage.doorbells import answer_doorbells
    from mesh.storage.queues import Doorbell

    log = ports.log("outbox_worker")
    worker = OutboxWorker(
        table=ports.table,
        bell=ports.bell,
        egress=ports.egress(ports.clock),
        outbound=OUTBOUND,
        instance_keys=ports.instance_keys,
        clock=ports.clock,
        ids=ports.ids,
        random=ports.random,
        log=log,
        own_hosts=ports.settings.own_hosts,
        instance_hosts=InstanceHosts(ports.table, ports.clock),
    )
    replays = ReplayWorker(ports.table, ports.bell, worker, ports.clock, ports.random)

    def work(bell: Doorbell, stop_at_ms: int) -> None:
        if bell.replay is None:
            worker.work(bell.conversation_id, stop_at_ms, delayed=bell.delayed)
        elif bell.delayed:  # the queue of delays sends nothing
            ports.bell.delivery(bell.conversation_id, replay=bell.replay)
        else:
            replays.work(bell.replay)

    return answer_doorbells(Doorbell, work, ports.clock, log, OUTBOX_STOP_BEFORE_LIMIT_MS)


def _sweep_due(ports: Ports) -> Handler:
    from mesh.sweeps.due import DueSweep

    sweep = DueSweep(
        table=ports.table,
        bell=ports.bell,
        clock=ports.clock,
        ids=ports.ids,
        log=ports.log("sweep_due"),
        metrics=ports.metrics(ports.settings.environment),
    )

    def handler(_event: Event, _context: Any) -> dict[str, Any]:
        sweep.run()
        return {}

    return handler


def _chore_worker(ports: Ports) -> Handler:
    from mesh.connectors.generic.provision import GenericProvisioner
    from mesh.control.agents import Agents
    from mesh.control.audit import AuditTrail
    from mesh.control.enablement import Enablement
    from mesh.control.installs import Installs
    from mesh.control.instance_settings import InstanceHosts, open_webhook
    from mesh.control.jobs import Jobs
    from mesh.control.restore import Restoring
    from mesh.jobs.deletions import deletions
    from mesh.jobs.enabling import Enabler
    from mesh.jobs.entries import DiscardEntries, ReplayEntries
    from mesh.jobs.erasure import Erasure
    from mesh.jobs.restore import FinishRestore
    from mesh.jobs.worker import JobWorker
    from mesh.kernel.limits import CHORES_STOP_BEFORE_LIMIT_MS
    from mesh.notices.sender import NoticeSender
    from mesh.notices.webhook import WebhookPosts
    from mesh.outbox.commit import Commit
    from mesh.records.job import JobKind
    from mesh.security.egress.contract import judge_of
    from mesh.storage.doorbells import answer_doorbells
    from mesh.storage.events import EventBus
    from mesh.storage.queues import ChoreBell

    log = ports.log("chore_worker")
    settings, egress = ports.settings, ports.egress(ports.clock)
    hosts = InstanceHosts(ports.table, ports.clock)
    audit = AuditTrail(ports.table, ports.clock, ports.ids, settings.audit_kept_days)
    installs = Installs(
        ports.table,
        ports.clock,
        ports.ids,
        ports.random,
        audit=audit,
        instance_keys=ports.instance_keys,
        judge=judge_of(egress, settings.own_hosts, hosts),
    )
    enablement = Enablement(ports.table, ports.clock, ports.ids, audit, installs)
    provisioner = GenericProvisioner(
        egress,
        ports.instance_keys,
        ports.clock,
        ports.ids,
        own_hosts=settings.own_hosts,
        instance_hosts=hosts,
    )
    enabler = Enabler(installs, enablement, provisioner, ports.ids, log)
    restoring = Restoring(ports.table, ports.clock, audit, installs)
    commit = Commit(ports.table, ports.clock, ports.random, settings.messages_kept_days)
    erasure = Erasure(ports.table, ports.bell, ports.clock, ports.random, commit)
    jobs = JobWorker(
        Jobs(ports.table, ports.clock, ports.ids),
        {
            JobKind.REPLAY_ENTRIES: ReplayEntries(ports.table, ports.bell, ports.clock, installs),
            JobKind.DISCARD_ENTRIES: DiscardEntries(ports.table, ports.bell, ports.clock),
            **deletions(ports.table, ports.clock, erasure, installs, enablement),
            JobKind.FINISH_RESTORE: FinishRestore(
                Agents(ports.table, ports.clock, ports.ids, audit), installs, restoring
            ),
        },
        table=ports.table,
        bell=ports.bell,
        clock=ports.clock,
        audit=audit,
        log=log,
    )
    posts = WebhookPosts(
        table=ports.table,
        webhook=partial(open_webhook, ports.table, ports.instance_keys),
        egress=egress,
        clock=ports.clock,
        random=ports.random,
        log=log,
        own_hosts=settings.own_hosts,
        instance_hosts=hosts,
    )
    sender = NoticeSender(
        table=ports.table,
        bus=EventBus(lambda: ports.clients.events, settings.event_bus),
        posts=posts,
        bell=ports.bell,
        clock=ports.clock,
        random=ports.random,
        log=log,
        environment=settings.environment,
    )
    by_prefix = {"job": jobs.work, "ins": enabler.work, "ntc": sender.work}

    def work(bell: ChoreBell, stop_at_ms: int) -> None:
        chore = by_prefix.get(bell.chore_id[:3])
        if chore is not None:
            chore(bell.chore_id, stop_at_ms)

    return answer_doorbells(ChoreBell, work, ports.clock, log, CHORES_STOP_BEFORE_LIMIT_MS)


def _watch(ports: Ports) -> Watch:
    from mesh.engine.watch import ThreadWatch

    return ports.watch or ThreadWatch(ports.clock)


def _operator(resource: str) -> Callable[[Ports], Handler]:
    def builder(ports: Ports) -> Handler:
        from mesh.operator.api import build as build_operator
        from mesh.operator.deps import OperatorDeps

        deps = OperatorDeps(
            table=ports.table,
            bell=ports.bell,
            instance_keys=ports.instance_keys,
            key_wrapper=ports.key_wrapper,
            egress=partial(ports.egress, ports.clock),
            clock=ports.clock,
            ids=ports.ids,
            random=ports.random,
            watch=partial(_watch, ports),
            settings=ports.settings,
            log=ports.log(f"operator_{resource}"),
        )
        return build_operator(resource, deps)

    return builder


_BUILDERS: Mapping[str, Callable[[Ports], Handler]] = {
    "generic_ingress": _generic_ingress,
    "turn_worker": _turn_worker,
    "outbox_worker": _outbox_worker,
    "sweep_due": _sweep_due,
    "chore_worker": _chore_worker,
    **{
        f"operator_{resource}": _operator(resource)
        for resource in (
            "authorizer",
            "meta",
            "agents",
            "vault",
            "tools",
            "web_access",
            "connectors",
            "outbox",
            "runs",
            "conversations",
            "operators",
            "jobs",
            "audit",
            "instance",
            "instance_settings",
            "doctor",
            "bootstrap",
        )
    },
}
