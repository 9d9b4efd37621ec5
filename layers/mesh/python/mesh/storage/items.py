"""Owns the translation between plain values and DynamoDB's attribute values.

Refuses floats, which no two systems round alike: every number that Mesh stores is an integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_TYPE_ERROR: Final = (
    "an item holds str, int, bool, bytes, None, lists, dicts and sets of str, not %s"
)

Item = dict[str, Any]
"""An item as plain values. `Any` ends here: records are made of items by `msgspec.convert`."""


def encode(value: Any) -> dict[str, Any]:
    """One plain value as an attribute value. TypeError for a float or a foreign type."""
    match value:
        case str():
            return {"S": value}
        case bool():
            return {"BOOL": value}
        case int():
            return {"N": str(value)}
        case bytes():
            return {"B": value}
        case None:
            return {"NULL": True}
        case list() | tuple():
            return {"L": [encode(each) for each in value]}
        case dict():
            return {"M": {key: encode(each) for key, each in value.items()}}
        case set() | frozenset():
            return {"SS": sorted(value)}
    raise TypeError(_TYPE_ERROR % type(value).__name__)


def decode(attribute: Mapping[str, Any]) -> Any:
    """One attribute value as a plain value."""
    ((kind, value),) = attribute.items()
    match kind:
        case "S" | "BOOL" | "B":
            return value
        case "N":
            return int(value)
        case "NULL":
            return None
        case "L":
            return [decode(each) for each in value]
        case "M":
            return {key: decode(each) for key, each in value.items()}
        case "SS":
            return set(value)
    raise TypeError(f"Mesh stores no attribute of type {kind}")


def encode_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """A whole item; None values are left out, so that an absent attribute is `None` everywhere."""
    return {name: encode(value) for name, value in item.items() if value is not None}


def decode_item(attributes: Mapping[str, Any]) -> Item:
    """A whole item as plain values."""
    return {name: decode(value) for name, value in attributes.items()}
