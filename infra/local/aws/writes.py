"""Owns one write of one row: its static checks, its condition, the row that it makes, its price.

Refuses what AWS refuses before it applies anything; applying is `dynamo`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Final

from infra.local.aws import change, evaluate, expressions
from infra.local.aws.evaluate import Bindings
from infra.local.aws.rows import IndexKeys, Key
from infra.local.aws.syntax import Action, Condition
from infra.local.aws.values import (
    ITEM_BYTES_MAX,
    Item,
    Value,
    canonical,
    invalid,
    item_size,
    size_of,
)
from infra.local.aws.wire import Json, Units

PARTITION_KEY_BYTES_MAX: Final = 2048
SORT_KEY_BYTES_MAX: Final = 1024
KEYS: Final = frozenset({"pk", "sk"})

_KEY_LIMITS: Final = (("pk", PARTITION_KEY_BYTES_MAX), ("sk", SORT_KEY_BYTES_MAX))


class ConditionFailedError(Exception):
    """The condition does not hold of `old`, which the caller asked to see when `show`."""

    def __init__(self, old: Item | None, show: bool) -> None:
        super().__init__("the condition does not hold")
        self.old = old
        self.show = show


@dataclass(frozen=True, slots=True)
class Write:
    """A put, update, delete or check of one row, parsed and statically sound."""

    kind: str
    key: Key
    item: Item | None
    actions: tuple[Action, ...]
    condition: Condition | None
    bound: Bindings
    show_old: bool

    def resolve(self, old: Item | None, indexes: Iterable[IndexKeys]) -> Item | None:
        """The row after this write; raises ConditionFailedError or AwsError, changes nothing."""
        if self.condition is not None and not evaluate.holds(self.condition, old or {}, self.bound):
            raise ConditionFailedError(old, self.show_old)
        match self.kind:
            case "ConditionCheck":
                return old
            case "Delete":
                return None
            case "Put":
                return self.item
        start = old or {"pk": {"S": self.key[0]}, "sk": {"S": self.key[1]}}
        made = change.updated(self.actions, start, self.bound)
        _check_item(made, indexes, "Item size to update has exceeded the maximum allowed size")
        return made


def parse(kind: str, body: Json, indexes: Iterable[IndexKeys]) -> Write:
    """The write that `body` asks for: `Put`, `Update`, `Delete` or `ConditionCheck`."""
    condition = update = None
    if (text := body.get("ConditionExpression")) is not None:
        condition = expressions.condition(text)
    if (text := body.get("UpdateExpression")) is not None:
        update = expressions.update(text)
    bound = Bindings.of(body, condition, update)
    if condition is not None:
        evaluate.check_types(condition.tree, bound)
    item = None
    if kind == "Put":
        item = {name: canonical(value) for name, value in body["Item"].items()}
        key = key_of({name: item[name] for name in KEYS if name in item})
        _check_item(item, indexes, "Item size has exceeded the maximum allowed size")
    else:
        key = key_of(body["Key"])
    if update is not None:
        change.check_paths(update.tree, bound, KEYS)
    return Write(
        kind=kind,
        key=key,
        item=item,
        actions=() if update is None else update.tree,
        condition=None if condition is None else condition.tree,
        bound=bound,
        show_old=body.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD",
    )


def key_of(given: dict[str, Value]) -> Key:
    """The row's key; raises AwsError for missing, spare, empty, long or mistyped parts."""
    if set(given) != KEYS:
        raise invalid("The provided key element does not match the schema")
    parts = []
    for name, bytes_max in _KEY_LIMITS:
        if "S" not in given[name]:
            raise invalid(
                "One or more parameter values were invalid: Type mismatch for key "
                f"{name} expected: S actual: {next(iter(given[name]))}"
            )
        parts.append(_key_text(name, given[name]["S"], bytes_max))
    return parts[0], parts[1]


def _key_text(name: str, text: str, bytes_max: int) -> str:
    if not text:
        raise invalid(
            "One or more parameter values are not valid. The AttributeValue for a key attribute "
            f"cannot contain an empty string value. Key: {name}"
        )
    if len(text.encode()) > bytes_max:
        raise invalid(
            "One or more parameter values were invalid: Size of "
            f"{'hashkey' if name == 'pk' else 'rangekey'} has exceeded the maximum size limit of "
            f"{bytes_max} bytes"
        )
    return text


def _check_item(item: Item, indexes: Iterable[IndexKeys], too_big: str) -> None:
    if item_size(item) > ITEM_BYTES_MAX:
        raise invalid(too_big)
    for index in indexes:
        wanted = (
            (index.hash_key, "S", PARTITION_KEY_BYTES_MAX),
            (index.range_key, "N" if index.range_is_number else "S", SORT_KEY_BYTES_MAX),
        )
        for name, kind, bytes_max in wanted:
            value = item.get(name)
            if value is None:
                continue
            if kind not in value:
                raise invalid(
                    "One or more parameter values were invalid: Type mismatch for Index Key "
                    f"{name} Expected: {kind} Actual: {next(iter(value))} IndexName: {index.name}"
                )
            if kind == "S" and not 0 < len(value["S"].encode()) <= bytes_max:
                raise invalid(
                    "One or more parameter values are not valid. A secondary index key must hold "
                    f"1 to {bytes_max} bytes. IndexName: {index.name}, IndexKey: {name}"
                )


def write_units(old: Item | None, new: Item | None) -> int:
    """Table write units of one standard write: the larger of both images, by started kilobytes."""
    return max(1, ceil(max(item_size(old), item_size(new)) / 1024))


def index_units(old: Item | None, new: Item | None, indexes: Iterable[IndexKeys]) -> dict[str, int]:
    """Write units by index: an entry that moves is deleted and put."""
    out: dict[str, int] = {}
    for index in indexes:
        before, after = index.of(old), index.of(new)
        if before == after:
            continue
        cost = 0
        for item, keys in ((old, before), (new, after)):
            if item is not None and keys is not None:
                cost += max(1, ceil(entry_size(item, index) / 1024))
        out[index.name] = cost
    return out


def entry_size(item: Item, index: IndexKeys) -> int:
    """The bytes of the item's entry in a KEYS_ONLY index."""
    names = ("pk", "sk", index.hash_key, index.range_key)
    return sum(len(name) + size_of(item[name]) for name in names)


def read_units(size_bytes: int, consistent: bool) -> float:
    """Read units of `size_bytes`, by started 4 kilobytes; half when eventual."""
    return max(1, ceil(size_bytes / 4096)) * (1.0 if consistent else 0.5)


def capacity(table: str, units: Units, indexes: dict[str, int], asked: str | None) -> Json | None:
    """The `ConsumedCapacity` that the request asked for with TOTAL or INDEXES, or None."""
    if asked not in {"TOTAL", "INDEXES"}:
        return None
    total = units.table_write + units.index_write + units.read
    out: Json = {"TableName": table, "CapacityUnits": total}
    if units.read:
        out["ReadCapacityUnits"] = units.read
    if units.table_write:
        out["WriteCapacityUnits"] = units.table_write + units.index_write
    if asked == "INDEXES":
        out["Table"] = {"CapacityUnits": units.table_write + units.read}
        if indexes:
            out["GlobalSecondaryIndexes"] = {
                name: {"CapacityUnits": float(cost)} for name, cost in indexes.items()
            }
    return out
