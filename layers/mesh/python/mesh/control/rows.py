"""Owns the way between records and items: one place that knows which types an item keeps as they
are.

Refuses to guess a missing attribute: `None` is never stored, and a record says what absence means.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from mesh.storage.items import Item
from mesh.storage.keys import Key
from mesh.storage.writes import Write, update

_R = TypeVar("_R", bound=msgspec.Struct)


def item_of(record: msgspec.Struct) -> Item:
    """The record's attributes as plain values; bytes stay bytes."""
    item: Item = msgspec.to_builtins(record, builtin_types=(bytes,))
    return item


def record_of(item: Item, kind: type[_R]) -> _R:
    """The record that `item` holds. Attributes that the record does not know are passed over."""
    return msgspec.convert(item, kind)


def assign(key: Key, changes: dict[str, Any], condition: str, **values: Any) -> Write:
    """An update that sets each attribute of `changes`, and removes those that are None."""
    sets = [f"#{name} = :to_{name}" for name, value in changes.items() if value is not None]
    gone = [f"#{name}" for name, value in changes.items() if value is None]
    expression = " ".join(
        part
        for part in (
            "SET " + ", ".join(sets) if sets else "",
            "REMOVE " + ", ".join(gone) if gone else "",
        )
        if part
    )
    given = {f"to_{name}": value for name, value in changes.items() if value is not None}
    return update(key, expression, condition, **given, **values)
