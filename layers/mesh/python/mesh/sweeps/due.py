"""Owns the sweep of what is due: lost doorbells, expired leases, retries, probes, releases, chores,
idle places.

Refuses to do the work itself, and to melt the system: it looks at marks, rings, and moves each mark
on in the same conditional update; one run is bounded in time and pages and the next goes on where
it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from mesh.control.holds import RELEASE, RELEASE_EVERY_MS, Release, release_page
from mesh.engine.lease import is_live
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed
from mesh.kernel.ids import Ids
from mesh.kernel.limits import (
    DUE_SHARDS,
    LEASE_GRACE_MS,
    RELEASE_PAGES_MAX,
    SWEEP_PAGE_ITEMS,
    SWEEP_PAGES_PER_SHARD,
    SWEEP_RUN_MS_MAX,
    TICK_SLACK_MS,
)
from mesh.kernel.log import Log, error_name
from mesh.kernel.metrics import Metric, Metrics
from mesh.outbox.schedule import due_time
from mesh.records.conversation import Mark, Outbox, Pending
from mesh.records.install import Endpoint
from mesh.records.outbox import Entry, Replay
from mesh.records.running import Running
from mesh.storage import keys
from mesh.storage.conversations import find_outbox_head, read_head
from mesh.storage.keys import Key
from mesh.storage.queues import Bell
from mesh.storage.table import Table
from mesh.storage.writes import put
from mesh.sweeps.endpoints import DegradedEndpoints
from mesh.sweeps.idle import IdlePlaces
from mesh.sweeps.marks import Marks
from mesh.sweeps.waiting import WaitingRuns

_PLACE: Final = "due"


@dataclass(slots=True)
class _Pass:
    """One pass over the shards: until when, where it is, and the oldest work (ms) that it saw."""

    stop_at: int
    partition: str = ""
    run: int = 0
    entry: int = 0
    rung: int = 0

    def is_due(self, mark: Mark, now_ms: int) -> bool:
        """Whether the row itself, and not only the lagging index, says that it is due here."""
        return mark.due_pk == self.partition and mark.due_at is not None and mark.due_at <= now_ms


class DueSweep:
    """One pass a minute over what is due."""

    def __init__(
        self,
        *,
        table: Table,
        bell: Bell,
        clock: Clock,
        ids: Ids,
        log: Log,
        metrics: Metrics,
    ) -> None:
        self._table = table
        self._bell = bell
        self._clock = clock
        self._marks = Marks(table)
        self._idle = IdlePlaces(table, clock, ids.token)
        self._degraded = DegradedEndpoints(table, bell, self._marks, ids, log)
        self._waiting = WaitingRuns(table, self._marks, clock)
        self._log = log
        self._metrics = metrics

    def run(self) -> None:
        """Sweeps all shards, or as many as the time allows.

        What cannot be looked at is passed over until the next pass, so that it hides nothing else.
        Raises Failed when the table is unreachable.
        """
        began = self._clock.now_ms()
        place = self._table.get(keys.sweep_place(_PLACE))
        first = int(place["shard"]) if place else 0
        this = _Pass(stop_at=began + SWEEP_RUN_MS_MAX)
        stopped: int | None = None
        reached = 0
        for step in range(DUE_SHARDS):
            shard = (first + step) % DUE_SHARDS
            if self._clock.now_ms() >= this.stop_at:
                stopped = shard
                break
            this.partition = keys.due_shard(shard)
            reached += self._passed(partial(self._sweep_shard, this))
            self._passed(partial(self._idle.give_back, shard, this.stop_at))
        if not reached:
            raise Failed("unavailable", "no shard could be swept; the next pass tries again")
        # Where the next pass begins, and when this one ended: the doctor looks at that.
        place = {"shard": stopped or 0, "at": self._clock.now_ms()}
        self._table.write(put(keys.sweep_place(_PLACE), place))
        self._metrics(
            {
                Metric.SWEEP_HEARTBEAT: 1,
                Metric.OLDEST_WAITING_RUN_AGE_S: this.run / 1000,
                Metric.OLDEST_DUE_ENTRY_AGE_S: this.entry / 1000,
            }
        )
        self._log("sweep.due", count=this.rung, duration_ms=self._clock.now_ms() - began)

    def _passed(self, look: Callable[[], None]) -> bool:
        """Looks at one thing, and whether that went well; a failure is that thing's alone."""
        try:
            look()
        except Failed as failed:
            self._log("sweep.passed_over", code=failed.code)
            return False
        except Exception as error:  # noqa: BLE001 - a row that cannot be read must not hide others
            self._log("sweep.passed_over", error=error_name(error))
            return False
        return True

    def _sweep_shard(self, this: _Pass) -> None:
        after = None
        for _ in range(SWEEP_PAGES_PER_SHARD):
            page = self._table.query_due(
                this.partition,
                until_ms=self._clock.now_ms(),
                limit=SWEEP_PAGE_ITEMS,
                after=after,
            )
            for item in page.items:
                if self._clock.now_ms() >= this.stop_at:
                    return
                key = Key(item["pk"], item["sk"])
                self._passed(partial(self._look_at, key, this))
            if page.last is None:
                return
            after = page.last

    def _look_at(self, key: Key, this: _Pass) -> None:
        """One mark. The index lags, so what it says is read again before anything is done."""
        match key.sk:
            case keys.ORDER:
                self._look_at_run(key, this)
            case keys.OUTBOX:
                self._look_at_entry(key, this)
            case keys.DELIVERY:
                self._look_at_endpoint(key, this)
            case keys.RUNNING:
                self._look_at_running(key, this)
            case keys.REPLAY:
                self._look_at_replay(key, this)
            case keys.JOB | keys.NOTICE | keys.SETTINGS:
                self._look_at_chore(key, this)
            case _ if key.sk.startswith(RELEASE):
                self._look_at_release(key, this)

    # ---- runs

    def _look_at_run(self, key: Key, this: _Pass) -> None:
        head = read_head(self._table, key.pk.removeprefix("CONV#"))
        conversation, pending = head.conversation, head.pending
        now = self._clock.now_ms()
        if conversation is None or not this.is_due(conversation, now):
            return
        if pending is None:
            self._marks.drop(key, conversation, "#pending = :zero", zero=0)
            return
        this.run = max(this.run, now - pending.created_at)
        if is_live(pending, now):
            self._marks.move(key, conversation, pending.lease_until + LEASE_GRACE_MS)
            return
        if self._marks.note_ring(key, conversation, _run_seen(pending), now):
            self._bell.turn(conversation.conversation_id, conversation.agent_id)
            this.rung += 1

    def _look_at_running(self, key: Key, this: _Pass) -> None:
        """Conversations that wait for one of their agent's running slots: as many as are free are
        rung for."""
        item = self._table.get(key)
        now = self._clock.now_ms()
        running = Running.of(item)
        if item is None or not this.is_due(running, now):
            return
        found = self._waiting.look_at(key, running)
        if found.since is not None:
            this.run = max(this.run, now - found.since)
        for conversation_id in found.conversation_ids:
            self._bell.turn(conversation_id, keys.agent_of(key))
            this.rung += 1

    # ---- entries

    def _look_at_entry(self, key: Key, this: _Pass) -> None:
        item = self._table.get(key)
        outbox = None if item is None else msgspec.convert(item, Outbox)
        now = self._clock.now_ms()
        if outbox is None or not this.is_due(outbox, now):
            return
        head = find_outbox_head(self._table, outbox)
        entry = head.entry
        if entry is None:
            if head.whole:
                self._marks.drop(key, outbox, "#seq = :seq", seq=outbox.seq)
            elif self._marks.note_ring(key, outbox, f"{head.bound}", now):
                self._bell.delivery(outbox.conversation_id)  # the worker searches on from the bound
            return
        really = self._really_due(outbox, entry, now)
        if really > now:
            self._marks.move(key, outbox, really)
            return
        this.entry = max(this.entry, now - max(entry.due_time, entry.created_at))
        seen = f"{entry.sequence}:{entry.attempts}"
        if self._marks.note_ring(key, outbox, seen, now):
            # The group of a worker that died is blocked by its message, so a ring that came to
            # nothing, or an attempt found open, is followed by one in a group of its own.
            dead = entry.open is not None or outbox.seen == seen
            self._bell.delivery(outbox.conversation_id, recovery=entry.attempts if dead else None)
            this.rung += 1

    def _really_due(self, outbox: Outbox, entry: Entry, now: int) -> int:
        if entry.open is not None:
            return entry.open.until
        if entry.due_time <= now:
            return entry.due_time
        return due_time(entry, self._endpoint(keys.delivery(outbox.install_id)))

    # ---- endpoints, replays, releases

    def _look_at_endpoint(self, key: Key, this: _Pass) -> None:
        """A degraded endpoint: the head that waits longest gets this minute's probe."""
        item = self._table.get(key)
        now = self._clock.now_ms()
        mark = None if item is None else msgspec.convert(item, Mark)
        if item is not None and mark is not None and this.is_due(mark, now):
            self._degraded.look(key, item, mark, now)

    def _endpoint(self, key: Key) -> Endpoint:
        item = self._table.get(key)
        return Endpoint() if item is None else msgspec.convert(item, Endpoint)

    def _look_at_replay(self, key: Key, this: _Pass) -> None:
        item = self._table.get(key)
        now = self._clock.now_ms()
        mark = None if item is None else msgspec.convert(item, Mark)
        if item is None or mark is None or not this.is_due(mark, now):
            return
        replay = msgspec.convert(item, Replay)
        if self._marks.note_ring(key, mark, str(replay.tries), now):
            self._bell.delivery(replay.conversation_id, replay=replay.story, recovery=now)

    def _look_at_chore(self, key: Key, this: _Pass) -> None:
        """A job that goes on, an enabling that stopped short, a notice that somebody waits for."""
        item = self._table.get(key)
        now = self._clock.now_ms()
        mark = None if item is None else msgspec.convert(item, Mark)
        if item is None or mark is None or not this.is_due(mark, now):
            return
        match key.sk:
            case keys.JOB:
                chore, seen = item["job_id"], str(item["turn"])
            case keys.NOTICE:
                chore, seen = item["notice_id"], str(item["tries"])
            case _:
                chore, seen = item["install_id"], item["enabling_token"]
        if self._marks.note_ring(key, mark, seen, now):
            self._bell.chore(chore)
            this.rung += 1

    def _look_at_release(self, key: Key, this: _Pass) -> None:
        item = self._table.get(key)
        now = self._clock.now_ms()
        mark = None if item is None else msgspec.convert(item, Mark)
        if item is None or mark is None or not this.is_due(mark, now):
            return
        release = msgspec.convert(item, Release)
        after = None
        for _ in range(RELEASE_PAGES_MAX):
            moved, after = release_page(self._table, release, now, SWEEP_PAGE_ITEMS, after)
            if not release.spread_ms:
                for each in moved:
                    self._ring(each)
            if after is None or self._clock.now_ms() >= this.stop_at:
                break
        if now >= release.until and after is None:
            self._marks.drop_row(key, "#until = :until", until=release.until)
        else:
            self._marks.move(key, mark, now + RELEASE_EVERY_MS - TICK_SLACK_MS)

    def _ring(self, key: Key) -> None:
        conversation_id = key.pk.removeprefix("CONV#")
        if key.sk == keys.ORDER:
            self._bell.turn(conversation_id, conversation_id)
        elif key.sk == keys.OUTBOX:
            self._bell.delivery(conversation_id)


def _run_seen(pending: Pending) -> str:
    return f"{pending.order}:{pending.lease_no}"
