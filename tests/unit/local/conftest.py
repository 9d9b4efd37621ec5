"""Owns what the tests of the embedded AWS share: a clock that only they move, and an emulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.config import Config

from infra.local.aws import Faults, LocalAws

TABLE = "mesh"


@dataclass
class Hand:
    """A clock that stands still until somebody moves it, or sleeps on it."""

    now: int = 1_800_000_000_000
    slept: list[float] = field(default_factory=list)

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += int(seconds * 1000)


@dataclass
class Cloud:
    """An emulator with its clients."""

    aws: LocalAws
    clock: Hand
    ddb: Any
    sqs: Any
    kms: Any
    events: Any

    def put(self, pk: str, sk: str = "a", **more: Any) -> Any:
        condition = more.pop("condition", None)
        extra = {} if condition is None else {"ConditionExpression": condition}
        item = {"pk": {"S": pk}, "sk": {"S": sk}, **more}
        return self.ddb.put_item(TableName=TABLE, Item=item, **extra)

    def get(self, pk: str, sk: str = "a", *, consistent: bool = True) -> Any:
        key = {"pk": {"S": pk}, "sk": {"S": sk}}
        answer = self.ddb.get_item(TableName=TABLE, Key=key, ConsistentRead=consistent)
        return answer.get("Item")

    def update(self, pk: str, expression: str, **more: Any) -> Any:
        return self.ddb.update_item(
            TableName=TABLE,
            Key={"pk": {"S": pk}, "sk": {"S": more.pop("sk", "a")}},
            UpdateExpression=expression,
            **more,
        )


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def cloud(clock: Hand) -> Callable[..., Cloud]:
    """Makes an emulator with a table; lag and faults only when asked for."""

    def make(faults: Faults | None = None, *, lag: bool = False, seed: int = 7) -> Cloud:
        aws = LocalAws(clock=clock, seed=seed, faults=faults, lag=lag)
        aws.create_table(TABLE)
        session = aws.session()
        config = Config(retries={"mode": "standard", "total_max_attempts": 2})
        clients = [
            session.create_client(name, config=config)
            for name in ("dynamodb", "sqs", "kms", "events")
        ]
        return Cloud(aws, clock, *clients)

    return make
