"""Owns orders about many outbox entries: replay and discard, by install, state and time.

Refuses to run ahead of delivery: replays are ordered as earlier ones have been tried, so that ten
thousand of them never ring for the install's eight slots at once. And refuses an entry that a
change made unfit meanwhile: it is passed over.

The one decision is audited at its order and at its end, as cascades are: an entry tells by itself
that it was discarded by an operator, or that an attempt was a replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from mesh.control.installs import Installs, Whole
from mesh.control.rows import record_of
from mesh.jobs.contract import Progress
from mesh.kernel.clock import Clock
from mesh.kernel.limits import (
    DELIVERY_LOOK_AGAIN_S,
    DISCARDS_LOOK_AGAIN_S,
    JOB_PAGE_ROWS,
    REPLAYS_LOOK_AGAIN_S,
    REPLAYS_WAITING_MAX,
)
from mesh.outbox.entries import discard_write, replay_write
from mesh.records.install import EndpointState, InstallState
from mesh.records.job import Job
from mesh.records.outbox import Chosen, Entry
from mesh.storage import keys
from mesh.storage.happened import Place, Walk, in_batches
from mesh.storage.queues import Bell
from mesh.storage.table import ConditionFailed, Table


class _Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far an order is: where its walk goes on, and the replays that it waits for."""

    day: int | None = None
    """None before the first step."""
    before: str = ""
    untried: tuple[str, ...] = ()
    """The stories of replays that were ordered and, when last looked at, not tried yet."""


class _Page:
    """One step's part of an install's entries, newest first."""

    def __init__(self, table: Table, job: Job, chosen: Chosen, place: _Place) -> None:
        agent_id = job.agent_id
        assert agent_id is not None, "an order about entries is of an agent"
        self._table = table
        self._walk = Walk(
            table,
            lambda at_ms: keys.outbox_lists(agent_id, at_ms),
            newest_ms=chosen.until - 1,
            oldest_ms=chosen.since,
            place=None if place.day is None else Place(place.day, place.before),
            ahead=JOB_PAGE_ROWS,
        )

    def __iter__(self) -> Iterator[tuple[str, Entry]]:
        """Each entry, read consistently, and the id of its conversation."""
        for found, item in in_batches(self._table, islice(self._walk, JOB_PAGE_ROWS)):
            yield found.key.pk.removeprefix("CONV#"), record_of(item, Entry)

    def place(self, untried: tuple[str, ...] = ()) -> dict[str, Any] | None:
        """Where the next step goes on; None at the end."""
        at = self._walk.place
        if at is None:
            return None
        return _kept(_Place(day=at.day, before=at.before, untried=untried))


class ReplayEntries:
    """Orders the replay of many entries, as fast as they are tried."""

    ended = "outbox.replayed"

    def __init__(self, table: Table, bell: Bell, clock: Clock, installs: Installs) -> None:
        self._table = table
        self._bell = bell
        self._clock = clock
        self._installs = installs

    def step(self, job: Job, _stop_at_ms: int) -> Progress:
        """Orders the replays of one page. `done` counts those that were ordered. Raises Failed."""
        chosen, place = msgspec.convert(job.wanted, Chosen), msgspec.convert(job.place, _Place)
        whole = self._installs.find_whole(chosen.install_id)
        if whole is None or whole.install.delivery_url is None:
            return Progress(
                place=None, failed="the connector was deleted, or its delivery URL was removed"
            )
        held = _held(whole)
        if held is not None:
            return Progress(place=job.place, wait_s=DELIVERY_LOOK_AGAIN_S, waits=held)
        untried = self._untried(place.untried)
        if len(untried) > REPLAYS_WAITING_MAX:
            waits = _kept(msgspec.structs.replace(place, untried=untried))
            goes_out = whole.endpoint.state is EndpointState.OK
            wait_s = REPLAYS_LOOK_AGAIN_S if goes_out else DELIVERY_LOOK_AGAIN_S
            return Progress(
                place=waits, wait_s=wait_s, waits="the replays so far are not tried yet"
            )
        page = _Page(self._table, job, chosen, place)
        ordered: list[str] = []
        for conversation_id, entry in page:
            # What was replayed since the order may be this very step's, whose place was not kept.
            if chosen.takes(entry) and not _replayed_since(entry, job.started_at):
                self._order(conversation_id, entry)
                ordered.append(entry.story)
        return Progress(place=page.place((*untried, *ordered)), done=len(ordered))

    def _order(self, conversation_id: str, entry: Entry) -> None:
        """Orders one replay; one that stands already goes on as it is."""
        now = self._clock.now_ms()
        with suppress(ConditionFailed):
            self._table.write(replay_write(conversation_id, entry, now, anew=False))
        self._bell.delivery(conversation_id, replay=entry.story)

    def _untried(self, stories: tuple[str, ...]) -> tuple[str, ...]:
        rows = self._table.get_many(keys.replay(story) for story in stories)
        return tuple(
            story for story in stories if rows.get(keys.replay(story), {}).get("tries") == 0
        )


class DiscardEntries:
    """Discards many entries that wait."""

    ended = "outbox.discarded"

    def __init__(self, table: Table, bell: Bell, clock: Clock) -> None:
        self._table = table
        self._bell = bell
        self._clock = clock

    def step(self, job: Job, _stop_at_ms: int) -> Progress:
        """Discards what waits of one page, and lets what is behind it go. Raises Failed.

        Where an attempt is in flight the page is looked at again once it may have ended.
        """
        chosen, place = msgspec.convert(job.wanted, Chosen), msgspec.convert(job.place, _Place)
        page = _Page(self._table, job, chosen, place)
        freed: dict[str, None] = {}
        done = 0
        in_flight = False
        for conversation_id, entry in page:
            if not chosen.takes(entry):
                continue
            if self._discard(conversation_id, entry):
                freed[conversation_id] = None
                done += 1
            else:
                in_flight = True
        for conversation_id in freed:
            self._bell.delivery(conversation_id)
        if in_flight:
            return Progress(
                place=job.place,
                done=done,
                wait_s=DISCARDS_LOOK_AGAIN_S,
                waits="an attempt is in flight",
            )
        return Progress(place=page.place(), done=done)

    def _discard(self, conversation_id: str, entry: Entry) -> bool:
        """Whether the entry was discarded; False where an attempt is in flight, or just came."""
        if entry.open is not None:
            if entry.open.until <= self._clock.now_ms():  # its worker is dead: have it closed
                self._bell.delivery(conversation_id, recovery=entry.attempts)
            return False
        try:
            self._table.write(discard_write(conversation_id, entry, self._clock.now_ms()))
        except ConditionFailed:
            return False
        return True


def _held(whole: Whole) -> str | None:
    """What of the connector keeps its replies from being sent, and what lets them go."""
    install_id = whole.install.install_id
    if whole.install.state is not InstallState.ENABLED:
        return f"the connector is {whole.install.state}. Then: mesh connector enable {install_id}"
    if whole.endpoint.state is EndpointState.PAUSED:
        return f"delivery is paused. Then: mesh connector resume-delivery {install_id}"
    return None


def _replayed_since(entry: Entry, at_ms: int) -> bool:
    """Whether the last attempt was a replay that began then or later."""
    last = entry.open if entry.open is not None else (entry.recent[-1] if entry.recent else None)
    return last is not None and last.replay and last.at >= at_ms


def _kept(place: _Place) -> dict[str, Any]:
    kept: dict[str, Any] = msgspec.to_builtins(place)
    return kept
