"""Owns Query: which part of a view a key condition means, filters, pages, and what it costs.

Refuses a consistent read of an index, a filter on keys, and a start key that is not the view's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from infra.local.aws import change, evaluate, expressions
from infra.local.aws.evaluate import Bindings
from infra.local.aws.rows import TABLE, Entry, IndexKeys, Place, Rows, Span, place_of
from infra.local.aws.syntax import Between, Both, Call, Compare, Condition, Given, Operand, Path
from infra.local.aws.values import Item, Value, canonical, invalid, item_size
from infra.local.aws.wire import Json
from infra.local.aws.writes import entry_size, read_units

PAGE_BYTES_MAX: Final = 1024 * 1024

_MIRROR: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a Query: what matched, what was read over, where it stopped, what it cost."""

    items: list[Item]
    scanned: int
    last_key: Item | None
    read_units: float


def run(rows: Rows, body: Json, moment: int | None) -> Page:
    """The page that `body` asks for, as the table was at `moment` (None is now)."""
    view = body.get("IndexName", TABLE)
    if view != TABLE and view not in rows.indexes:
        raise invalid("The table does not have the specified index: " + view)
    consistent = bool(body.get("ConsistentRead"))
    if view != TABLE and consistent:
        raise invalid("Consistent reads are not supported on global secondary indexes")
    keys = rows.indexes[view] if view != TABLE else IndexKeys(TABLE, "pk", "sk")
    condition = expressions.condition(
        body.get("KeyConditionExpression", ""), "KeyConditionExpression"
    )
    filtered = projection = None
    if (text := body.get("FilterExpression")) is not None:
        filtered = expressions.condition(text, "FilterExpression")
    if (text := body.get("ProjectionExpression")) is not None:
        projection = expressions.projection(text)
    bound = Bindings.of(body, condition, filtered, projection)
    evaluate.check_types(condition.tree, bound, "KeyConditionExpression")
    hash_value, span = _key_span(condition.tree, bound, keys)
    if filtered is not None:
        evaluate.check_types(filtered.tree, bound, "FilterExpression")
        _check_filter(filtered.tree, bound, {keys.hash_key, keys.range_key})
    limit = body.get("Limit")
    if limit is not None and limit < 1:
        raise invalid("Limit must be greater than or equal to 1")
    walk = rows.walk(
        view,
        hash_value,
        span,
        forward=body.get("ScanIndexForward", True),
        after=_start(rows, view, body.get("ExclusiveStartKey"), hash_value),
        moment=moment,
    )
    items: list[Item] = []
    scanned = size = 0
    last: Item | None = None
    for _, item in walk:
        scanned += 1
        size += item_size(item) if view == TABLE else entry_size(item, keys)
        shown = item if view == TABLE else _keys_only(item, keys)
        if filtered is None or evaluate.holds(filtered.tree, shown, bound):
            items.append(
                shown if projection is None else change.projected(shown, projection.tree, bound)
            )
        if scanned == limit or size >= PAGE_BYTES_MAX:
            last = _keys_only(item, keys)
            break
    return Page(items, scanned, last, read_units(size, consistent))


def _keys_only(item: Item, keys: IndexKeys) -> Item:
    return {name: item[name] for name in ("pk", "sk", keys.hash_key, keys.range_key)}


def _start(
    rows: Rows, view: str, given: Mapping[str, Value] | None, hash_value: str
) -> Entry | None:
    if given is None:
        return None
    start = {name: canonical(value) for name, value in given.items()}
    keys = rows.indexes[view] if view != TABLE else IndexKeys(TABLE, "pk", "sk")
    if set(start) != {"pk", "sk", keys.hash_key, keys.range_key}:
        raise invalid("The provided starting key is invalid")
    found = rows.entry(view, start)
    if found is None or found[0] != hash_value:
        raise invalid(
            "The provided starting key is outside query boundaries based on provided conditions"
        )
    return found[1]


