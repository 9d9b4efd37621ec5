"""Owns the reading of an agent's outbox: its newest entries, and how many of them wait or are dead.

Refuses to count for ever: the counts are of the newest entries of the last days, and may lag.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from mesh.control.rows import record_of
from mesh.kernel.limits import DELIVERY_COUNT_DAYS, DELIVERY_COUNT_ENTRIES
from mesh.operator.plane import ControlPlane
from mesh.records.agent import Agent
from mesh.records.outbox import Entry, EntryState
from mesh.storage import keys
from mesh.storage.happened import Place, Walk, in_batches
from mesh.storage.keys import Key


@dataclass(frozen=True, slots=True)
class Standing:
    """An entry, the conversation that it belongs to, and its place in the list."""

    entry: Entry
    conversation_id: str
    place: Place


@dataclass(frozen=True, slots=True)
class Counts:
    """How the newest entries of one install stand."""

    pending: int = 0
    dead: int = 0
    oldest_pending_at: int | None = None


def walk_outbox(plane: ControlPlane, agent: Agent, place: Place | None, days: int | None) -> Walk:
    """A walk through an agent's outbox, newest first."""
    now = plane.deps.clock.now_ms()
    bound = {} if days is None else {"days": days}
    return Walk(
        plane.deps.table,
        lambda at_ms: keys.outbox_lists(agent.agent_id, at_ms),
        newest_ms=now,
        oldest_ms=agent.created_at,
        place=place,
        **bound,
    )


def standing(plane: ControlPlane, walk: Walk) -> Iterator[Standing]:
    """The entries of a walk."""
    for found, item in in_batches(plane.deps.table, iter(walk)):
        yield Standing(record_of(item, Entry), conversation_of(found.key), found.place)


def counts(plane: ControlPlane, agent: Agent, install_ids: Sequence[str]) -> dict[str, Counts]:
    """How the newest entries of an agent's installs stand."""
    found = dict.fromkeys(install_ids, Counts())
    walk = walk_outbox(plane, agent, None, DELIVERY_COUNT_DAYS)
    for each in islice(standing(plane, walk), DELIVERY_COUNT_ENTRIES):
        entry = each.entry
        so_far = found.get(entry.install_id)
        if so_far is None:
            continue
        if entry.state is EntryState.PENDING:
            oldest = min(entry.created_at, so_far.oldest_pending_at or entry.created_at)
            found[entry.install_id] = Counts(so_far.pending + 1, so_far.dead, oldest)
        elif entry.state is EntryState.DEAD:
            found[entry.install_id] = Counts(
                so_far.pending, so_far.dead + 1, so_far.oldest_pending_at
            )
    return found


def conversation_of(key: Key) -> str:
    """The id of the conversation in whose partition a row stands."""
    return key.pk.removeprefix("CONV#")
