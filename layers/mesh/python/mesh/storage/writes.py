"""Owns what a write is: put, update, delete or check, its condition, and its form at DynamoDB.

Refuses to be sent from here. Expressions name attributes with a number sign (`SET #due_at = :t`),
so that no attribute can be a reserved word; the names are filled in. Values are plain, and `None`
is never written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from mesh.storage.items import encode, encode_item
from mesh.storage.keys import ITEM_VERSION, Key

_NAME: Final = re.compile(r"#([a-z_0-9]+)")


class Kind(StrEnum):
    """What a write does."""

    PUT = "Put"
    UPDATE = "Update"
    DELETE = "Delete"
    CHECK = "ConditionCheck"


class Write(msgspec.Struct, frozen=True):
    """One write, alone or in a transaction. Made by `put`, `update`, `delete` and `check`."""

    kind: Kind
    key: Key
    item: Mapping[str, Any] | None = None
    update: str = ""
    condition: str = ""
    values: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def parameters(self, table: str) -> dict[str, Any]:
        """The write as DynamoDB's API takes it."""
        parameters: dict[str, Any] = {"TableName": table}
        if self.kind is Kind.PUT:
            parameters["Item"] = encode_item(
                {"v": ITEM_VERSION, **(self.item or {}), "pk": self.key.pk, "sk": self.key.sk}
            )
        else:
            parameters["Key"] = key_of(self.key)
        text = self.condition
        if self.kind is Kind.UPDATE:
            parameters["UpdateExpression"] = self.update
            text = f"{self.update} {self.condition}"
        if self.condition:
            parameters["ConditionExpression"] = self.condition
        names = {f"#{name}": name for name in _NAME.findall(text)}
        if names:
            parameters["ExpressionAttributeNames"] = names
        values = {f":{name}": encode(value) for name, value in self.values.items()}
        if values:
            parameters["ExpressionAttributeValues"] = values
        return parameters


def put(key: Key, item: Mapping[str, Any], condition: str = "", **values: Any) -> Write:
    """Writes a whole item."""
    return Write(Kind.PUT, key, item=item, condition=condition, values=values)


def update(key: Key, expression: str, condition: str = "", **values: Any) -> Write:
    """Changes attributes of an item."""
    return Write(Kind.UPDATE, key, update=expression, condition=condition, values=values)


def delete(key: Key, condition: str = "", **values: Any) -> Write:
    """Deletes an item."""
    return Write(Kind.DELETE, key, condition=condition, values=values)


def check(key: Key, condition: str, **values: Any) -> Write:
    """Changes nothing; a transaction fails where the condition does not hold."""
    return Write(Kind.CHECK, key, condition=condition, values=values)


def key_of(key: Key) -> dict[str, Any]:
    """A key as DynamoDB's API takes it."""
    return {"pk": {"S": key.pk}, "sk": {"S": key.sk}}
