"""Owns the nouns of an agent's use: its running slots, and what it used on one day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mesh.kernel.limits import RUNNING_SLOTS_MAX
from mesh.records.conversation import Mark

_SLOT = "slot_"


class Running(Mark, frozen=True, kw_only=True):
    """The row `RUNNING`: one attribute a slot, with the end of its lease (Unix ms).

    Its due mark stands while conversations wait for a slot.
    """

    slots: dict[str, int] = msgspec.field(default_factory=dict)
    """Slot → the end of its lease. One that is not there is free."""
    width: int | None = None
    """Below how many slots all that are taken lie; None where none was ever taken."""
    parked_at: int = 0
    """When it was last noted that a conversation is about to wait."""
    token: str | None = None
    """The mark of the last take or renewal."""

    @classmethod
    def of(cls, item: Mapping[str, Any] | None) -> Running:
        """The row as stored; of no row: all slots are free."""
        if item is None:
            return cls()
        slots = {name: until for name, until in item.items() if name.startswith(_SLOT)}
        return msgspec.convert({**item, "slots": slots}, cls)

    def taken(self, before_ms: int) -> frozenset[str]:
        """The slots whose lease ends after `before_ms`."""
        return frozenset(name for name, until in self.slots.items() if until > before_ms)


def slot_names(width: int) -> tuple[str, ...]:
    """The first `width` slots, at most as many as there are."""
    return tuple(f"{_SLOT}{number:02d}" for number in range(min(width, RUNNING_SLOTS_MAX)))


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """The row `DAY`: what an agent used of its budgets on one UTC day."""

    turns: int = 0
    turns_told: int = 0
    """The highest percent of the turns' budget that its operator was told of."""
    tokens: int = 0
    tokens_told: int = 0
