"""Eventual reads and indexes lag by up to three seconds of the injected clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MakeCloud = Callable[..., Any]


def listed(here: Any, owner: str) -> list[str]:
    answer = here.ddb.query(
        TableName="mesh",
        IndexName="lists",
        KeyConditionExpression="list_pk = :p",
        ExpressionAttributeValues={":p": {"S": owner}},
    )
    return [item["pk"]["S"] for item in answer["Items"]]


def test_an_eventual_read_may_miss_what_was_just_written_and_a_consistent_one_never_does(
    cloud: MakeCloud,
) -> None:
    here = cloud(lag=True)
    here.put("row", n={"N": "1"})
    here.clock.now += 1500
    here.update("row", "SET n = :n", ExpressionAttributeValues={":n": {"N": "2"}})
    here.clock.now += 700
    seen = set()
    for _ in range(200):
        item = here.get("row", consistent=False)
        seen.add(None if item is None else item["n"]["N"])
        assert here.get("row")["n"]["N"] == "2"
    assert seen == {None, "1", "2"}


def test_after_three_seconds_an_eventual_read_sees_everything(cloud: MakeCloud) -> None:
    here = cloud(lag=True)
    here.put("row")
    here.clock.now += 3000
    assert all(here.get("row", consistent=False) is not None for _ in range(100))


def test_a_deleted_row_may_still_be_seen_for_three_seconds_and_no_longer(cloud: MakeCloud) -> None:
    here = cloud(lag=True)
    here.put("row", list_pk={"S": "o"}, list_sk={"S": "1"})
    here.clock.now += 5000
    here.ddb.delete_item(TableName="mesh", Key={"pk": {"S": "row"}, "sk": {"S": "a"}})
    here.clock.now += 1000
    assert {len(listed(here, "o")) for _ in range(100)} == {0, 1}
    assert {here.get("row", consistent=False) is None for _ in range(100)} == {True, False}
    here.clock.now += 2001
    here.put("other")
    assert all(listed(here, "o") == [] for _ in range(100))
    assert all(here.get("row", consistent=False) is None for _ in range(100))


def test_an_index_lags_and_shows_a_moved_entry_in_one_place_at_a_time(cloud: MakeCloud) -> None:
    here = cloud(lag=True)
    here.put("row", list_pk={"S": "old"}, list_sk={"S": "1"})
    here.clock.now += 4000
    here.update("row", "SET list_pk = :p", ExpressionAttributeValues={":p": {"S": "new"}})
    here.clock.now += 1500
    assert {len(listed(here, "old")) for _ in range(100)} == {0, 1}
    assert {len(listed(here, "new")) for _ in range(100)} == {0, 1}
    here.clock.now += 1501
    assert listed(here, "old") == []
    assert listed(here, "new") == ["row"]


def test_an_eventual_query_of_the_table_lags_too(cloud: MakeCloud) -> None:
    here = cloud(lag=True)
    here.put("p", "1")
    here.clock.now += 1000

    def count(**more: Any) -> int:
        answer = here.ddb.query(
            TableName="mesh",
            KeyConditionExpression="pk = :p",
            ExpressionAttributeValues={":p": {"S": "p"}},
            **more,
        )
        return int(answer["Count"])

    assert {count() for _ in range(100)} == {0, 1}
    assert {count(ConsistentRead=True) for _ in range(20)} == {1}


def test_the_same_seed_lags_the_same(cloud: MakeCloud) -> None:
    def story(here: Any) -> list[bool]:
        here.put("row")
        here.clock.now += 1500
        return [here.get("row", consistent=False) is None for _ in range(50)]

    assert story(cloud(lag=True, seed=3)) == story(cloud(lag=True, seed=3))


def test_what_no_reader_can_see_any_more_is_forgotten(cloud: MakeCloud) -> None:
    here = cloud(lag=True)
    for number in range(50):
        here.put("row", n={"N": str(number)}, list_pk={"S": f"o{number}"}, list_sk={"S": "1"})
        here.clock.now += 200
    here.clock.now += 10_000
    here.put("other")
    rows = here.aws.dynamo._rows
    assert len(rows._cells["row", "a"].images) == 1
    assert [name for name in rows._views if name[0] == "lists"] == [("lists", "o49")]
