"""Owns a moment between a read and the write that was worked out from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from mesh.storage.items import Item
from mesh.storage.keys import Key
from mesh.storage.table import Table
from mesh.storage.writes import Kind, Write


def just_before_a_write_of(
    monkeypatch: pytest.MonkeyPatch, key: Key, act: Callable[[], object]
) -> list[Key]:
    """Has `act` done once, just before the next write, alone or in a transaction, that changes the
    row at `key`. Answers a list that holds the key once it was done."""
    transact, write = Table.transact, Table.write
    done: list[Key] = []

    def look(writes: Sequence[Write]) -> None:
        changes = (each.key for each in writes if each.kind is not Kind.CHECK)
        if key in changes and not done:
            done.append(key)
            act()

    def transacting(table: Table, writes: Sequence[Write], request_token: str) -> None:
        look(writes)
        transact(table, writes, request_token)

    def writing(table: Table, one: Write, token: str | None = None) -> Item | None:
        look([one])
        return write(table, one, token)

    monkeypatch.setattr(Table, "transact", transacting)
    monkeypatch.setattr(Table, "write", writing)
    return done
