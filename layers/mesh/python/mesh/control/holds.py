"""Owns how held work goes on: marks that left the due index come back when their owner may work
again.

Refuses to do it by one pass: the index lags, and a worker may park a mark just after the release.
So a release is a row with a due mark of its own, and the sweep passes over the held partition until
the row's time is up.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mesh.kernel.clock import MINUTE_MS
from mesh.kernel.errors import Failed
from mesh.storage import keys
from mesh.storage.keys import Key
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import Write, put, update

RELEASE: Final = "RELEASE"
RELEASE_FOR_MS: Final = 10 * MINUTE_MS
"""Longer than any index lags, and than any worker holds what it read."""
RELEASE_EVERY_MS: Final = MINUTE_MS


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """The row `RELEASE` of an install or an agent."""

    source: str
    """The due partition whose marks come back."""
    until: int
    spread_ms: int = 0


def release_write(owner_pk: str, source: str, now_ms: int, spread_ms: int = 0) -> Write:
    """Orders the release of `source`'s marks; goes into the transaction that lets the owner work
    again.

    `owner_pk` is the partition of the install or the agent; `spread_ms` spreads the work over that
    time.
    """
    release = Release(source=source, until=now_ms + RELEASE_FOR_MS, spread_ms=spread_ms)
    return put(
        Key(owner_pk, f"{RELEASE}#{source}"),
        {
            **msgspec.to_builtins(release),
            "due_pk": keys.due(owner_pk),
            "due_at": now_ms,
            "rings": 0,
        },
    )


def hold_write(install_id: str, now_ms: int) -> Write:
    """Begins a span in which an install's replies are held on purpose; one that has begun goes
    on."""
    return update(
        keys.delivery(install_id),
        "SET #held_since = if_not_exists(#held_since, :now)",
        "attribute_exists(#pk)",
        now=now_ms,
    )


def release_some(table: Table, release: Release, now_ms: int, limit: int) -> list[Key]:
    """Gives up to `limit` marks back to the due index; answers their keys, empty when none is held.

    Each moves by a condition on where it was, so that a mark that a worker moved meanwhile is left
    alone. Raises Failed.
    """
    return release_page(table, release, now_ms, limit, None)[0]


def release_page(
    table: Table, release: Release, now_ms: int, limit: int, after: dict[str, Any] | None
) -> tuple[list[Key], dict[str, Any] | None]:
    """One page of a release: the keys of what moved, and where the next page begins (None: at the
    end of what is held).

    Pages and not the first items again, because the index still shows what was just moved. Raises
    Failed.
    """
    moved: list[Key] = []
    page = table.query_due(release.source, until_ms=None, limit=limit, after=after)
    for item in page.items:
        key = Key(item["pk"], item["sk"])
        late = keys.shard_of(key.pk, release.spread_ms) if release.spread_ms else 0
        try:
            table.write(
                update(
                    key,
                    "SET #due_pk = :due, #due_at = :at, #rings = :zero",
                    "#due_pk = :source",
                    due=keys.due(_owner(key)),
                    at=now_ms + late,
                    zero=0,
                    source=release.source,
                )
            )
        except ConditionFailed:
            continue
        except Failed as failed:
            if not failed.outcome_unknown:
                raise
            continue
        moved.append(key)
    return moved, page.last


def _owner(key: Key) -> str:
    """What a mark is sharded by: the conversation's id, or the story of a replay."""
    return key.pk.partition("#")[2]
