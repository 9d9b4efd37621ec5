"""Instances, pollers and the schedule, without threads but where they are the matter."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from infra import topology
from infra.local.pollers import Poller, Source, failed_items
from infra.local.runtime import FunctionError, Handler, Runtime
from infra.local.schedule import SCHEDULED, Schedule, tick_event
from mesh.kernel.ids import Ids, SystemRandom

ONE = frozenset({"m1"})


class Clock:
    def __init__(self) -> None:
        self.now = 1_796_000_040_000

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: str, /, **fields: str | int | float | bool | None) -> None:
        self.events.append((event, fields))


def runtime(handler: Handler, clock: Clock | None = None, told: Told | None = None) -> Runtime:
    clock = clock or Clock()
    return Runtime(lambda _: handler, clock, Ids(clock, SystemRandom()), told or Told())


class Queue:
    """A queue as botocore shows it, of one message."""

    def __init__(self) -> None:
        self.messages = [
            {
                "MessageId": "m1",
                "ReceiptHandle": "r1",
                "Body": '{"v":1}',
                "MD5OfBody": "d",
                "Attributes": {"ApproximateReceiveCount": "1", "MessageGroupId": "g"},
            }
        ]
        self.deleted: list[str] = []
        self.gone = threading.Event()

    def receive_message(self, **asked: Any) -> dict[str, Any]:
        assert asked["MaxNumberOfMessages"] == 1
        return {"Messages": [self.messages.pop()]} if self.messages else {}

    def delete_message(self, **asked: str) -> None:
        self.deleted.append(asked["ReceiptHandle"])
        self.gone.set()


class Answering:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.events: list[dict[str, Any]] = []

    def __call__(self, name: str, event: dict[str, Any]) -> Any:
        self.events.append(event)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def source(queue: Queue, invoke: Answering) -> Source:
    return Source(queue, topology.queue("deliveries"), "url", "outbox_worker", invoke)


def test_an_instance_is_never_shared_by_two_invocations_at_once() -> None:
    clock, made, inside = Clock(), [], []

    def build(name: str) -> Handler:
        mark = len(made)
        made.append(mark)

        def handler(event: dict[str, Any], context: Any, /) -> Any:
            inside.append(mark)
            if event["deep"]:
                whole.invoke("turn_worker", {"deep": False})
            return None

        return handler

    whole = Runtime(build, clock, Ids(clock, SystemRandom()), Told())
    whole.invoke("turn_worker", {"deep": True})
    assert inside == [0, 1]
    whole.invoke("turn_worker", {"deep": False})
    assert len(made) == 2


def test_an_event_travels_as_json() -> None:
    seen: list[dict[str, Any]] = []

    def handler(event: dict[str, Any], context: Any, /) -> Any:
        seen.append(event)
        return {"a": (1, 2)}

    sent = {"x": {"y": 1}}
    assert runtime(handler).invoke("turn_worker", sent) == {"a": [1, 2]}
    assert seen[0] == sent
    assert seen[0]["x"] is not sent["x"]


def test_an_answer_that_is_no_json_fails_the_function() -> None:
    with pytest.raises(FunctionError):
        runtime(lambda event, context: {1, 2}).invoke("turn_worker", {})


def test_a_crash_is_told_by_its_class_alone() -> None:
    def handler(event: dict[str, Any], context: Any, /) -> Any:
        raise ValueError("whsec_secret")

    told = Told()
    with pytest.raises(FunctionError):
        runtime(handler, told=told).invoke("turn_worker", {})
    assert told.events == [("function_failed", {"function": "turn_worker", "error": "ValueError"})]


def test_the_context_counts_down_the_functions_own_time() -> None:
    left: list[int] = []
    clock = Clock()

    def handler(event: dict[str, Any], context: Any, /) -> Any:
        left.append(context.get_remaining_time_in_millis())
        clock.sleep(400)
        left.append(context.get_remaining_time_in_millis())

    runtime(handler, clock).invoke("turn_worker", {})
    assert left == [topology.TURN_TIMEOUT_S * 1000, 0]


def test_a_message_that_passed_is_deleted() -> None:
    queue, invoke = Queue(), Answering({"batchItemFailures": []})
    assert source(queue, invoke).poll_once()
    assert queue.deleted == ["r1"]
    (record,) = invoke.events[0]["Records"]
    assert record["messageId"] == "m1"
    assert record["eventSource"] == "aws:sqs"
    assert record["eventSourceARN"].endswith(":deliveries.fifo")
    assert record["attributes"]["MessageGroupId"] == "g"


@pytest.mark.parametrize(
    "answer",
    [
        FunctionError("outbox_worker"),
        {"batchItemFailures": [{"itemIdentifier": "m1"}]},
        {"batchItemFailures": [{"itemIdentifier": ""}]},
        {"batchItemFailures": [{"itemIdentifier": "another"}]},
        {"batchItemFailures": [{}]},
        {"batchItemFailures": "m1"},
        "done",
    ],
)
def test_a_message_that_failed_stays(answer: Any) -> None:
    queue = Queue()
    assert source(queue, Answering(answer)).poll_once()
    assert queue.deleted == []


@pytest.mark.parametrize(
    "answer", [None, {}, {"batchItemFailures": None}, {"batchItemFailures": []}]
)
def test_nothing_reported_is_success(answer: Any) -> None:
    assert failed_items(answer, ONE) == frozenset()


def test_an_empty_queue_invokes_nothing() -> None:
    queue, invoke = Queue(), Answering(None)
    queue.messages.clear()
    assert not source(queue, invoke).poll_once()
    assert invoke.events == []


def test_a_poller_processes_what_comes_and_stops() -> None:
    queue = Queue()
    poller = Poller(source(queue, Answering(None)), 2, Told())
    poller.start()
    assert queue.gone.wait(5)
    poller.stop()
    assert poller.join(5)
    assert queue.deleted == ["r1"]


def test_a_tick_invokes_every_scheduled_function() -> None:
    clock, invoke = Clock(), Answering(None)
    Schedule(invoke, clock, Ids(clock, SystemRandom())).tick()
    assert [event["source"] for event in invoke.events] == ["aws.scheduler"] * len(SCHEDULED)


def test_a_tick_that_fails_ends_nothing() -> None:
    clock = Clock()
    invoke = Answering(FunctionError("sweep_due"))
    Schedule(invoke, clock, Ids(clock, SystemRandom())).tick()
    assert len(invoke.events) == len(SCHEDULED)


def test_a_tick_tells_its_time() -> None:
    clock = Clock()
    event = tick_event(topology.function("sweep_due"), clock, Ids(clock, SystemRandom()))
    assert event["time"] == "2026-11-30T00:54:00.000Z"
    assert event["resources"] == ["arn:aws:scheduler:local:000000000000:schedule/default/sweep_due"]
