"""Owns how the sweep moves due marks: each by a condition on where it was.

Refuses to move a mark that somebody else moved meanwhile, and to ring as often for what a ring did
not help.
"""

from __future__ import annotations

from mesh.kernel.errors import Failed
from mesh.kernel.limits import SWEEP_BACKOFF_MS, TICK_SLACK_MS
from mesh.records.conversation import Mark
from mesh.storage.keys import Key
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import delete, update


class Marks:
    """Moves marks in the table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def note_ring(self, key: Key, mark: Mark, seen: str, now: int) -> bool:
        """Moves a mark on before its ring: further each time that the last ring came to nothing."""
        rings = mark.rings + 1 if mark.seen == seen else 0
        wait_ms = SWEEP_BACKOFF_MS[min(rings, len(SWEEP_BACKOFF_MS) - 1)]
        return self._change(
            key,
            "SET #due_at = :next, #rings = :rings, #seen = :saw",
            mark,
            next=now + wait_ms - TICK_SLACK_MS,
            rings=rings,
            saw=seen,
        )

    def move(self, key: Key, mark: Mark, due_at: int) -> bool:
        """Moves a mark to when its work is really due."""
        return self._change(key, "SET #due_at = :next", mark, next=due_at)

    def drop(self, key: Key, mark: Mark, condition: str, **values: int) -> bool:
        """Takes a mark away whose work is done, under the condition that it still is."""
        return self._change(
            key, "REMOVE #due_pk, #due_at, #rings, #seen", mark, condition, **values
        )

    def _change(
        self, key: Key, expression: str, mark: Mark, condition: str = "", **values: str | int
    ) -> bool:
        """One conditional update; False when somebody moved the mark meanwhile.

        Where its outcome is not known it is taken as done: a ring too many costs nothing, and one
        too few a minute.
        """
        unmoved = "#due_at = :was_at AND #due_pk = :was_pk"
        whole = f"{unmoved} AND {condition}" if condition else unmoved
        return self.apply(
            key, expression, whole, was_at=mark.due_at or 0, was_pk=mark.due_pk or "", **values
        )

    def apply(self, key: Key, expression: str, condition: str, **values: str | int) -> bool:
        """One conditional update; False when its condition did not hold."""
        try:
            self._table.write(update(key, expression, condition, **values))
        except ConditionFailed as failed:
            # An SDK's second try meets what the first one did.
            return failed.old is not None and failed.old.get("due_at") == values.get("next", "")
        except Failed as failed:
            if not failed.outcome_unknown:
                raise
        return True

    def drop_row(self, key: Key, condition: str, **values: int) -> None:
        """Deletes a row that is nothing but a mark."""
        try:
            self._table.write(delete(key, condition, **values))
        except ConditionFailed:
            return
