"""Owns what the sweep does for a degraded endpoint: the minute's probe, the notices on the way, and
the pause at their end.

Refuses to go by the minute in which it looks: what was told stands on the endpoint's row, so that
each part of the time is told once, however late the sweep comes.
"""

from __future__ import annotations

import msgspec

from mesh.control.notices import notice_write, write_and_tell
from mesh.kernel.ids import Ids
from mesh.kernel.limits import (
    DEGRADED_MS_MAX,
    DEGRADED_NOTICES_PERCENT,
    PROBE_EVERY_MS,
    TICK_SLACK_MS,
)
from mesh.kernel.log import Log
from mesh.records.conversation import Mark
from mesh.records.install import Endpoint, EndpointState, Install
from mesh.records.notice import NoticeKind
from mesh.records.outbox import Replay
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.keys import Key
from mesh.storage.queues import Bell
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import Write, update
from mesh.sweeps.marks import Marks


class DegradedEndpoints:
    """Looks at the `DELIVERY` rows whose marks are due."""

    def __init__(self, table: Table, bell: Bell, marks: Marks, ids: Ids, log: Log) -> None:
        self._table = table
        self._bell = bell
        self._marks = marks
        self._ids = ids
        self._log = log

    def look(self, key: Key, item: Item, mark: Mark, now: int) -> None:
        """Rings for the head that waits longest; or, after a day of failures, pauses delivery.

        Raises Failed.
        """
        endpoint = msgspec.convert(item, Endpoint)
        if endpoint.state is not EndpointState.DEGRADED:
            self._marks.drop(key, mark, "attribute_exists(#pk)")
            return
        since = endpoint.failing_since or now
        failing_ms = now - since - endpoint.held_ms(since, now)  # what is held proves nothing
        over = failing_ms >= DEGRADED_MS_MAX
        untold = [part for part in _parts(failing_ms) if part > endpoint.told]
        if over or untold:
            row = self._table.get(keys.settings(keys.install_of(key)))
            if row is None:  # nobody is left to be told, nor anything to be sent
                self._marks.drop(key, mark, "attribute_exists(#pk)")
                return
            install = msgspec.convert(row, Install)
            notices = [self._failing(install, endpoint, part, failing_ms, now) for part in untold]
            if over:
                self._pause(key, install, endpoint, notices, now)
                return
            self._tell(key, endpoint, notices, failing_ms)
        # A schedule ticks a little early at times; the mark must be due by the next tick anyhow.
        if not self._marks.move(key, mark, now + PROBE_EVERY_MS - TICK_SLACK_MS):
            return
        install_id = keys.install_of(key)
        heads = self._table.query_due(keys.degraded(install_id), until_ms=None, limit=1).items
        for head in heads:
            self._bell.delivery(head["pk"].removeprefix("CONV#"), recovery=now)
        if not heads:
            self._probe_by_replay(install_id, now)

    def _probe_by_replay(self, install_id: str, now: int) -> None:
        """Where no conversation waits, the replay that waits longest finds out how the endpoint
        does."""
        for held in self._table.query_due(keys.held(install_id), until_ms=None, limit=1).items:
            item = self._table.get(Key(held["pk"], held["sk"]))
            if item is not None and held["sk"] == keys.REPLAY:
                replay = msgspec.convert(item, Replay)
                self._bell.delivery(replay.conversation_id, replay=replay.story, recovery=now)

    def _pause(
        self, key: Key, install: Install, endpoint: Endpoint, notices: list[Write], now: int
    ) -> None:
        """Nothing is tried any more until an operator resumes it, and nothing ages meanwhile.

        `notices` are of the parts that a sweep which stood still for hours did not tell of.
        """
        reason = "failed_for_a_day"
        pause = update(
            key,
            "SET #state = :paused, #reason = :why, #held_since = if_not_exists(#held_since, :now)"
            " REMOVE #due_pk, #due_at",
            "#state = :degraded AND #failing_since = :since",
            paused=EndpointState.PAUSED.value,
            why=reason,
            now=now,
            degraded=EndpointState.DEGRADED.value,
            since=endpoint.failing_since,
        )
        paused = self._notice(install, NoticeKind.DELIVERY_PAUSED, now, reason, {})
        try:
            write_and_tell(self._table, pause, [*notices, paused])
        except ConditionFailed:
            return  # it recovered, or was resumed or paused, meanwhile
        self._log("endpoint.paused", install_id=install.install_id, reason=reason)

    def _tell(self, key: Key, endpoint: Endpoint, notices: list[Write], failing_ms: int) -> None:
        """Puts the notices down of the parts that went by untold."""
        told = update(
            key,
            "SET #told = :told",
            "#state = :degraded AND #failing_since = :since"
            " AND (attribute_not_exists(#told) OR #told = :before)",
            told=max(_parts(failing_ms)),
            degraded=EndpointState.DEGRADED.value,
            since=endpoint.failing_since,
            before=endpoint.told,
        )
        try:
            write_and_tell(self._table, told, notices)
        except ConditionFailed:
            return
        self._log("endpoint.failing", install_id=keys.install_of(key), age_s=failing_ms // 1000)

    def _failing(
        self, install: Install, endpoint: Endpoint, part: int, failing_ms: int, now: int
    ) -> Write:
        figures = {"percent": part, "age_s": failing_ms // 1000}
        return self._notice(install, NoticeKind.DELIVERY_FAILING, now, endpoint.reason, figures)

    def _notice(
        self,
        install: Install,
        kind: NoticeKind,
        now: int,
        reason: str | None,
        figures: dict[str, int],
    ) -> Write:
        return notice_write(
            self._ids.ulid(),
            kind,
            now,
            agent_id=install.agent_id,
            install_id=install.install_id,
            subject=install.install_id,
            reason=reason,
            figures=figures,
        )


def _parts(failing_ms: int) -> list[int]:
    """The parts (per cent) of the time before the pause that are over, of those that are told."""
    over = failing_ms * 100 // DEGRADED_MS_MAX
    return [part for part in DEGRADED_NOTICES_PERCENT if part <= over]
