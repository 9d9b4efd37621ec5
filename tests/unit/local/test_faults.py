"""Faults come from a seed alone, stay bounded, and look like AWS's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from infra.local.aws import Broken, Faults, Killed, Kind, LocalAws, calling

MakeCloud = Callable[..., Any]
PUT = {"Put": {"TableName": "mesh", "Item": {"pk": {"S": "t"}, "sk": {"S": "a"}}}}
CHECK = {
    "ConditionCheck": {
        "TableName": "mesh",
        "Key": {"pk": {"S": "other"}, "sk": {"S": "a"}},
        "ConditionExpression": "attribute_not_exists(pk)",
    }
}


def always(kind: Kind, in_a_row_max: int = 1) -> Faults:
    return Faults(1, rates={kind: 1.0}, in_a_row_max=in_a_row_max)


def code_of(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


def test_without_a_seed_nothing_goes_wrong(cloud: MakeCloud) -> None:
    here = cloud()
    with here.aws.recording() as calls:
        for number in range(50):
            here.put(f"row{number}")
    assert {call.outcome for call in calls} == {"ok"}
    assert len(calls) == 50


def test_a_conflict_names_one_member_carries_no_item_and_is_not_retried_by_the_sdk(
    cloud: MakeCloud,
) -> None:
    here = cloud(always(Kind.CONFLICT))
    with here.aws.recording() as calls, pytest.raises(ClientError) as caught:
        here.ddb.transact_write_items(TransactItems=[PUT, CHECK])
    assert code_of(caught) == "TransactionCanceledException"
    reasons = caught.value.response["CancellationReasons"]
    assert sorted(reason["Code"] for reason in reasons) == ["None", "TransactionConflict"]
    assert all("Item" not in reason for reason in reasons)
    assert len(calls) == 1
    assert here.get("t") is None


def test_a_single_write_may_meet_a_transaction(cloud: MakeCloud) -> None:
    here = cloud(always(Kind.CONFLICT, in_a_row_max=2))
    with pytest.raises(ClientError) as caught:
        here.put("row")
    assert code_of(caught) == "TransactionConflictException"


def test_a_throttle_is_retried_and_its_back_off_waits_on_the_injected_clock(
    cloud: MakeCloud,
) -> None:
    here = cloud(always(Kind.THROTTLE))
    with here.aws.recording() as calls:
        here.put("row")
    assert [call.outcome for call in calls] == ["ProvisionedThroughputExceededException", "ok"]
    assert len(here.clock.slept) == 1


def test_faults_in_a_row_are_bounded(cloud: MakeCloud) -> None:
    here = cloud(always(Kind.THROTTLE, in_a_row_max=2))
    with pytest.raises(ClientError):
        here.put("row")
    here.put("row")
    assert here.aws.faults.counts == {Kind.THROTTLE: 2}


def test_a_lost_answer_was_applied_and_the_sdk_tries_again(cloud: MakeCloud) -> None:
    here = cloud(always(Kind.LOST))
    here.update("row", "ADD n :one", ExpressionAttributeValues={":one": {"N": "1"}})
    assert here.get("row")["n"] == {"N": "2"}


def test_a_lost_answer_of_a_transaction_is_applied_once_by_its_token(cloud: MakeCloud) -> None:
    here = cloud(always(Kind.LOST))
    update = {
        "Update": {
            "TableName": "mesh",
            "Key": {"pk": {"S": "t"}, "sk": {"S": "a"}},
            "UpdateExpression": "ADD n :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }
    with here.aws.recording() as calls:
        here.ddb.transact_write_items(TransactItems=[update])
    assert [call.outcome for call in calls] == ["lost", "ok"]
    assert here.get("t")["n"] == {"N": "1"}


def test_an_answer_lost_twice_is_an_error_of_the_connection(cloud: MakeCloud) -> None:
    here = cloud(always(Kind.LOST, in_a_row_max=2))
    with pytest.raises((ConnectionClosedError, ReadTimeoutError)):
        here.put("row")
    assert list(here.aws.items()) == [{"pk": "row", "sk": "a"}]


def test_an_unreachable_endpoint_applied_nothing(cloud: MakeCloud) -> None:
    here = cloud(always(Kind.UNREACHABLE, in_a_row_max=2))
    with pytest.raises(EndpointConnectionError):
        here.put("row")
    assert list(here.aws.items()) == []


def test_a_message_may_come_twice_and_late(cloud: MakeCloud) -> None:
    here = cloud(Faults(1, rates={Kind.DUPLICATE: 1.0, Kind.LATE: 1.0}))
    url = here.aws.create_queue("q")
    here.sqs.send_message(QueueUrl=url, MessageBody="x")
    assert "Messages" not in here.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    here.clock.now += 10_000
    messages = here.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in messages] == ["x", "x"]
    assert len({message["MessageId"] for message in messages}) == 1
    assert len({message["ReceiptHandle"] for message in messages}) == 2


def test_a_batch_read_may_leave_keys_to_ask_for_again(cloud: MakeCloud) -> None:
    here = cloud(Faults(1, rates={Kind.UNPROCESSED: 1.0}))
    keys = [{"pk": {"S": f"row{n}"}, "sk": {"S": "a"}} for n in range(5)]
    for number in range(5):
        here.put(f"row{number}")
    found, asked, tries = 0, {"mesh": {"Keys": keys, "ConsistentRead": True}}, 0
    while asked:
        answer = here.ddb.batch_get_item(RequestItems=asked)
        found += len(answer["Responses"]["mesh"])
        asked = answer["UnprocessedKeys"]
        tries += 1
    assert found == 5
    assert tries > 1


def test_the_same_seed_gives_the_same_faults(cloud: MakeCloud) -> None:
    def story() -> list[str]:
        here = cloud(Faults(5, rates={Kind.THROTTLE: 0.3, Kind.LOST: 0.3}))
        with here.aws.recording() as calls:
            for number in range(40):
                try:
                    here.put(f"row{number}")
                except (ClientError, ConnectionClosedError, ReadTimeoutError):
                    continue
        return [call.outcome for call in calls]

    first = story()
    assert first == story()
    assert {"ok", "lost", "ProvisionedThroughputExceededException"} == set(first)


def test_faults_can_be_held_back_while_something_is_prepared(cloud: MakeCloud) -> None:
    here = cloud(always(Kind.THROTTLE, in_a_row_max=1_000_000))
    with here.aws.without_faults():
        here.put("row")
    with pytest.raises(ClientError):
        here.put("row")


def test_a_kill_before_a_call_applies_nothing_and_after_it_everything(cloud: MakeCloud) -> None:
    here = cloud()
    here.aws.kill_at(2, "before")
    here.put("one")
    with pytest.raises(Killed):
        here.put("two")
    here.aws.kill_at(1, "after")
    with pytest.raises(Killed):
        here.put("three")
    here.put("four")
    assert sorted(item["pk"] for item in here.aws.items()) == ["four", "one", "three"]


def test_a_kill_can_be_meant_for_one_caller(cloud: MakeCloud) -> None:
    here = cloud()
    here.aws.kill_at(1, "before", caller="turn_worker")
    with calling("generic_ingress"):
        here.put("one")
    with calling("turn_worker"), pytest.raises(Killed):
        here.put("two")


def test_a_kill_passes_code_that_handles_every_exception(cloud: MakeCloud) -> None:
    here = cloud()
    here.aws.kill_at(1, "after")
    with pytest.raises(Killed), contextlib.suppress(Exception):
        here.put("one")


def test_after_every_write_the_rows_can_be_looked_at(cloud: MakeCloud) -> None:
    here = cloud()
    seen: list[int] = []
    here.aws.on_write(lambda aws: seen.append(len(list(aws.items()))))
    here.put("one")
    here.get("one")
    here.ddb.transact_write_items(TransactItems=[PUT, CHECK])
    with pytest.raises(ClientError):
        here.put("one", condition="attribute_not_exists(pk)")
    assert seen == [1, 2]


def test_an_objection_to_the_rows_is_not_swallowed_by_the_product(cloud: MakeCloud) -> None:
    here = cloud()

    def object_to(aws: LocalAws) -> None:
        assert not list(aws.items()), "a row"

    here.aws.on_write(object_to)
    with pytest.raises(Broken, match="a row"):
        here.put("one")


def test_calls_are_counted_with_their_caller(cloud: MakeCloud) -> None:
    here = cloud()
    labelled = here.aws.session(caller="sweep_due").create_client("dynamodb")
    with here.aws.recording() as calls:
        here.put("one")
        with calling("generic_ingress"):
            here.get("one")
        labelled.describe_table(TableName="mesh")
    assert [(call.service, call.operation, call.caller) for call in calls] == [
        ("dynamodb", "PutItem", ""),
        ("dynamodb", "GetItem", "generic_ingress"),
        ("dynamodb", "DescribeTable", "sweep_due"),
    ]


def test_rows_are_shown_as_plain_values(cloud: MakeCloud) -> None:
    here = cloud()
    here.put("one", n={"N": "5"}, b={"B": b"\0"}, s={"SS": ["x"]}, m={"M": {"l": {"L": []}}})
    (item,) = here.aws.items()
    assert item == {"pk": "one", "sk": "a", "n": 5, "b": b"\0", "s": {"x"}, "m": {"l": []}}


def test_the_settings_of_the_machine_do_not_matter(
    cloud: MakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "somebody")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    here = cloud()
    here.put("row")
    assert here.get("row") is not None


def test_a_service_that_is_not_there_is_refused_and_no_socket_is_opened(cloud: MakeCloud) -> None:
    session = cloud().aws.session()
    with pytest.raises(EndpointConnectionError):
        session.create_client("sts").get_caller_identity()
