"""Owns the whole system in one process: the topology's resources, and functions fed as Lambda does.

Refuses to be another system: it composes the builders that are deployed with an embedded AWS and
an egress client of its own. Every step can be taken by hand (`request`, `poll_once`, `tick`), so
that a simulation drives it with a clock of its own; `RunningStack` lets threads take them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore import UNSIGNED
from botocore.config import Config

from infra import topology
from infra.local.aws.local import LocalAws
from infra.local.aws.rows import IndexKeys
from infra.local.gateway import Gateway, Request, Response
from infra.local.pollers import Poller, Source
from infra.local.runtime import Handler, Runtime
from infra.local.schedule import Schedule
from infra.local.server import Server
from mesh.app import HURRIED, Ports, build
from mesh.engine.thinking import Models
from mesh.engine.watch import Watch
from mesh.kernel.clock import Clock
from mesh.kernel.ids import Ids, Random
from mesh.kernel.log import Log
from mesh.kernel.metrics import Metric
from mesh.kernel.settings import Settings
from mesh.security.egress import Egress
from mesh.storage.clients import SessionClients

TABLE_NAME: Final = "mesh-local"
KEY_ALIAS: Final = "mesh-local-secrets"
INGRESS_PATH: Final = "/generic/events"
CONCURRENCY: Final = 16
"""Messages of one queue that are processed at once."""
STOP_S: Final = 3.0
"""How long stopping waits for what is under way; what is not done then is cut off, like a crash."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What was made at the embedded AWS."""

    table: str
    queue_urls: Mapping[str, str]
    key: str


def make_resources(aws: LocalAws) -> Resources:
    """The table, the queues with their dead-letter queues, and the key, by the topology."""
    indexes = tuple(
        IndexKeys(index.name, index.hash_key, index.range_key, index.range_is_number)
        for index in topology.TABLE.indexes
    )
    aws.create_table(TABLE_NAME, indexes)
    urls = {}
    for queue in topology.QUEUES:
        aws.create_queue(queue.dead_name, fifo=queue.fifo, retention_s=queue.dead_retention_s)
        urls[queue.name] = aws.create_queue(
            queue.physical_name,
            fifo=queue.fifo,
            visibility_s=queue.visibility_s,
            retention_s=queue.retention_s,
            dead_letter=queue.dead_name,
            max_receives=queue.max_receives,
        )
    return Resources(TABLE_NAME, urls, aws.create_key(KEY_ALIAS))


class Stack:
    """The system, with every function built from `mesh.app` on the given ports."""

    def __init__(
        self,
        *,
        aws: LocalAws,
        clock: Clock,
        random: Random,
        egress: Egress,
        log: Callable[[str], Log],
        watch: Watch | None = None,
        models: Models | None = None,
        base_url: str = "http://127.0.0.1:8787",
    ) -> None:
        self.clock = clock
        self.aws = aws
        self.base_url = base_url
        self.figures: dict[Metric, float] = {}
        """The last figure of each metric; no CloudWatch is there to take them."""
        self.resources = make_resources(aws)
        self._random = random
        self._egress = egress
        self._log = log
        self._watch = watch
        self._models = models
        self._ids = Ids(clock, random)
        session = aws.session()
        # Nobody here checks a request's signature, and making it is a fifth of a call's cost.
        session.set_default_client_config(Config(signature_version=UNSIGNED))
        self._clients = SessionClients(session)
        self._hurried_clients = SessionClients(session, hurried=True)
        self.settings = Settings(
            environment="local",
            table=self.resources.table,
            queue_urls=dict(self.resources.queue_urls),
            secrets_key=self.resources.key,
            ingress_url=base_url + INGRESS_PATH,
        )
        self.runtime = Runtime(self._build, clock, self._ids, log("local"))
        self.gateway = Gateway(self.runtime.invoke, clock, random)
        self.schedule = Schedule(self.runtime.invoke, clock, self._ids)
        self.sources = {
            queue: Source(
                self._clients.sqs,
                topology.queue(queue),
                self.resources.queue_urls[queue],
                function.name,
                self.runtime.invoke,
            )
            for function in topology.FUNCTIONS
            for queue in function.queues
        }

    def _build(self, name: str) -> Handler:
        """One instance of a function, on ports of its own: instances share no cache."""
        ports = Ports(
            settings=self.settings,
            clients=self._hurried_clients if name in HURRIED else self._clients,
            clock=self.clock,
            random=self._random,
            egress=lambda _: self._egress,
            log=self._log,
            watch=self._watch,
            models=self._models,
            metrics=lambda _: self.figures.update,
        )
        return build(name, ports)

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Response:
        """One HTTP request through the gateway, in this thread."""
        lines = tuple((headers or {}).items())
        return self.gateway.answer(Request(method, target, lines, body))

    def poll_once(self, queue: str) -> bool:
        """One message of the queue through its function, in this thread. Whether there was one."""
        return self.sources[queue].poll_once()

    def drain(self, rounds: int = 1000) -> int:
        """Polls every queue until none has a visible message; how many there were.

        Raises RuntimeError when `rounds` messages did not end it: functions ring without end.
        """
        count = 0
        while sum(self.poll_once(queue) for queue in self.sources):
            count += 1
            if count >= rounds:
                raise RuntimeError(f"still ringing after {rounds} rounds")
        return count

    def tick(self) -> None:
        """One tick of every schedule."""
        self.schedule.tick()

    def bootstrap(self, name: str = "local") -> str:
        """A fresh admin token, minted by the function that mints the first one when deployed."""
        answer: dict[str, Any] = self.runtime.invoke("operator_bootstrap", {"name": name})
        token: str = answer["token"]
        return token


class RunningStack:
    """A stack that threads drive: the socket, the pollers, the schedule."""

    def __init__(self, stack: Stack, server: Server, log: Log) -> None:
        self.stack = stack
        self._server = server
        self._pollers = [Poller(source, CONCURRENCY, log) for source in stack.sources.values()]

    def start(self) -> None:
        """Starts everything."""
        for poller in self._pollers:
            poller.start()
        self.stack.schedule.start()
        self._server.start(self.stack.gateway.answer)

    def stop(self) -> bool:
        """Stops everything, and waits a little for what is under way. Whether it all ended."""
        self._server.stop()
        self.stack.schedule.stop()
        for poller in self._pollers:
            poller.stop()
        self.stack.aws.close()  # ends every long poll
        clock = self.stack.clock
        until = clock.monotonic() + STOP_S
        ended = self.stack.schedule.join(STOP_S)
        for poller in self._pollers:
            ended &= poller.join(max(0.0, until - clock.monotonic()))
        return ended
