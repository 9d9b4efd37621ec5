"""Owns the embedded DynamoDB: one table's operations, each atomic, with AWS's rules and prices.

Refuses Scan (no role of the system may) and whatever AWS's own validation refuses. Every write
is decided whole before any of it is applied, so nothing is ever rolled back.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterable
from typing import Final

from infra.local.aws import change, expressions, queries, writes
from infra.local.aws.evaluate import Bindings
from infra.local.aws.rows import LAG_MS_MAX, IndexKeys, Key, Rows
from infra.local.aws.values import Item, canonical, invalid, item_size
from infra.local.aws.wire import NO_UNITS, Answer, AwsError, Json, Units
from infra.local.aws.writes import ConditionFailedError, Write
from mesh.kernel.clock import Clock

TRANSACTION_ITEMS_MAX: Final = 100
TRANSACTION_BYTES_MAX: Final = 4 * 1024 * 1024
TOKEN_LIFE_MS: Final = 10 * 60 * 1000

_WRITES: Final = {"PutItem": "Put", "UpdateItem": "Update", "DeleteItem": "Delete"}
_FAILED = "The conditional request failed"


class Dynamo:
    """One table behind a lock. `lag_random` draws how far behind each eventual read is."""

    def __init__(self, clock: Clock, lag_random: random.Random | None) -> None:
        self.lock = threading.RLock()
        self.left_over: Callable[[int], int] = lambda _: 0
        """How many of a batch's keys are left unread: a fault's hook."""
        self._clock = clock
        self._lag_random = lag_random
        self._name = ""
        self._rows = Rows(clock, ())
        self._tokens: dict[str, tuple[int, str]] = {}
        self._operations: dict[str, Callable[[Json], Answer]] = {
            "GetItem": self._get,
            "Query": self._query,
            "BatchGetItem": self._batch_get,
            "TransactGetItems": self._transact_get,
            "TransactWriteItems": self._transact_write,
            "DescribeTable": self._describe,
        }

    def create(self, name: str, indexes: tuple[IndexKeys, ...]) -> None:
        """Makes the table, empty."""
        with self.lock:
            self._name, self._rows = name, Rows(self._clock, indexes)

    @property
    def passed(self) -> int:
        """Rows that reads and writes have passed over so far."""
        return self._rows.passed

    def items(self) -> list[Item]:
        """Every row, in wire form. A full view, for tests alone."""
        with self.lock:
            return list(self._rows.all())

    def restore(self, items: Iterable[Item]) -> None:
        """Puts `items` (wire form, as `items` gave them) in the place of every row, as a restore of
        the table does: nothing else of the world goes back in time."""
        with self.lock:
            self._rows = Rows(self._clock, tuple(self._rows.indexes.values()))
            for item in items:
                self._rows.put((item["pk"]["S"], item["sk"]["S"]), item)

    def call(self, operation: str, body: Json) -> Answer:
        """Carries out one operation; raises AwsError."""
        with self.lock:
            if operation in _WRITES:
                self._check_table(body)
                return self._write(_WRITES[operation], body)
            if operation in self._operations:
                return self._operations[operation](body)
        if operation == "Scan":
            raise AwsError("AccessDeniedException", "no role of this system may Scan")
        raise AwsError("UnknownOperationException", f"the embedded AWS has no {operation}")

    def _check_table(self, body: Json) -> None:
        if body.get("TableName") != self._name or not self._name:
            raise AwsError("ResourceNotFoundException", "Requested resource not found")

    def _moment(self, consistent: bool) -> int | None:
        """The moment that a read sees: now, or up to LAG_MS_MAX ago."""
        if consistent or self._lag_random is None:
            return None
        return self._clock.now_ms() - self._lag_random.randint(0, LAG_MS_MAX)

    def _write(self, kind: str, body: Json) -> Answer:
        indexes = self._rows.indexes.values()
        write = writes.parse(kind, body, indexes)
        old = self._rows.get(write.key)
        try:
            new = write.resolve(old, indexes)
        except ConditionFailedError as failed:
            shown = {"Item": old} if failed.show and old is not None else {}
            problem = AwsError("ConditionalCheckFailedException", _FAILED, fields=shown)
            problem.units = Units(table_write=writes.write_units(old, None))
            raise problem from None
        by_index = writes.index_units(old, new, indexes)
        units = Units(writes.write_units(old, new), sum(by_index.values()))
        out: Json = {}
        if attributes := _returned(body.get("ReturnValues", "NONE"), write, old, new):
            out["Attributes"] = attributes
        self._rows.put(write.key, new)
        asked = body.get("ReturnConsumedCapacity")
        if priced := writes.capacity(self._name, units, by_index, asked):
            out["ConsumedCapacity"] = priced
        return Answer(out, units, wrote=True)

    def _transact_write(self, body: Json) -> Answer:
        parts = self._parts(body, TRANSACTION_ITEMS_MAX)
        token = body.get("ClientRequestToken")
        digest = json.dumps(body["TransactItems"], sort_keys=True)
        if token is not None and (earlier := self._spent(token)) is not None:
            if earlier != digest:
                raise AwsError(
                    "IdempotentParameterMismatchException",
                    "The request token was used with other parameters",
                )
            return Answer({})
        indexes = self._rows.indexes.values()
        planned = [writes.parse(kind, part, indexes) for kind, part in parts]
        if len({write.key for write in planned}) != len(planned):
            raise invalid("Transaction request cannot include multiple operations on one item")
        olds = [self._rows.get(write.key) for write in planned]
        news, reasons = self._decide(planned, olds)
        if any(reason["Code"] != "None" for reason in reasons):
            spent = sum(writes.write_units(old, None) for old in olds) * 2
            raise cancelled(reasons, Units(table_write=spent))
        if sum(item_size(new) for new in news) > TRANSACTION_BYTES_MAX:
            raise invalid("Collections of items in a transaction may hold at most 4 MB")
        by_index: dict[str, int] = {}
        table_write = 0
        for write, old, new in zip(planned, olds, news, strict=True):
            table_write += 2 * writes.write_units(old, new)
            for name, cost in writes.index_units(old, new, indexes).items():
                by_index[name] = by_index.get(name, 0) + cost
            if write.kind != "ConditionCheck":
                self._rows.put(write.key, new)
        if token is not None:
            self._tokens[token] = (self._clock.now_ms(), digest)
        units = Units(table_write, sum(by_index.values()))
        priced = writes.capacity(self._name, units, by_index, body.get("ReturnConsumedCapacity"))
        return Answer({"ConsumedCapacity": [priced]} if priced else {}, units, wrote=True)

    def _parts(self, body: Json, count_max: int) -> list[tuple[str, Json]]:
        """The one operation of each member of a transaction."""
        members = body.get("TransactItems") or []
        if not 1 <= len(members) <= count_max:
            raise invalid(f"Member must have length between 1 and {count_max}: transactItems")
        out: list[tuple[str, Json]] = []
        for member in members:
            if len(member) != 1:
                raise invalid("TransactItems can only contain one of its operations")
            ((kind, part),) = member.items()
            self._check_table(part)
            if kind == "ConditionCheck" and "ConditionExpression" not in part:
                raise invalid("ConditionExpression of a ConditionCheck is required")
            out.append((kind, part))
        return out

    def _decide(
        self, planned: list[Write], olds: list[Item | None]
    ) -> tuple[list[Item | None], list[Json]]:
        """Every row after the transaction, and every member's reason against it."""
        news: list[Item | None] = []
        reasons: list[Json] = []
        for write, old in zip(planned, olds, strict=True):
            reason: Json = {"Code": "None"}
            new = None
            try:
                new = write.resolve(old, self._rows.indexes.values())
            except ConditionFailedError as failed:
                reason = {"Code": "ConditionalCheckFailed", "Message": _FAILED}
                if failed.show and old is not None:
                    reason["Item"] = old
            except AwsError as problem:
                reason = {"Code": "ValidationError", "Message": problem.message}
            news.append(new)
            reasons.append(reason)
        return news, reasons

    def _spent(self, token: str) -> str | None:
        """What the token was used with in the last ten minutes, or None."""
        now = self._clock.now_ms()
        while self._tokens:
            oldest = next(iter(self._tokens))
            if now - self._tokens[oldest][0] < TOKEN_LIFE_MS:
                break
            del self._tokens[oldest]
        found = self._tokens.get(token)
        return None if found is None else found[1]

    def _get(self, body: Json) -> Answer:
        self._check_table(body)
        consistent = bool(body.get("ConsistentRead"))
        item = self._rows.get(writes.key_of(body["Key"]), self._moment(consistent))
        units = Units(read=writes.read_units(item_size(item), consistent))
        out: Json = {} if item is None else {"Item": _projected(item, body)}
        if priced := writes.capacity(self._name, units, {}, body.get("ReturnConsumedCapacity")):
            out["ConsumedCapacity"] = priced
        return Answer(out, units)

    def _query(self, body: Json) -> Answer:
        self._check_table(body)
        page = queries.run(self._rows, body, self._moment(bool(body.get("ConsistentRead"))))
        units = Units(read=page.read_units)
        out: Json = {"Count": len(page.items), "ScannedCount": page.scanned}
        if body.get("Select") != "COUNT":
            out["Items"] = page.items
        if page.last_key is not None:
            out["LastEvaluatedKey"] = page.last_key
        if priced := writes.capacity(self._name, units, {}, body.get("ReturnConsumedCapacity")):
            out["ConsumedCapacity"] = priced
        return Answer(out, units)

    def _batch_get(self, body: Json) -> Answer:
        ((table, part),) = body["RequestItems"].items()
        self._check_table({"TableName": table})
        keys: list[Key] = [writes.key_of(key) for key in part["Keys"]]
        if len(keys) > 100:
            raise invalid("Too many items requested for the BatchGetItem call")
        if len(set(keys)) != len(keys):
            raise invalid("Provided list of item keys contains duplicates")
        consistent = bool(part.get("ConsistentRead"))
        moment = self._moment(consistent)
        done = len(keys) - self.left_over(len(keys))
        found = [self._rows.get(key, moment) for key in keys[:done]]
        units = Units(read=sum(writes.read_units(item_size(item), consistent) for item in found))
        shown = [_projected(item, part) for item in found if item is not None]
        rest = {table: {**part, "Keys": part["Keys"][done:]}} if done < len(keys) else {}
        return Answer({"Responses": {table: shown}, "UnprocessedKeys": rest}, units)

    def _transact_get(self, body: Json) -> Answer:
        found = []
        for _, part in self._parts(body, TRANSACTION_ITEMS_MAX):
            found.append((self._rows.get(writes.key_of(part["Key"])), part))
        units = Units(read=2 * sum(writes.read_units(item_size(item), True) for item, _ in found))
        shown = [{} if item is None else {"Item": _projected(item, part)} for item, part in found]
        return Answer({"Responses": shown}, units)

    def _describe(self, body: Json) -> Answer:
        self._check_table(body)
        return Answer({"Table": {"TableName": self._name, "TableStatus": "ACTIVE"}})


def cancelled(reasons: list[Json], units: Units = NO_UNITS) -> AwsError:
    """The TransactionCanceledException that carries `reasons`, one for each member."""
    codes = ", ".join(reason["Code"] for reason in reasons)
    problem = AwsError(
        "TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
        fields={"CancellationReasons": reasons},
    )
    problem.units = units
    return problem


def _projected(item: Item, body: Json) -> Item:
    text = body.get("ProjectionExpression")
    if text is None:
        return item
    parsed = expressions.projection(text)
    return change.projected(item, parsed.tree, Bindings.of(body, parsed))


def _returned(wanted: str, write: Write, old: Item | None, new: Item | None) -> Item | None:
    """The attributes that `ReturnValues` asks for."""
    if wanted == "ALL_OLD":
        return old
    if write.kind != "Update":
        if wanted != "NONE":
            raise invalid("Return values set to invalid value")
        return None
    if wanted == "ALL_NEW":
        return new
    image = {"UPDATED_OLD": old, "UPDATED_NEW": new}.get(wanted)
    if image is None:
        return None
    touched = {str(write.bound.steps(action.path)[0]) for action in write.actions}
    return {name: canonical(image[name]) for name in touched if name in image}
