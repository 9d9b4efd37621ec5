"""Owns whether a condition holds for an item, and what a path or a placeholder stands for.

Refuses what AWS refuses at that point: placeholders that are not defined or not used, operands
of a type that the operator does not take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infra.local.aws.syntax import (
    Between,
    Both,
    Call,
    Compare,
    Condition,
    Either,
    Given,
    In,
    Not,
    Operand,
    Parsed,
    Path,
    Size,
)
from infra.local.aws.values import (
    ORDERED_TYPES,
    TYPES,
    Item,
    Value,
    canonical,
    invalid,
    order,
    type_of,
)
from infra.local.aws.wire import Json

Steps = tuple[str | int, ...]
"""A path whose names are resolved."""


@dataclass(frozen=True, slots=True)
class Bindings:
    """What the placeholders of one request stand for."""

    names: dict[str, str]
    values: dict[str, Value]

    @classmethod
    def of(cls, body: Json, *parsed: Parsed[Any] | None) -> Bindings:
        """The request's placeholders; every one used is defined, every one defined is used."""
        names = body.get("ExpressionAttributeNames") or {}
        given = body.get("ExpressionAttributeValues") or {}
        used_names: set[str] = set()
        used_values: set[str] = set()
        for each in parsed:
            if each is not None:
                used_names |= each.names
                used_values |= each.values
        _same("Names", used_names, set(names))
        _same("Values", used_values, set(given))
        return cls(names, {name: canonical(value) for name, value in given.items()})

    def steps(self, path: Path) -> Steps:
        return tuple(
            self.names[part] if isinstance(part, str) and part[0] == "#" else part
            for part in path.parts
        )


def _same(what: str, used: set[str], defined: set[str]) -> None:
    if missing := used - defined:
        raise invalid(
            f"An expression attribute {what.lower()[:-1]} used in expression is not defined; "
            f"attribute {what.lower()[:-1]}: {min(missing)}"
        )
    if spare := defined - used:
        raise invalid(
            f"Value provided in ExpressionAttribute{what} unused in expressions: "
            f"keys: {{{', '.join(sorted(spare))}}}"
        )


def found(item: Item, steps: Steps) -> Value | None:
    """The value at that path of `item`, or None."""
    here: Value | None = item.get(steps[0])  # type: ignore[arg-type]
    for step in steps[1:]:
        if here is None:
            return None
        if isinstance(step, int):
            members = here.get("L", ())
            here = members[step] if step < len(members) else None
        else:
            here = here.get("M", {}).get(step)
    return here


def operand(term: Operand, item: Item, bound: Bindings) -> Value | None:
    """The value that a condition's operand stands for, or None when there is none."""
    match term:
        case Given(name):
            return bound.values[name]
        case Path():
            return found(item, bound.steps(term))
        case Size(path):
            return _size(found(item, bound.steps(path)))
    raise invalid("Invalid ConditionExpression: an operand of another expression")


def _size(value: Value | None) -> Value | None:
    if value is None:
        return None
    ((kind, inner),) = value.items()
    if kind in {"N", "BOOL", "NULL"}:
        return None
    return {"N": str(len(order(value) if kind == "B" else inner))}  # type: ignore[arg-type]


def holds(tree: Condition, item: Item, bound: Bindings) -> bool:
    """Whether the condition is true of `item` (empty when there is none); raises AwsError."""
    match tree:
        case Both(left, right):
            return holds(left, item, bound) and holds(right, item, bound)
        case Either(left, right):
            return holds(left, item, bound) or holds(right, item, bound)
        case Not(inner):
            return not holds(inner, item, bound)
        case Compare(sign, left, right):
            return compared(sign, operand(left, item, bound), operand(right, item, bound))
        case Between(term, low, high):
            value = operand(term, item, bound)
            return compared("<=", operand(low, item, bound), value) and compared(
                "<=", value, operand(high, item, bound)
            )
        case In(term, choices):
            value = operand(term, item, bound)
            return any(compared("=", value, operand(each, item, bound)) for each in choices)
        case Call():
            return _called(tree, item, bound)


def compared(sign: str, left: Value | None, right: Value | None) -> bool:
    """One comparison: what is missing or of another type is unequal to all, and unordered."""
    if sign == "=":
        return left is not None and left == right
    if sign == "<>":
        return left is None or left != right
    if left is None or right is None or type_of(left) != type_of(right):
        return False
    one, other = order(left), order(right)
    if one is None or other is None:
        return False
    match sign:
        case "<":
            return one < other  # type: ignore[operator]
        case "<=":
            return one <= other  # type: ignore[operator]
        case ">":
            return one > other  # type: ignore[operator]
        case _:
            return one >= other  # type: ignore[operator]


def _called(call: Call, item: Item, bound: Bindings) -> bool:
    first = operand(call.arguments[0], item, bound)
    if call.function == "attribute_exists":
        return first is not None
    if call.function == "attribute_not_exists":
        return first is None
    second = operand(call.arguments[1], item, bound)
    if first is None or second is None:
        return False
    if call.function == "attribute_type":
        return type_of(first) == second.get("S")
    kind, inner = next(iter(first.items()))
    if call.function == "begins_with":
        if kind not in {"S", "B"} or type_of(second) != kind:
            return False
        return order(first).startswith(order(second))  # type: ignore[union-attr,arg-type]
    match kind:
        case "S":
            return "S" in second and second["S"] in inner
        case "B":
            return "B" in second and order(second) in order(first)  # type: ignore[operator]
        case "SS" | "NS" | "BS":
            return type_of(second) == kind[0] and second[kind[0]] in inner
        case "L":
            return second in inner
        case _:
            return False


def check_types(tree: Condition, bound: Bindings, kind: str = "ConditionExpression") -> None:
    """Raises AwsError for a given value whose type its operator can never take."""
    match tree:
        case Both(left, right) | Either(left, right):
            check_types(left, bound, kind)
            check_types(right, bound, kind)
        case Not(inner):
            check_types(inner, bound, kind)
        case Compare(sign, first, second):
            if sign not in {"=", "<>"}:
                _ordered(sign, (first, second), bound, kind)
        case Between(_, low, high):
            _ordered("BETWEEN", (low, high), bound, kind)
            _bounds(low, high, bound, kind)
        case Call("begins_with", terms):
            _ordered("begins_with", terms, bound, kind, frozenset({"S", "B"}))
        case Call("attribute_type", (_, Given(name))):
            if bound.values[name].get("S") not in TYPES:
                raise invalid(f"Invalid {kind}: Invalid attribute type name found")
        case Call() | In():
            pass


def _ordered(
    sign: str,
    terms: tuple[Operand, ...],
    bound: Bindings,
    kind: str,
    types: frozenset[str] = ORDERED_TYPES,
) -> None:
    for term in terms:
        if isinstance(term, Given) and type_of(bound.values[term.name]) not in types:
            raise invalid(
                f"Invalid {kind}: Incorrect operand type for operator or function; operator or "
                f"function: {sign}, operand type: {type_of(bound.values[term.name])}"
            )


def _bounds(low: Operand, high: Operand, bound: Bindings, kind: str) -> None:
    if isinstance(low, Given) and isinstance(high, Given):
        first, last = bound.values[low.name], bound.values[high.name]
        if type_of(first) != type_of(last):
            raise invalid(f"Invalid {kind}: The BETWEEN operator requires same data type bounds")
        if compared(">", first, last):
            raise invalid(
                f"Invalid {kind}: The BETWEEN operator requires upper bound to be greater than or "
                "equal to lower bound"
            )
