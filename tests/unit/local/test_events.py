"""The embedded EventBridge takes what EventBridge takes, and says of the rest why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError, ParamValidationError
from moto import mock_aws

MakeCloud = Callable[..., Any]


def entry(**more: Any) -> dict[str, Any]:
    return {"Source": "mesh.test", "DetailType": "x", "Detail": '{"a":1}'} | more


def refusals(answer: dict[str, Any]) -> list[str | None]:
    assert answer["FailedEntryCount"] == sum("ErrorCode" in each for each in answer["Entries"])
    return [each.get("ErrorCode") for each in answer["Entries"]]


def test_an_event_stands_on_its_bus_as_it_was_put(cloud: MakeCloud) -> None:
    here = cloud()
    here.aws.events.create("shop")
    answer = here.events.put_events(Entries=[entry(), entry(EventBusName="shop", DetailType="y")])
    assert refusals(answer) == [None, None]
    (first,), (second,) = here.aws.events.events(), here.aws.events.events("shop")
    assert (first.source, first.detail_type, first.detail) == ("mesh.test", "x", {"a": 1})
    assert (second.detail_type, second.at_ms) == ("y", here.clock.now_ms())
    assert [each["EventId"] for each in answer["Entries"]] == [first.id, second.id]


def test_what_is_wrong_with_one_entry_keeps_no_other_out(cloud: MakeCloud) -> None:
    here = cloud()
    wrong = {
        "InvalidArgument": [{"Source": ""}, {"DetailType": ""}, {"Detail": ""}],
        "MalformedDetail": [{"Detail": "{"}, {"Detail": "[1]"}, {"Detail": '"x"'}],
        "NotAuthorizedForSourceException": [{"Source": "aws.ec2"}],
    }
    for code, cases in wrong.items():
        for case in cases:
            answer = here.events.put_events(Entries=[entry(**case), entry()])
            assert refusals(answer) == [code, None], case
    assert len(here.aws.events.events()) == sum(map(len, wrong.values()))


def test_a_request_has_ten_entries_and_256_kib_at_most(cloud: MakeCloud) -> None:
    here = cloud()
    room = 256 * 1024 - len("mesh.test" + "x")
    fits = json.dumps({"a": "x" * (room - len('{"a": ""}'))})
    assert refusals(here.events.put_events(Entries=[entry(Detail=fits)])) == [None]
    with pytest.raises(ParamValidationError):
        here.events.put_events(Entries=[])
    for entries in ([entry()] * 11, [entry(Detail=fits + " ")], [entry(Detail=fits), entry()]):
        with pytest.raises(ClientError) as caught:
            here.events.put_events(Entries=entries)
        assert caught.value.response["Error"]["Code"] == "ValidationException"
    assert len(here.aws.events.events()) == 1


def test_a_bus_that_does_not_exist_takes_nothing_of_the_request(cloud: MakeCloud) -> None:
    here = cloud()
    with pytest.raises(ClientError) as caught:
        here.events.put_events(Entries=[entry(), entry(EventBusName="nobody")])
    assert caught.value.response["Error"]["Code"] == "ResourceNotFoundException"
    assert here.aws.events.events() == []


@pytest.mark.parametrize(
    "entries",
    [
        [entry()],
        [entry(Source="")],
        [entry(DetailType="")],
        [entry(Detail="")],
        [entry(Detail="{"), entry()],
        [entry(EventBusName="nobody")],
        [entry()] * 11,
    ],
)
def test_another_emulator_answers_alike(cloud: MakeCloud, entries: list[dict[str, Any]]) -> None:
    ours = answered(cloud().events, entries)
    with mock_aws():
        session = botocore.session.Session()
        session.set_credentials("test", "test")
        theirs = answered(session.create_client("events", region_name="eu-west-1"), entries)
    assert ours == theirs


def answered(client: Any, entries: list[dict[str, Any]]) -> list[str | None]:
    try:
        return refusals(client.put_events(Entries=entries))
    except ClientError as error:
        return [error.response["Error"]["Code"]]


def test_a_bus_remembers_the_newest_events_alone(cloud: MakeCloud) -> None:
    here = cloud()
    for number in range(101):
        entries = [entry(DetailType=f"{number}.{each}") for each in range(10)]
        here.events.put_events(Entries=entries)
    kept = here.aws.events.events()
    assert (len(kept), kept[0].detail_type, kept[-1].detail_type) == (1_000, "1.0", "100.9")
