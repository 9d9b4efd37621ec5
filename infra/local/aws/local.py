"""Owns the embedded AWS as one object: its services, the way from a botocore client to them,
recording, kill points and faults.

Refuses the network: every request of its sessions is answered in process.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Literal

import botocore.session
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError, ReadTimeoutError

from infra.local.aws import wire
from infra.local.aws.dynamo import Dynamo, cancelled
from infra.local.aws.events import EventBridge
from infra.local.aws.faults import Faults, Kind
from infra.local.aws.keys import Kms
from infra.local.aws.queues import Sqs
from infra.local.aws.recorder import Call, Recorder, caller
from infra.local.aws.rows import IndexKeys
from infra.local.aws.session import session_on
from infra.local.aws.values import plain
from infra.local.aws.wire import NO_UNITS, AwsError, Service, Units
from mesh.kernel.clock import Clock

When = Literal["before", "after"]

INDEXES: Final = (
    IndexKeys("due", "due_pk", "due_at", range_is_number=True),
    IndexKeys("lists", "list_pk", "list_sk"),
)


def _seeded(seed: int) -> random.Random:
    return random.Random(seed)


class Killed(BaseException):
    """The process dies here, before or after a call was applied. No `except Exception` holds it."""


class Broken(BaseException):
    """The `on_write` callback objected to the rows; its own error is the cause."""


class LocalAws:
    """The embedded AWS. Safe under threads.

    `seed` draws lags and ids (the same each time when None, but key material is then the
    system's); `faults` come only when given; `lag=False` makes every read see the newest rows,
    for tests of something else.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        seed: int | None = None,
        faults: Faults | None = None,
        lag: bool = True,
    ) -> None:
        dice = random.SystemRandom() if seed is None else _seeded(seed)
        self.clock = clock
        self.faults = faults
        self.recorder = Recorder()
        self.dynamo = Dynamo(clock, _seeded(seed or 0) if lag else None)
        self.sqs = Sqs(clock, dice)
        self.kms = Kms(dice)
        self.events = EventBridge(clock, dice)
        if faults is not None:
            self.dynamo.left_over = faults.left_over
            self.sqs.lateness_ms = faults.lateness_ms
            self.sqs.doubled = lambda: faults.happens(Kind.DUPLICATE)
        self._services: dict[str, Service] = {
            "dynamodb": self.dynamo,
            "sqs": self.sqs,
            "kms": self.kms,
            "events": self.events,
        }
        self._counting = threading.Lock()
        self._calls = 0
        self._kill: tuple[int, When, str | None] | None = None
        self._on_write: Callable[[LocalAws], None] | None = None

    def session(self, caller: str | None = None) -> botocore.session.Session:
        """A session whose clients this object answers; `caller` labels their calls."""
        return session_on(self.clock, lambda request, **_: self._sent(request, caller))

    def create_table(self, name: str, indexes: tuple[IndexKeys, ...] = INDEXES) -> None:
        """Makes the table (keys `pk` and `sk`) with KEYS_ONLY indexes."""
        self.dynamo.create(name, indexes)

    def create_queue(
        self,
        name: str,
        *,
        fifo: bool = False,
        visibility_s: int = 30,
        delay_s: int = 0,
        retention_s: int = 4 * 24 * 3600,
        dead_letter: str | None = None,
        max_receives: int | None = None,
    ) -> str:
        """Makes a queue and answers its address; `dead_letter` names a queue made before."""
        return self.sqs.create(
            name,
            fifo=fifo,
            visibility_s=visibility_s,
            delay_s=delay_s,
            retention_s=retention_s,
            dead_letter=dead_letter,
            max_receives=max_receives,
        )

    def create_key(self, alias: str) -> str:
        """Makes a key under `alias/<alias>` and answers its ARN."""
        return self.kms.create(alias)

    @property
    def calls(self) -> list[Call]:
        """The calls recorded so far."""
        return self.recorder.calls

    def recording(self) -> AbstractContextManager[list[Call]]:
        """Records the calls made inside, and yields the list that they go to."""
        return self.recorder.recording()

    def without_faults(self) -> AbstractContextManager[None]:
        """No injected faults inside, on any thread."""
        return nullcontext() if self.faults is None else self.faults.held_back()

    def items(self) -> Iterator[dict[str, Any]]:
        """Every row as plain values: a full view, for tests alone."""
        return (plain(item) for item in self.dynamo.items())

    def on_write(self, callback: Callable[[LocalAws], None] | None) -> None:
        """Calls `callback` after every write that was applied, while no other can happen."""
        self._on_write = callback

    def kill_at(self, n: int, when: When = "before", caller: str | None = None) -> None:
        """The n-th call from now (1 is the next; of `caller` alone, when given) raises Killed."""
        with self._counting:
            self._kill = (n, when, caller)

    def spare(self) -> None:
        """Takes back `kill_at`."""
        self.spared()

    def spared(self) -> bool:
        """Takes back `kill_at`, and whether nobody was killed by it."""
        with self._counting:
            waits, self._kill = self._kill is not None, None
        return waits

    def close(self) -> None:
        """Ends every long poll."""
        self.sqs.close()

    def _sent(self, request: AWSPreparedRequest, label: str | None) -> AWSResponse:
        """Answers one request of a client, or raises what the client's network would."""
        label = caller() or label or ""
        number, dies = self._count(label)
        if dies == "before":
            raise Killed(f"before call {number}")
        asked = wire.read(request)
        if asked is None:
            raise EndpointConnectionError(endpoint_url=request.url)
        fault = None if self.faults is None else self.faults.draw(asked.service, asked.operation)
        outcome, units = "ok", NO_UNITS
        try:
            self._refuse(fault, asked)
            if fault is Kind.UNREACHABLE:
                outcome = fault.value
                raise EndpointConnectionError(endpoint_url=request.url)
            body, units = self._apply(asked)
            response = wire.answer(request, body)
        except AwsError as problem:
            outcome, units = problem.code, problem.units
            response = wire.error(request, problem)
        finally:
            if fault is Kind.LOST and outcome == "ok":
                outcome = fault.value
            self.recorder.note(Call(number, asked.service, asked.operation, label, outcome, units))
        if dies == "after":
            raise Killed(f"after call {number}")
        if fault is Kind.LOST and self.faults is not None:
            if self.faults.choose(2):
                raise ReadTimeoutError(endpoint_url=request.url)
            raise ConnectionClosedError(endpoint_url=request.url)
        return response

    def _count(self, label: str) -> tuple[int, When | None]:
        """The call's number, and whether the process dies at it."""
        with self._counting:
            self._calls += 1
            if self._kill is None:
                return self._calls, None
            left, when, whose = self._kill
            if whose is not None and whose != label:
                return self._calls, None
            self._kill = None if left == 1 else (left - 1, when, whose)
            return self._calls, when if left == 1 else None

    def _apply(self, asked: wire.Asked) -> tuple[wire.Json, Units]:
        service = self._services[asked.service]
        if asked.service != "dynamodb":
            answered = service.call(asked.operation, asked.body)
            return answered.body, answered.units
        with self.dynamo.lock:
            answered = service.call(asked.operation, asked.body)
            if answered.wrote and self._on_write is not None:
                self._look(self._on_write)
            return answered.body, answered.units

    def _look(self, callback: Callable[[LocalAws], None]) -> None:
        """Shows the rows to `callback`. What it raises passes every `except Exception` outside."""
        try:
            callback(self)
        except Exception as objection:
            raise Broken(str(objection)) from objection

    def _refuse(self, fault: Kind | None, asked: wire.Asked) -> None:
        """Raises the error that the fault makes AWS answer with, if it does."""
        if fault is Kind.THROTTLE:
            match asked.service:
                case "dynamodb":
                    raise AwsError(
                        "ProvisionedThroughputExceededException",
                        "The level of configured provisioned throughput for one or more global "
                        "secondary indexes or the table was exceeded.",
                    )
                case "sqs":
                    raise AwsError(
                        "RequestThrottled", "The request was denied.", query_code="RequestThrottled"
                    )
                case _:
                    raise AwsError("ThrottlingException", "Rate exceeded")
        if fault is Kind.CONFLICT and self.faults is not None:
            members = asked.body.get("TransactItems")
            if members is None:
                raise AwsError(
                    "TransactionConflictException", "Transaction is ongoing for the item"
                )
            reasons: list[wire.Json] = [{"Code": "None"} for _ in members]
            reasons[self.faults.choose(len(members))] = {
                "Code": "TransactionConflict",
                "Message": "Transaction is ongoing for the item",
            }
            raise cancelled(reasons, Units(table_write=2 * len(members)))
