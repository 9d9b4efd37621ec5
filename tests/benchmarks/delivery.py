"""Owns the speed of a delivery: the whole function, and its guarded, signed request alone.

Refuses an emulator's time: AWS answers from a recording, the receiver is a real one on loopback.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from infra.local.aws.session import session_on
from infra.local.egress import LoopbackEgress
from infra.local.runtime import Context
from mesh.app import Ports, build
from mesh.kernel.clock import SystemClock
from mesh.security.egress import EgressPolicy
from mesh.security.signing import sign_outbound
from mesh.security.urls import Allowlist
from mesh.storage.clients import SessionClients
from mesh.storage.queues import Doorbell
from tests.benchmarks.costs import SHORT
from tests.benchmarks.figures import Figure, ratio
from tests.benchmarks.receiver import Receiver
from tests.benchmarks.replay import Recording, Replay
from tests.fakes.system import Made, SilentLog, System

ROUNDS: Final = 15
DELIVERIES: Final = 20


def figures() -> dict[str, Figure]:
    """Both ratios of a delivery."""
    with Receiver() as receiver:
        system = System(lag=False)
        system.egress = LoopbackEgress([receiver.pair])  # type: ignore[assignment]  # judges its URL
        made = system.make_install(url=receiver.url, allow_hosts=(receiver.pair,))
        whole = _replayed_delivery(system, made, receiver)
        body = receiver.bodies[-1]
        post = _guarded_post(made, receiver, body)

        def bare() -> None:
            receiver.bare_post(body)

        whole_s, post_s, bare_s = _middles(whole, post, bare)
    return {
        "delivery": ratio(
            whole_s / bare_s, "a bare POST of the same body, loopback; AWS from a recording"
        ),
        "delivery_post": ratio(
            post_s / bare_s, "the same: the signed, guarded request without its bookkeeping"
        ),
    }


def _replayed_delivery(system: System, made: Made, receiver: Receiver) -> Callable[[], None]:
    """A warm delivery of one entry that can be made again and again."""
    replay: Replay | None = None

    def answer(request: Any, **_: Any) -> Any:
        return system.aws._sent(request, "outbox_worker") if replay is None else replay(request)

    session = session_on(system.clock, answer)
    recording = Recording(session)  # before there are clients, which take its hook along
    egress = LoopbackEgress([receiver.pair])
    function = build(
        "outbox_worker",
        Ports(
            system.stack.settings,
            clients=SessionClients(session),
            clock=system.clock,
            random=system.random,
            egress=lambda _: egress,
            log=lambda _: SilentLog(),
        ),
    )

    def deliver() -> None:
        before = len(receiver.bodies)
        ends_at = system.clock.monotonic() + 60
        context = Context("outbox_worker", "inv", 512, system.clock, ends_at)
        assert function(event, context) == {"batchItemFailures": []}
        assert len(receiver.bodies) == before + 1

    for message_id in ("warms-up", "recorded"):
        assert system.say(made, SHORT, message_id).status == 202
        assert system.stack.poll_once("turns")  # the entry is there, and waits for its delivery
        event = {"Records": [_record(system.rows("ENTRY#")[0]["pk"].removeprefix("CONV#"))]}
        recording.answers.clear()
        deliver()
    replay = Replay(recording.answers)
    return deliver


def _record(conversation_id: str) -> dict[str, Any]:
    return {
        "messageId": "m",
        "receiptHandle": "r",
        "body": Doorbell(conversation_id).body(),
        "attributes": {},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:local:000000000000:deliveries.fifo",
        "awsRegion": "local",
    }


def _guarded_post(made: Made, receiver: Receiver, body: bytes) -> Callable[[], None]:
    egress = LoopbackEgress([receiver.pair])
    policy = EgressPolicy(allow=(Allowlist.parse([receiver.pair]),))
    clock = SystemClock()

    def post() -> None:
        at = str(clock.now_ms() // 1000)
        headers = {
            "Content-Type": "application/json",
            **sign_outbound([made.secret], made.install_id, "out_benchmark", at, body),
        }
        assert egress.post(receiver.url, headers, body, policy).status == 200

    return post


def _middles(*acts: Callable[[], None]) -> tuple[float, ...]:
    """Wall seconds of each act, taken in turn: the request crosses threads."""
    taken: list[list[float]] = [[] for _ in acts]
    for number in range(ROUNDS + 1):
        for act, seconds in zip(acts, taken, strict=True):
            begun = time.perf_counter()
            for _ in range(DELIVERIES):
                act()
            if number:  # the first round warms up
                seconds.append((time.perf_counter() - begun) / DELIVERIES)
    return tuple(median(seconds) for seconds in taken)