def _key_span(tree: Condition, bound: Bindings, keys: IndexKeys) -> tuple[str, Span | None]:
    """The hash value and the span of places that the key condition means."""
    parts = [tree.left, tree.right] if isinstance(tree, Both) else [tree]
    hash_value: str | None = None
    span: Span | None = None
    for part in parts:
        name, sign, values = _key_test(part, bound)
        if name == keys.hash_key and sign == "=" and hash_value is None:
            if "S" not in values[0]:
                raise invalid(
                    "One or more parameter values were invalid: Condition parameter type does not "
                    "match schema type"
                )
            hash_value = values[0]["S"]
        elif name == keys.range_key and span is None:
            kind = "N" if keys.range_is_number else "S"
            if any(kind not in value for value in values):
                raise invalid(
                    "One or more parameter values were invalid: Condition parameter type does not "
                    "match schema type"
                )
            span = _span(sign, [place_of(value) for value in values])
        else:
            raise invalid("Query key condition not supported")
    if hash_value is None:
        raise invalid("Query condition missed key schema element: " + keys.hash_key)
    if not hash_value:
        raise invalid(
            "One or more parameter values are not valid. The AttributeValue for a key attribute "
            f"cannot contain an empty string value. Key: {keys.hash_key}"
        )
    return hash_value, span


def _key_test(part: Condition, bound: Bindings) -> tuple[str, str, list[Value]]:
    """The attribute, the comparison and the given values of one key test."""
    match part:
        case Compare(sign, Path() as path, Given(name)) if sign in _MIRROR:
            return _top(path, bound), sign, [bound.values[name]]
        case Compare(sign, Given(name), Path() as path) if sign in _MIRROR:
            return _top(path, bound), _MIRROR[sign], [bound.values[name]]
        case Between(Path() as path, Given(low), Given(high)):
            return _top(path, bound), "between", [bound.values[low], bound.values[high]]
        case Call("begins_with", (Path() as path, Given(name))):
            return _top(path, bound), "begins_with", [bound.values[name]]
    raise invalid("Invalid operator used in KeyConditionExpression")


def _top(path: Path, bound: Bindings) -> str:
    steps = bound.steps(path)
    if len(steps) != 1:
        raise invalid("KeyConditionExpressions cannot have conditions on nested attributes")
    return str(steps[0])


def _span(sign: str, places: list[Place]) -> Span:
    first, last = places[0], places[-1]

    def always(_: Place) -> bool:
        return True

    def never(_: Place) -> bool:
        return False

    def from_first(place: Place) -> bool:
        return place >= first  # type: ignore[operator]

    def past_first(place: Place) -> bool:
        return place > first  # type: ignore[operator]

    def past_last(place: Place) -> bool:
        return place > last  # type: ignore[operator]

    def past_prefix(place: Place) -> bool:
        return past_first(place) and not str(place).startswith(str(first))

    match sign:
        case "=":
            return Span(from_first, past_first)
        case "<":
            return Span(always, from_first)
        case "<=":
            return Span(always, past_first)
        case ">":
            return Span(past_first, never)
        case ">=":
            return Span(from_first, never)
        case "between":
            return Span(from_first, past_last)
        case _:
            if not isinstance(first, str):
                raise invalid("begins_with is not for a number key")
            return Span(from_first, past_prefix)


def _check_filter(tree: Condition, bound: Bindings, keys: set[str]) -> None:
    for path in _paths(tree):
        name = str(bound.steps(path)[0])
        if name in keys:
            raise invalid(
                "Filter Expression can only contain non-primary key attributes: Primary key "
                f"attribute: {name}"
            )


def _paths(tree: Condition | Operand) -> list[Path]:
    """Every path that occurs in a condition."""
    if isinstance(tree, Path):
        return [tree]
    out: list[Path] = []
    for name in getattr(tree, "__dataclass_fields__", ()):
        inner = getattr(tree, name)
        for each in inner if isinstance(inner, tuple) else (inner,):
            if not isinstance(each, str):
                out += _paths(each)
    return out
