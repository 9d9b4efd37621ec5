"""The embedded DynamoDB keeps AWS's promises and its limits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

MakeCloud = Callable[..., Any]


def code_of(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


def put(pk: str, sk: str = "a", condition: str | None = None, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"TableName": "mesh", "Item": {"pk": {"S": pk}, "sk": {"S": sk}, **more}}
    if condition is not None:
        body["ConditionExpression"] = condition
        body["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return {"Put": body}


def test_sixteen_threads_claiming_two_hundred_keys_have_exactly_one_winner_each(
    cloud: MakeCloud,
) -> None:
    here = cloud()
    wins: list[str] = []
    codes: set[str] = set()
    start = threading.Barrier(16)

    def claim(name: str) -> None:
        start.wait()
        for number in range(200):
            try:
                here.ddb.transact_write_items(
                    TransactItems=[
                        put(f"claim{number}", condition="attribute_not_exists(pk)"),
                        {
                            "Update": {
                                "TableName": "mesh",
                                "Key": {"pk": {"S": "counter"}, "sk": {"S": "a"}},
                                "UpdateExpression": "ADD n :one",
                                "ExpressionAttributeValues": {":one": {"N": "1"}},
                            }
                        },
                    ]
                )
            except ClientError as error:
                codes.add(error.response["Error"]["Code"])
            else:
                wins.append(f"{number}")

    threads = [threading.Thread(target=claim, args=(str(each),)) for each in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == len(set(wins)) == 200
    assert codes <= {"TransactionCanceledException"}
    assert here.get("counter")["n"] == {"N": "200"}


def test_a_transaction_that_fails_changes_nothing_and_names_each_reason(cloud: MakeCloud) -> None:
    here = cloud()
    here.put("taken", body={"S": "old"})
    with pytest.raises(ClientError) as caught:
        here.ddb.transact_write_items(
            TransactItems=[
                put("fresh"),
                put("taken", condition="attribute_not_exists(pk)"),
            ]
        )
    assert code_of(caught) == "TransactionCanceledException"
    reasons = caught.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ConditionalCheckFailed"]
    assert reasons[1]["Item"]["body"] == {"S": "old"}
    assert here.get("fresh") is None


def test_a_failed_condition_brings_the_old_item_back_when_asked(cloud: MakeCloud) -> None:
    here = cloud()
    here.put("row", n={"N": "3"})
    with pytest.raises(ClientError) as caught:
        here.update(
            "row",
            "SET n = :n",
            ConditionExpression="n < :n",
            ExpressionAttributeValues={":n": {"N": "2"}},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert code_of(caught) == "ConditionalCheckFailedException"
    assert caught.value.response["Item"]["n"] == {"N": "3"}


def test_a_request_token_applies_a_transaction_once_in_ten_minutes(cloud: MakeCloud) -> None:
    here = cloud()
    add = {
        "Update": {
            "TableName": "mesh",
            "Key": {"pk": {"S": "counter"}, "sk": {"S": "a"}},
            "UpdateExpression": "ADD n :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }
    for _ in range(3):
        here.ddb.transact_write_items(TransactItems=[add], ClientRequestToken="t1")
    assert here.get("counter")["n"] == {"N": "1"}
    with pytest.raises(ClientError) as caught:
        here.ddb.transact_write_items(TransactItems=[put("other")], ClientRequestToken="t1")
    assert code_of(caught) == "IdempotentParameterMismatchException"
    here.clock.now += 10 * 60 * 1000
    here.ddb.transact_write_items(TransactItems=[add], ClientRequestToken="t1")
    assert here.get("counter")["n"] == {"N": "2"}


def test_a_cancelled_transaction_does_not_spend_its_token(cloud: MakeCloud) -> None:
    here = cloud()
    here.put("taken")
    items = [put("taken", condition="attribute_not_exists(pk)")]
    with pytest.raises(ClientError):
        here.ddb.transact_write_items(TransactItems=items, ClientRequestToken="t1")
    here.ddb.delete_item(TableName="mesh", Key={"pk": {"S": "taken"}, "sk": {"S": "a"}})
    here.ddb.transact_write_items(TransactItems=items, ClientRequestToken="t1")
    assert here.get("taken") is not None


@pytest.mark.parametrize(
    "item",
    [
        pytest.param({"pk": {"S": "x" * 2049}, "sk": {"S": "a"}}, id="long partition key"),
        pytest.param({"pk": {"S": "é" * 1025}, "sk": {"S": "a"}}, id="bytes count, not characters"),
        pytest.param({"pk": {"S": "x"}, "sk": {"S": "x" * 1025}}, id="long sort key"),
        pytest.param({"pk": {"S": ""}, "sk": {"S": "a"}}, id="empty partition key"),
        pytest.param({"pk": {"S": "x"}, "sk": {"S": ""}}, id="empty sort key"),
        pytest.param({"pk": {"N": "1"}, "sk": {"S": "a"}}, id="key of another type"),
        pytest.param({"pk": {"S": "x"}}, id="missing key"),
        pytest.param(
            {"pk": {"S": "x"}, "sk": {"S": "a"}, "b": {"S": "x" * 409_600}}, id="over 400 KB"
        ),
        pytest.param({"pk": {"S": "x"}, "sk": {"S": "a"}, "due_at": {"S": "1"}}, id="index type"),
        pytest.param({"pk": {"S": "x"}, "sk": {"S": "a"}, "list_pk": {"S": ""}}, id="empty index"),
        pytest.param({"pk": {"S": "x"}, "sk": {"S": "a"}, "n": {"N": "1" * 39}}, id="39 digits"),
        pytest.param({"pk": {"S": "x"}, "sk": {"S": "a"}, "n": {"N": "1E126"}}, id="too large"),
        pytest.param({"pk": {"S": "x"}, "sk": {"S": "a"}, "n": {"N": "one"}}, id="no number"),
        pytest.param({"pk": {"S": "x"}, "sk": {"S": "a"}, "s": {"SS": []}}, id="empty set"),
        pytest.param({"pk": {"S": "x"}, "sk": {"S": "a"}, "s": {"SS": ["a", "a"]}}, id="twice"),
    ],
)
def test_an_item_that_aws_refuses_is_refused(cloud: MakeCloud, item: dict[str, Any]) -> None:
    here = cloud()
    with pytest.raises(ClientError) as caught:
        here.ddb.put_item(TableName="mesh", Item=item)
    assert code_of(caught) == "ValidationException"
    assert list(here.aws.items()) == []


def test_an_update_may_not_grow_an_item_past_400_kb(cloud: MakeCloud) -> None:
    here = cloud()
    here.put("row", a={"S": "x" * 300_000})
    with pytest.raises(ClientError) as caught:
        here.update("row", "SET b = :b", ExpressionAttributeValues={":b": {"S": "x" * 110_000}})
    assert code_of(caught) == "ValidationException"


def test_the_largest_keys_and_the_longest_numbers_are_taken(cloud: MakeCloud) -> None:
    here = cloud()
    here.put("x" * 2048, "y" * 1024, n={"N": "1" * 38}, m={"N": "-1.50e2"})
    assert here.get("x" * 2048, "y" * 1024)["m"] == {"N": "-150"}


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([put(f"k{n}") for n in range(101)], id="101 items"),
        pytest.param([put("same"), put("same")], id="one item twice"),
        pytest.param([put(f"k{n}", b={"S": "x" * 400_000}) for n in range(11)], id="over 4 MB"),
        pytest.param([{**put("a"), "Delete": put("b")["Put"]}], id="two in one"),
    ],
)
def test_a_transaction_that_aws_refuses_is_refused(
    cloud: MakeCloud, items: list[dict[str, Any]]
) -> None:
    here = cloud()
    if len(items) == 1:
        items[0]["Delete"] = {"TableName": "mesh", "Key": {"pk": {"S": "b"}, "sk": {"S": "a"}}}
    with pytest.raises(ClientError) as caught:
        here.ddb.transact_write_items(TransactItems=items)
    assert code_of(caught) == "ValidationException"
    assert list(here.aws.items()) == []


def test_expired_items_stay_visible(cloud: MakeCloud) -> None:
    here = cloud()
    here.put("row", ttl={"N": str(here.clock.now // 1000 - 3600)})
    here.clock.now += 24 * 3600 * 1000
    assert here.get("row") is not None


def test_scan_is_refused(cloud: MakeCloud) -> None:
    with pytest.raises(ClientError) as caught:
        cloud().ddb.scan(TableName="mesh")
    assert code_of(caught) == "AccessDeniedException"


def test_a_query_reads_in_order_and_pages(cloud: MakeCloud) -> None:
    here = cloud()
    for number in (3, 1, 2, 10):
        here.put("conv", f"PEND#{number:04d}")
    here.put("conv", "STATE")
    here.put("other", "PEND#0001")

    def page(**more: Any) -> tuple[list[str], Any]:
        answer = here.ddb.query(
            TableName="mesh",
            ConsistentRead=True,
            KeyConditionExpression="pk = :p AND begins_with(sk, :s)",
            ExpressionAttributeValues={":p": {"S": "conv"}, ":s": {"S": "PEND#"}},
            **more,
        )
        return [item["sk"]["S"] for item in answer["Items"]], answer.get("LastEvaluatedKey")

    assert page()[0] == ["PEND#0001", "PEND#0002", "PEND#0003", "PEND#0010"]
    assert page(ScanIndexForward=False, Limit=1)[0] == ["PEND#0010"]
    first, after = page(Limit=3)
    assert first == ["PEND#0001", "PEND#0002", "PEND#0003"]
    assert page(Limit=3, ExclusiveStartKey=after) == (["PEND#0010"], None)
    back, after = page(Limit=2, ScanIndexForward=False)
    assert back == ["PEND#0010", "PEND#0003"]
    rest = page(ScanIndexForward=False, ExclusiveStartKey=after)
    assert rest == (["PEND#0002", "PEND#0001"], None)


@pytest.mark.parametrize(
    ("test", "wanted"),
    [
        ("due_at = :a", [20]),
        ("due_at < :a", [5]),
        ("due_at <= :a", [5, 20]),
        ("due_at > :a", [100]),
        ("due_at >= :a", [20, 100]),
        ("due_at BETWEEN :a AND :b", [20, 100]),
    ],
)
def test_an_index_sorts_numbers_as_numbers_and_shows_keys_only(
    cloud: MakeCloud, test: str, wanted: list[int]
) -> None:
    here = cloud()
    for number in (100, 5, 20):
        here.put(f"c{number}", due_pk={"S": "D1"}, due_at={"N": str(number)}, secret={"S": "x"})
    here.put("without", due_at={"N": "20"})
    values = {":d": {"S": "D1"}, ":a": {"N": "20"}}
    if ":b" in test:
        values[":b"] = {"N": "100"}
    answer = here.ddb.query(
        TableName="mesh",
        IndexName="due",
        KeyConditionExpression=f"due_pk = :d AND {test}",
        ExpressionAttributeValues=values,
    )
    assert [int(item["due_at"]["N"]) for item in answer["Items"]] == wanted
    assert all(set(item) == {"pk", "sk", "due_pk", "due_at"} for item in answer["Items"])


def test_an_index_follows_moves_and_removals(cloud: MakeCloud) -> None:
    here = cloud()

    def due(shard: str) -> list[str]:
        answer = here.ddb.query(
            TableName="mesh",
            IndexName="due",
            KeyConditionExpression="due_pk = :d",
            ExpressionAttributeValues={":d": {"S": shard}},
        )
        return [item["pk"]["S"] for item in answer["Items"]]

    here.put("c", due_pk={"S": "D1"}, due_at={"N": "1"})
    assert due("D1") == ["c"]
    here.clock.now += 10
    here.update("c", "SET due_pk = :d", ExpressionAttributeValues={":d": {"S": "D2"}})
    assert (due("D1"), due("D2")) == ([], ["c"])
    here.update("c", "REMOVE due_pk, due_at")
    assert (due("D1"), due("D2")) == ([], [])


def test_an_index_cannot_be_read_consistently(cloud: MakeCloud) -> None:
    with pytest.raises(ClientError) as caught:
        cloud().ddb.query(
            TableName="mesh",
            IndexName="due",
            ConsistentRead=True,
            KeyConditionExpression="due_pk = :d",
            ExpressionAttributeValues={":d": {"S": "D1"}},
        )
    assert code_of(caught) == "ValidationException"


def test_the_work_of_a_transaction_and_a_query_does_not_grow_with_the_table(
    cloud: MakeCloud,
) -> None:
    here = cloud()

    def work(number: int) -> int:
        before = here.aws.dynamo.passed
        here.ddb.transact_write_items(
            TransactItems=[put("story", f"{number}#{n}") for n in range(5)]
        )
        here.ddb.query(
            TableName="mesh",
            ConsistentRead=True,
            Limit=5,
            KeyConditionExpression="pk = :p",
            ExpressionAttributeValues={":p": {"S": "filling"}},
        )
        return int(here.aws.dynamo.passed - before)

    def fill(start: int, end: int) -> None:
        for number in range(start, end, 100):
            members = [put("filling", f"{n:06d}") for n in range(number, min(number + 100, end))]
            here.ddb.transact_write_items(TransactItems=members)

    fill(0, 10)
    small = work(1)
    fill(10, 5_000)
    assert work(2) == small == 10


def test_write_units_are_counted_by_kilobytes_and_twice_in_transactions(cloud: MakeCloud) -> None:
    here = cloud()
    with here.aws.recording() as calls:
        here.put("small")
        here.put("small", body={"S": "x" * 1025})
        here.put("small")
        here.ddb.transact_write_items(TransactItems=[put("a"), put("b", b={"S": "x" * 1025})])
        here.put("due", due_pk={"S": "D"}, due_at={"N": "1"})
        here.update("due", "SET due_at = :n", ExpressionAttributeValues={":n": {"N": "2"}})
        here.update("due", "SET note = :n", ExpressionAttributeValues={":n": {"N": "2"}})
    assert [call.table_write for call in calls] == [1, 2, 2, 6, 1, 1, 1]
    assert [call.index_write for call in calls] == [0, 0, 0, 0, 1, 2, 0]


def test_read_units_are_counted_by_four_kilobytes_and_half_when_eventual(cloud: MakeCloud) -> None:
    here = cloud()
    for number in range(5):
        here.put("p", str(number), body={"S": "x" * 1000})
    query = {
        "TableName": "mesh",
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": {":p": {"S": "p"}},
    }
    with here.aws.recording() as calls:
        here.get("p", "0")
        here.get("p", "0", consistent=False)
        here.get("nothing")
        here.ddb.query(**query, ConsistentRead=True)
        here.ddb.query(**query)
    assert [call.read for call in calls] == [1, 0.5, 1, 2, 1]


def test_consumed_capacity_tells_table_and_indexes_apart(cloud: MakeCloud) -> None:
    here = cloud()
    answer = here.ddb.transact_write_items(
        TransactItems=[put("a", due_pk={"S": "D"}, due_at={"N": "1"})],
        ReturnConsumedCapacity="INDEXES",
    )
    (capacity,) = answer["ConsumedCapacity"]
    assert capacity["Table"] == {"CapacityUnits": 2.0}
    assert capacity["GlobalSecondaryIndexes"] == {"due": {"CapacityUnits": 1.0}}
    assert capacity["CapacityUnits"] == 3.0
