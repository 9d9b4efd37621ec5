"""Owns DynamoDB's attribute values: their validation, canonical form, order and size.

Refuses whatever AWS refuses: empty sets, numbers past 38 digits, items nested past 32 levels.

A value keeps its wire form (`{"S": "x"}`). In canonical form numbers have one spelling and
sets are sorted, so two values are equal exactly when their dictionaries are.
"""

from __future__ import annotations

import base64
import binascii
import re
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow
from typing import Any, Final

from infra.local.aws.wire import AwsError

Value = dict[str, Any]
"""One attribute value in wire form; never changed in place."""
Item = dict[str, Value]
"""Attribute names to values; never changed in place."""

DEPTH_MAX: Final = 32
ITEM_BYTES_MAX: Final = 400 * 1024
SET_TYPES: Final = frozenset({"SS", "NS", "BS"})
ORDERED_TYPES: Final = frozenset({"S", "N", "B"})
TYPES: Final = frozenset({"S", "N", "B", "SS", "NS", "BS", "M", "L", "NULL", "BOOL"})

_PLAIN_INTEGER = re.compile(r"(?:0|-?[1-9][0-9]{0,37})\Z")
_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*\Z")
_EXACT = Context(prec=38, traps=[Inexact, InvalidOperation, Overflow])


def invalid(message: str) -> AwsError:
    """DynamoDB's ValidationException."""
    return AwsError("ValidationException", message)


def number(text: str) -> str:
    """`text` in DynamoDB's one spelling of that number; raises AwsError as AWS refuses it."""
    if _PLAIN_INTEGER.match(text):
        return text
    if not _NUMBER.match(text):
        raise invalid("The parameter cannot be converted to a numeric value: " + text[:64])
    try:
        value = _EXACT.create_decimal(text.strip()).normalize(_EXACT)
    except DecimalException:
        raise invalid("Attempting to store more than 38 significant digits in a Number") from None
    if value and not -130 <= value.adjusted() <= 125:
        raise invalid("Number overflow. Attempting to store a number outside the supported range")
    return format(value, "f") if value else "0"


def plus(left: str, right: str) -> str:
    """The sum of two canonical numbers."""
    return _sum(Decimal(left), Decimal(right))


def minus(left: str, right: str) -> str:
    """The difference of two canonical numbers."""
    return _sum(Decimal(left), -Decimal(right))


def _sum(left: Decimal, right: Decimal) -> str:
    try:
        return number(str(_EXACT.add(left, right)))
    except DecimalException:
        raise invalid("Attempting to store more than 38 significant digits in a Number") from None


def canonical(value: Value, depth: int = 1) -> Value:
    """`value`, validated, in canonical form; raises AwsError as AWS refuses it."""
    if len(value) != 1:
        raise invalid("Supplied AttributeValue must contain exactly one of the supported datatypes")
    if depth > DEPTH_MAX:
        raise invalid("Nesting Levels have exceeded supported limits: Attributes have 32 levels")
    ((kind, inner),) = value.items()
    match kind:
        case "S" | "BOOL":
            return value
        case "N":
            return {"N": number(inner)}
        case "B":
            _bytes(inner)
            return value
        case "NULL":
            if inner is not True:
                raise invalid("Null attribute value types must have the value of true")
            return value
        case "SS" | "NS" | "BS":
            return {kind: _canonical_set(kind, inner)}
        case "L":
            return {"L": [canonical(each, depth + 1) for each in inner]}
        case "M":
            return {"M": {name: canonical(each, depth + 1) for name, each in inner.items()}}
        case _:
            raise invalid("Supplied AttributeValue has an unknown datatype")


def _canonical_set(kind: str, members: list[str]) -> list[str]:
    if not members:
        raise invalid("An string set  may not be empty")
    if kind == "NS":
        members = [number(member) for member in members]
    elif kind == "BS":
        for member in members:
            _bytes(member)
    if len(set(members)) != len(members):
        raise invalid("Input collection contains duplicates")
    return sorted(members)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AwsError("SerializationException", "a B value is not base64") from None


def order(value: Value) -> str | Decimal | bytes | None:
    """What a string, number or binary value sorts by; None for other types."""
    if "S" in value:
        return str(value["S"])
    if "N" in value:
        return Decimal(value["N"])
    if "B" in value:
        return _bytes(value["B"])
    return None


def type_of(value: Value) -> str:
    """`S`, `N`, `SS` …"""
    return next(iter(value))


def size_of(value: Value) -> int:
    """The bytes that AWS counts for a value (numbers: its published approximation)."""
    ((kind, inner),) = value.items()
    match kind:
        case "S":
            return _utf8(inner)
        case "N":
            return _number_size(inner)
        case "B":
            return len(_bytes(inner))
        case "NULL" | "BOOL":
            return 1
        case "SS":
            return sum(_utf8(member) for member in inner)
        case "NS":
            return sum(_number_size(member) for member in inner)
        case "BS":
            return sum(len(_bytes(member)) for member in inner)
        case "L":
            return 3 + sum(1 + size_of(each) for each in inner)
        case _:
            return 3 + sum(1 + _utf8(name) + size_of(each) for name, each in inner.items())


def item_size(item: Item | None) -> int:
    """The bytes that AWS counts for an item: names and values."""
    if item is None:
        return 0
    return sum(_utf8(name) + size_of(value) for name, value in item.items())


def _utf8(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def _number_size(text: str) -> int:
    digits = len(text.lstrip("-").replace(".", "").strip("0"))
    return (digits + 1) // 2 + 1 + (1 if text.startswith("-") else 0)


def plain(item: Item) -> dict[str, Any]:
    """An item as plain Python values: int or Decimal, set, bytes, list, dict, bool, None."""
    return {name: _plain(value) for name, value in item.items()}


def _plain(value: Value) -> Any:
    ((kind, inner),) = value.items()
    match kind:
        case "N":
            return _plain_number(inner)
        case "B":
            return _bytes(inner)
        case "NULL":
            return None
        case "SS":
            return set(inner)
        case "NS":
            return {_plain_number(member) for member in inner}
        case "BS":
            return {_bytes(member) for member in inner}
        case "L":
            return [_plain(each) for each in inner]
        case "M":
            return plain(inner)
        case _:
            return inner


def _plain_number(text: str) -> int | Decimal:
    return int(text) if _PLAIN_INTEGER.match(text) else Decimal(text)
