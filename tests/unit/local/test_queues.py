"""The embedded SQS keeps order, visibility, deduplication and redrive as AWS does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.local.aws import LocalAws
from mesh.kernel.clock import SystemClock

MakeCloud = Callable[..., Any]
MINUTE_MS = 60_000


def code_of(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


class Line:
    """One queue, spoken to shortly."""

    def __init__(self, here: Any, url: str) -> None:
        self.here = here
        self.url = url
        self._ring = 0

    def send(self, body: str, group: str | None = None, **more: Any) -> Any:
        self._ring += 1
        if group is not None:
            more = {
                "MessageGroupId": group,
                "MessageDeduplicationId": f"ring{self._ring}",
                **more,
            }
        return self.here.sqs.send_message(QueueUrl=self.url, MessageBody=body, **more)

    def take(self, count: int = 10, **more: Any) -> list[Any]:
        answer = self.here.sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=count,
            MessageSystemAttributeNames=["All"],
            **more,
        )
        return list(answer.get("Messages", []))

    def bodies(self, count: int = 10) -> list[str]:
        return [message["Body"] for message in self.take(count)]

    def delete(self, message: Any) -> None:
        self.here.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def change(self, message: Any, seconds: int) -> None:
        self.here.sqs.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )


@pytest.fixture
def standard(cloud: MakeCloud) -> Line:
    here = cloud()
    here.aws.create_queue("dead")
    return Line(
        here, here.aws.create_queue("q", visibility_s=30, dead_letter="dead", max_receives=2)
    )


@pytest.fixture
def fifo(cloud: MakeCloud) -> Line:
    here = cloud()
    here.aws.create_queue("dead.fifo", fifo=True)
    url = here.aws.create_queue(
        "q.fifo", fifo=True, visibility_s=30, dead_letter="dead.fifo", max_receives=2
    )
    return Line(here, url)


def test_a_group_keeps_its_order_and_waits_for_its_message_in_flight(fifo: Line) -> None:
    for body in ("a1", "a2"):
        fifo.send(body, "a")
    fifo.send("b1", "b")
    (first,) = fifo.take(1)
    assert first["Body"] == "a1"
    assert fifo.bodies() == ["b1"]
    assert fifo.bodies() == []
    fifo.delete(first)
    assert fifo.bodies() == ["a2"]


def test_one_receive_may_take_several_messages_of_a_group_in_order(fifo: Line) -> None:
    for number in range(4):
        fifo.send(str(number), "a")
    assert fifo.bodies(3) == ["0", "1", "2"]
    assert fifo.bodies() == []


def test_a_message_that_was_not_deleted_comes_back_first_in_its_group(fifo: Line) -> None:
    fifo.send("a1", "a")
    fifo.send("a2", "a")
    assert fifo.bodies(1) == ["a1"]
    fifo.here.clock.now += 29_999
    assert fifo.bodies() == []
    fifo.here.clock.now += 1
    (again,) = fifo.take(1)
    assert again["Body"] == "a1"
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_deduplication_id_holds_for_five_minutes_even_after_deletion(fifo: Line) -> None:
    sent = fifo.send("one", "a", MessageDeduplicationId="d")
    (message,) = fifo.take()
    fifo.delete(message)
    fifo.here.clock.now += 5 * MINUTE_MS - 1
    again = fifo.send("one", "a", MessageDeduplicationId="d")
    assert again["MessageId"] == sent["MessageId"]
    assert again["SequenceNumber"] == sent["SequenceNumber"]
    assert fifo.bodies() == []
    fifo.here.clock.now += 1
    assert fifo.send("one", "a", MessageDeduplicationId="d")["MessageId"] != sent["MessageId"]
    assert fifo.bodies() == ["one"]


def test_high_throughput_deduplicates_within_a_group_only(fifo: Line) -> None:
    fifo.send("a", "a", MessageDeduplicationId="d")
    fifo.send("b", "b", MessageDeduplicationId="d")
    assert sorted(fifo.bodies()) == ["a", "b"]


@pytest.mark.parametrize("queue", ["standard", "fifo"])
def test_a_message_received_too_often_goes_to_the_dead_letter_queue(
    queue: str, request: pytest.FixtureRequest
) -> None:
    line: Line = request.getfixturevalue(queue)
    line.send("poison", None if queue == "standard" else "a")
    for _ in range(2):
        assert line.bodies() == ["poison"]
        line.here.clock.now += 30_000
    assert line.bodies() == []
    dead = Line(line.here, line.url.replace("/q", "/dead"))
    (message,) = dead.take()
    assert message["Body"] == "poison"
    assert message["Attributes"]["DeadLetterQueueSourceArn"].endswith(line.url.rpartition("/")[2])


@pytest.mark.parametrize("group", ["", "with space", "é", "x" * 129, "tab\t", "nul\0"])
@pytest.mark.parametrize("field", ["MessageGroupId", "MessageDeduplicationId"])
def test_an_illegal_id_is_refused(fifo: Line, field: str, group: str) -> None:
    with pytest.raises(ClientError) as caught:
        fifo.send("x", "a", **{field: group})
    assert code_of(caught) == "InvalidParameterValue"


def test_every_legal_character_is_taken_in_ids(fifo: Line) -> None:
    letters = "".join(chr(code) for code in range(33, 127))
    fifo.send("x", letters, MessageDeduplicationId=letters)
    (message,) = fifo.take()
    assert message["Attributes"]["MessageGroupId"] == letters


def test_a_standard_queue_takes_a_group_for_fairness_and_no_deduplication_id(
    standard: Line,
) -> None:
    standard.here.sqs.send_message(QueueUrl=standard.url, MessageBody="x", MessageGroupId="agent")
    assert standard.bodies() == ["x"]
    with pytest.raises(ClientError) as caught:
        standard.here.sqs.send_message(
            QueueUrl=standard.url, MessageBody="x", MessageDeduplicationId="d"
        )
    assert code_of(caught) == "InvalidParameterValue"


def test_a_group_does_not_block_a_standard_queue(standard: Line) -> None:
    for body in ("1", "2"):
        standard.here.sqs.send_message(QueueUrl=standard.url, MessageBody=body, MessageGroupId="g")
    assert standard.bodies(1) == ["1"]
    assert standard.bodies(1) == ["2"]


def test_delays_hide_a_message_on_standard_queues_and_are_refused_on_fifo(
    standard: Line, fifo: Line
) -> None:
    standard.send("later", DelaySeconds=900)
    standard.here.clock.now += 899_999
    assert standard.bodies() == []
    standard.here.clock.now += 1
    assert standard.bodies() == ["later"]
    for line, seconds in ((standard, 901), (standard, -1), (fifo, 1)):
        group = "a" if line is fifo else None
        with pytest.raises(ClientError) as caught:
            line.send("x", group, DelaySeconds=seconds)
        assert code_of(caught) == "InvalidParameterValue"


def test_a_queue_may_delay_every_message(cloud: MakeCloud) -> None:
    here = cloud()
    line = Line(here, here.aws.create_queue("slow", delay_s=60))
    line.send("x")
    assert line.bodies() == []
    here.clock.now += 60_000
    assert line.bodies() == ["x"]


def test_a_message_over_256_kib_is_refused(standard: Line) -> None:
    standard.send("x" * 262_144)
    with pytest.raises(ClientError) as caught:
        standard.send("x" * 262_145)
    assert code_of(caught) == "InvalidParameterValue"


def test_a_fifo_send_needs_both_ids(fifo: Line) -> None:
    for more in ({}, {"MessageGroupId": "a"}):
        with pytest.raises(ClientError) as caught:
            fifo.here.sqs.send_message(QueueUrl=fifo.url, MessageBody="x", **more)
        assert code_of(caught) in {"MissingParameter", "InvalidParameterValue"}


def test_an_older_receipt_deletes_nothing(standard: Line) -> None:
    standard.send("x")
    (old,) = standard.take()
    standard.here.clock.now += 30_000
    (new,) = standard.take()
    standard.delete(old)
    with pytest.raises(ClientError) as caught:
        standard.change(old, 10)
    assert code_of(caught) == "InvalidParameterValue"
    assert standard.here.aws.sqs.depth("q") == (0, 1)
    standard.delete(new)
    standard.delete(new)
    assert standard.here.aws.sqs.depth("q") == (0, 0)


def test_an_expired_receipt_of_a_fifo_queue_is_refused(fifo: Line) -> None:
    fifo.send("x", "a")
    (message,) = fifo.take()
    fifo.here.clock.now += 30_000
    with pytest.raises(ClientError) as caught:
        fifo.delete(message)
    assert code_of(caught) == "InvalidParameterValue"
    assert fifo.bodies() == ["x"]


def test_a_made_up_receipt_is_invalid(standard: Line) -> None:
    with pytest.raises(ClientError) as caught:
        standard.delete({"ReceiptHandle": "made up"})
    assert code_of(caught) == "ReceiptHandleIsInvalid"


def test_visibility_can_be_moved_both_ways_while_in_flight(standard: Line) -> None:
    standard.send("x")
    (message,) = standard.take()
    standard.change(message, 100)
    standard.here.clock.now += 99_999
    assert standard.bodies() == []
    standard.change(message, 0)
    with pytest.raises(ClientError) as caught:
        standard.change(message, 10)
    assert code_of(caught) == "AWS.SimpleQueueService.MessageNotInflight"
    assert standard.bodies() == ["x"]


def test_an_unknown_queue_does_not_exist(standard: Line) -> None:
    with pytest.raises(ClientError) as caught:
        standard.here.sqs.get_queue_url(QueueName="none")
    assert code_of(caught) == "AWS.SimpleQueueService.NonExistentQueue"


def test_batches_answer_for_each_entry(fifo: Line) -> None:
    entries = [
        {"Id": "1", "MessageBody": "x", "MessageGroupId": "a", "MessageDeduplicationId": "1"},
        {"Id": "2", "MessageBody": "x", "MessageGroupId": "a b", "MessageDeduplicationId": "2"},
    ]
    answer = fifo.here.sqs.send_message_batch(QueueUrl=fifo.url, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["1"]
    assert [each["Id"] for each in answer["Failed"]] == ["2"]
    (message,) = fifo.take()
    fifo.here.sqs.delete_message_batch(
        QueueUrl=fifo.url,
        Entries=[{"Id": "1", "ReceiptHandle": message["ReceiptHandle"]}],
    )
    assert fifo.here.aws.sqs.depth("q.fifo") == (0, 0)


def test_a_message_past_its_retention_is_gone(cloud: MakeCloud) -> None:
    here = cloud()
    line = Line(here, here.aws.create_queue("short", retention_s=60))
    line.send("x")
    here.clock.now += 60_000
    assert line.bodies() == []


def test_a_simulated_clock_is_never_waited_on_and_tells_when_to_look_again(
    standard: Line,
) -> None:
    standard.send("x", DelaySeconds=5)
    assert standard.take(WaitTimeSeconds=20) == []
    assert standard.here.aws.sqs.next_visible_ms("q") == standard.here.clock.now + 5000


def test_with_the_system_clock_a_long_poll_wakes_at_a_message_and_at_closing() -> None:
    aws = LocalAws(clock=SystemClock(), seed=1)
    url = aws.create_queue("q")
    sqs = aws.session().create_client("sqs")
    got: list[Any] = []

    def poll() -> None:
        got.append(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20).get("Messages"))

    waiting = threading.Thread(target=poll)
    waiting.start()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    waiting.join(10)
    assert got[0][0]["Body"] == "x"
    waiting = threading.Thread(target=poll)
    waiting.start()
    aws.close()
    waiting.join(10)
    assert got[1] is None
