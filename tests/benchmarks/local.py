"""Owns the speed of the local stack: with a full table, and end to end over its sockets.

Refuses to stand for AWS: these figures are about working on a machine, not about a deployment.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from statistics import median
from typing import Final

from infra.local.command import compose
from infra.local.stack import Stack
from mesh.control.agents import Agents
from mesh.control.audit import AuditTrail, Cause
from mesh.control.idempotency import Minting
from mesh.control.installs import Installs, Wanted
from mesh.control.instance_key import InstanceKeys
from mesh.kernel.clock import SystemClock
from mesh.kernel.ids import Ids, SystemRandom
from mesh.records.agent import Limits, Model
from mesh.records.install import Caps, Engagement
from mesh.security.signing import sign_inbound
from mesh.storage import keys
from mesh.storage.clients import SessionClients
from mesh.storage.kms import KmsWrapper
from mesh.storage.table import Table
from mesh.storage.writes import update
from tests.benchmarks import history
from tests.benchmarks.costs import SHORT, warm_system
from tests.benchmarks.figures import Figure, ratio
from tests.benchmarks.receiver import Receiver
from tests.fakes.system import Made

FEW_ROWS: Final = 10
MANY_ROWS: Final = 10_000
ROWS_AN_EXCHANGE: Final = 5
GROWTH_MAX: Final = 2.0
ROUNDS: Final = 25

MESSAGES: Final = 120
CONVERSATIONS: Final = 12
SENDERS: Final = 4
THROUGHPUT_MIN: Final = 15.0
WAIT_S: Final = 60.0


def figures() -> dict[str, Figure]:
    """Growth with the table, and messages a second."""
    return {
        "local_growth": ratio(
            growth(), "a message with 10 items in the embedded table, against 10,000", GROWTH_MAX
        ),
        "local_throughput": Figure(
            round(throughput(), 1),
            "messages/s",
            "end to end on this machine, other work beside it: posted, answered, delivered",
            "higher",
            THROUGHPUT_MIN,
        ),
    }


def growth() -> float:
    """CPU of a message, from its request to its delivery, in a large table against a small one."""
    systems = [warm_system() for _ in range(2)]
    for (system, _), rows in zip(systems, (FEW_ROWS, MANY_ROWS), strict=True):
        history.seed(system, 2 * rows // ROWS_AN_EXCHANGE)
    taken: list[list[float]] = [[], []]
    for number in range(ROUNDS):
        for (system, made), seconds in zip(systems, taken, strict=True):
            begun = time.process_time()
            assert system.say(made, SHORT, f"m-{number}").status == 202
            system.settle()
            seconds.append(time.process_time() - begun)
            system.clock.forward(1)
    small, large = (median(seconds) for seconds in taken)
    return large / small


def throughput() -> float:
    """Messages a second from the first request to the last delivery, over real sockets."""
    with Receiver() as receiver:
        running = compose(0, [receiver.pair], level="CRITICAL")
        made = _install(running.stack, receiver)
        running.start()
        try:
            port = int(running.stack.base_url.rpartition(":")[2])
            _send(port, made, range(SENDERS))  # warms functions and clients up
            assert receiver.wait_for(SENDERS, WAIT_S), "the stack does not deliver"
            begun = time.monotonic()
            _send(port, made, range(SENDERS, SENDERS + MESSAGES))
            if not receiver.wait_for(SENDERS + MESSAGES, WAIT_S):
                raise RuntimeError(f"only {len(receiver.bodies)} deliveries in {WAIT_S} s")
            return MESSAGES / (time.monotonic() - begun)
        finally:
            running.stop()


def _send(port: int, made: Made, numbers: range) -> None:
    def sender(first: int) -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        for number in numbers[first::SENDERS]:
            payload = {
                "message_id": f"m-{number}",
                "conversation_key": f"room-{number % CONVERSATIONS}",
                "actor_id": "u-1",
                "body": SHORT,
            }
            body = json.dumps(payload).encode()
            at = str(int(time.time()))
            headers = {
                "Content-Type": "application/json",
                "X-Mesh-Install": made.install_id,
                "X-Mesh-Timestamp": at,
                "X-Mesh-Signature": sign_inbound(made.secret, made.install_id, at, body),
            }
            connection.request("POST", "/generic/events", body, headers)
            reply = connection.getresponse()
            answer = reply.read()
            assert reply.status == 202, answer
        connection.close()

    with ThreadPoolExecutor(SENDERS) as senders:
        list(senders.map(sender, range(SENDERS)))


def _install(stack: Stack, receiver: Receiver) -> Made:
    """An agent with an enabled install that delivers to the receiver."""
    clock, random = SystemClock(), SystemRandom()
    ids = Ids(clock, random)
    clients = SessionClients(stack.aws.session("benchmark"))
    table = Table(clients.dynamodb, stack.settings.table, clock, random)
    audit = AuditTrail(table, clock, ids, 1)
    wrapper = KmsWrapper(lambda: clients.kms, stack.settings.secrets_key)
    cause = Cause("opr_benchmark", "req_benchmark")
    agent = Agents(table, clock, ids, audit).create(
        slug="ada",
        name="Ada",
        handle="ada",
        instructions="",
        model=Model(),
        limits=Limits(),
        cause=cause,
        minting=Minting("opr_benchmark", "POST", "/agents", ids.ulid(), "digest"),
    )
    installs = Installs(
        table,
        clock,
        ids,
        random,
        audit=audit,
        instance_keys=InstanceKeys(wrapper, table, clock, random),
        judge=lambda _url, _hosts: None,
    )
    wanted = Wanted(
        name="Benchmark",
        delivery_url=receiver.url,
        allow_hosts=(receiver.pair,),
        engagement=Engagement(),
        caps=Caps(),
        failure_replies=True,
    )
    install, secret = installs.create(
        agent,
        wanted,
        kind="generic",
        enable=False,
        skip_ping=False,
        cause=cause,
        minting=Minting("opr_benchmark", "POST", "/connectors", ids.ulid(), "digest"),
    )
    key = keys.settings(install.install_id)
    table.write(update(key, "SET #state = :state", state="enabled"))
    return Made(install.install_id, secret)
