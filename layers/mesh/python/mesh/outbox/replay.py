"""Owns the replay of an entry that ended: one more delivery beside the order, which blocks nothing.

Refuses to bring an entry back into the order, and to try for ever: a replay has the first attempts
of the ordinary schedule, and then the operator is asked again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mesh.kernel.clock import Clock
from mesh.kernel.ids import Random
from mesh.kernel.limits import REPLAY_TRIES_MAX, RETRY_DELAYS_S
from mesh.outbox.dispatch import NoReply, OutboxWorker
from mesh.outbox.endpoint import NoSlot
from mesh.outbox.entries import LostEntry
from mesh.outbox.reading import InstallRead, read_install
from mesh.outbox.schedule import delay_ms
from mesh.records.install import EndpointState, InstallState
from mesh.records.outbox import AttemptEnd, Entry, EntryState, Replay
from mesh.storage import keys
from mesh.storage.queues import Bell
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import delete, update


class ReplayWorker:
    """Replays. Uses the outbox worker's own way of sending."""

    def __init__(
        self, table: Table, bell: Bell, outbox: OutboxWorker, clock: Clock, random: Random
    ) -> None:
        self._table = table
        self._bell = bell
        self._outbox = outbox
        self._clock = clock
        self._random = random

    def work(self, story: str) -> None:
        """Makes the next attempt of a replay that was ordered, if it may be made now. Raises
        Failed."""
        item = self._table.get(keys.replay(story))
        if item is None:
            return
        replay = msgspec.convert(item, Replay)
        row = self._table.get(keys.entry(replay.conversation_id, replay.sequence))
        entry = None if row is None else msgspec.convert(row, Entry)
        if entry is None or entry.state is EntryState.PENDING:
            self._done(replay)
            return
        now = self._clock.now_ms()
        if entry.open is not None:
            if entry.open.until > now:
                return
            entry = self._outbox.close_unknown(replay.conversation_id, entry)
        install = read_install(self._table, self._clock, entry.install_id)
        if (
            install is None
            or install.settings.state is InstallState.DELETED
            or install.settings.delivery_url is None
        ):
            self._done(replay)
            return
        self._attempt(replay, entry, install)

    def _attempt(self, replay: Replay, entry: Entry, install: InstallRead) -> None:
        """Sends it if its endpoint may be called now: of a degraded one it is a probe."""
        endpoint, endpoints = install.endpoint, self._outbox.endpoints
        probe = endpoint.state is EndpointState.DEGRADED
        if (
            install.settings.state is not InstallState.ENABLED
            or endpoint.state is EndpointState.PAUSED
            or (probe and not endpoints.may_probe(endpoint))
        ):
            self._park(replay, entry.install_id)
            return
        try:
            sent = self._outbox.send(
                replay.conversation_id, entry, install, endpoint, probe=probe, replay=True
            )
        except NoReply:
            self._done(replay)
            return
        except (NoSlot, LostEntry):
            sent = None
        if sent is not None:
            _, slot, outcome = sent
            endpoints.settle(entry, slot, outcome.end, endpoint)
            last = not probe and replay.tries + 1 >= REPLAY_TRIES_MAX
            if last or outcome.end is AttemptEnd.DELIVERED:
                self._done(replay)
                return
        if probe:  # a probe counts to no tries, as of entries
            self._park(replay, entry.install_id)
        elif sent is not None:
            self._again(replay)
        else:
            self._bell.delivery_later(replay.conversation_id, RETRY_DELAYS_S[0], replay.story)

    def _park(self, replay: Replay, install_id: str) -> None:
        """Takes the mark out of the sweep's way while nothing may be sent.

        Whatever lets deliveries go on orders the release of what is held, as of conversations. The
        last to be parked is the last that probes.
        """
        self._change(
            replay,
            "SET #due_pk = :due_pk, #due_at = :due_at",
            "#requested_at = :requested_at",
            due_pk=keys.held(install_id),
            due_at=self._clock.now_ms(),
            requested_at=replay.requested_at,
        )

    def _again(self, replay: Replay) -> None:
        wait_ms = delay_ms(replay.tries + 1, self._random)
        moved = self._change(
            replay,
            "SET #tries = :tries, #due_pk = :due_pk, #due_at = :due_at",
            "#tries = :seen",
            tries=replay.tries + 1,
            due_pk=keys.due(replay.story),
            due_at=self._clock.now_ms() + wait_ms,
            seen=replay.tries,
        )
        if moved:
            self._bell.delivery_later(replay.conversation_id, -(-wait_ms // 1000), replay.story)

    def _change(self, replay: Replay, expression: str, condition: str, **values: Any) -> bool:
        """Whether the order was changed; False when it was done, or ordered again, meanwhile."""
        try:
            self._table.write(update(keys.replay(replay.story), expression, condition, **values))
        except ConditionFailed:
            return False
        return True

    def _done(self, replay: Replay) -> None:
        try:
            self._table.write(
                delete(
                    keys.replay(replay.story),
                    "#requested_at = :requested_at",
                    requested_at=replay.requested_at,
                )
            )
        except ConditionFailed:
            return  # it was ordered again meanwhile
