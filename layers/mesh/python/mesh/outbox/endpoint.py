"""Owns the health of a delivery endpoint, and the eight requests that an install may have in
flight.

Refuses to let a failing endpoint be called more than once a minute, whatever waits for it, and to
let its health touch ingress.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from mesh.control.holds import release_write
from mesh.control.notices import notice_write, write_and_tell
from mesh.kernel.clock import Clock
from mesh.kernel.ids import Ids, Random
from mesh.kernel.limits import (
    DEGRADED_AFTER_FAILURES,
    DELIVERY_LEASE_MS,
    PROBE_EVERY_MS,
    RECOVERY_SPREAD_MS,
    SLOT_TRIES,
    TICK_SLACK_MS,
    TRANSACTION_TRIES,
)
from mesh.outbox.schedule import ENDPOINT_FAILURES
from mesh.records.install import Endpoint, EndpointState
from mesh.records.notice import NoticeKind
from mesh.records.outbox import AttemptEnd, Entry
from mesh.storage import keys
from mesh.storage.table import Cancelled, ConditionFailed, Table
from mesh.storage.writes import Write, update


@dataclass(frozen=True, slots=True)
class Slot:
    """One request's place among the eight, until a time."""

    name: str
    until: int


class NoSlot(Exception):
    """All eight are taken, or the endpoint's state changed under us: look again later."""


class Endpoints:
    """Reads and moves the `DELIVERY` rows."""

    def __init__(self, table: Table, clock: Clock, ids: Ids, random: Random) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids
        self._random = random

    def read(self, install_id: str) -> Endpoint:
        """The endpoint as it is now. Raises Failed."""
        item = self._table.get(keys.delivery(install_id))
        return Endpoint() if item is None else msgspec.convert(item, Endpoint)

    def may_probe(self, endpoint: Endpoint) -> bool:
        """Whether a degraded endpoint's next probe may begin."""
        due = endpoint.last_probe_at + PROBE_EVERY_MS - TICK_SLACK_MS
        return self._clock.now_ms() >= due

    def take_slot(self, install_id: str, endpoint: Endpoint) -> Slot:
        """A place for one request; of a degraded endpoint, the minute's only probe. Raises NoSlot,
        Failed."""
        state = endpoint.state
        for _ in range(SLOT_TRIES):
            if endpoint.state is not state:
                raise NoSlot
            now = self._clock.now_ms()
            free = [name for name, until in endpoint.slots.items() if until <= now]
            if not free:
                raise NoSlot
            # A random one of those that are free, so that workers do not all reach for the first.
            name = free[int(self._random.uniform(0, len(free))) % len(free)]
            try:
                return self._take(install_id, endpoint, name, now)
            except ConditionFailed as failed:
                if failed.old is not None:
                    endpoint = msgspec.convert(failed.old, Endpoint)
                if state is EndpointState.DEGRADED and not self.may_probe(endpoint):
                    raise NoSlot from None
        raise NoSlot

    def _take(self, install_id: str, endpoint: Endpoint, name: str, now: int) -> Slot:
        until = now + DELIVERY_LEASE_MS
        sets = f"#{name} = :until"
        condition = f"(attribute_not_exists(#{name}) OR #{name} = :seen)"
        values: dict[str, Any] = {"until": until, "seen": endpoint.slots[name]}
        if endpoint.state is EndpointState.DEGRADED:
            sets += ", #last_probe_at = :now"
            condition += " AND #state = :state AND #last_probe_at = :last"
            values |= {
                "now": now,
                "state": EndpointState.DEGRADED.value,
                "last": endpoint.last_probe_at,
            }
        else:
            condition += " AND (attribute_not_exists(#state) OR #state = :state)"
            values["state"] = EndpointState.OK.value
        self._table.write(update(keys.delivery(install_id), f"SET {sets}", condition, **values))
        return Slot(name, until)

    def give_slot(self, install_id: str, slot: Slot) -> None:
        """Frees a slot that no request used. Raises Failed."""
        self._write(self._freeing(install_id, slot))

    def settle(
        self, entry: Entry, slot: Slot, end: AttemptEnd, endpoint: Endpoint
    ) -> EndpointState:
        """Frees the slot and notes what the attempt at `entry` says of the endpoint; answers how it
        then does.

        `endpoint` is what was read before the attempt. A change of its state is told to the
        operator. Raises Failed.
        """
        install_id, now = entry.install_id, self._clock.now_ms()
        if end is AttemptEnd.DELIVERED:
            if endpoint.state is EndpointState.OK and endpoint.failures == 0:
                self._write(self._freeing(install_id, slot))
                return EndpointState.OK
            return self._recover(entry, slot, endpoint, now)
        if end is AttemptEnd.GONE:
            return self._pause(entry, slot, now)
        if end not in ENDPOINT_FAILURES:
            self._write(self._freeing(install_id, slot))
            return endpoint.state
        item = self._write(
            self._freeing(
                install_id,
                slot,
                "#failures = if_not_exists(#failures, :zero) + :one,"
                " #failing_since = if_not_exists(#failing_since, :now)",
                zero=0,
                one=1,
                now=now,
            )
        )
        if item is None:
            return endpoint.state
        return self._degrade_if_failing(entry, msgspec.convert(item, Endpoint), now)

    def _pause(self, entry: Entry, slot: Slot, now: int) -> EndpointState:
        """The receiver says that it is gone: nothing is sent until an operator resumes it."""
        pause = self._freeing(
            entry.install_id,
            slot,
            "#state = :paused, #reason = :gone, #held_since = if_not_exists(#held_since, :now)",
            remove="#due_pk, #due_at",
            condition="attribute_not_exists(#state) OR #state <> :paused",
            paused=EndpointState.PAUSED.value,
            gone="gone",
            now=now,
        )
        notice = self._notice(entry, NoticeKind.DELIVERY_PAUSED, now, "gone")
        try:
            write_and_tell(self._table, pause, [notice])
        except ConditionFailed:
            # Another of the requests in flight was told so, too, and has paused it.
            self._write(self._freeing(entry.install_id, slot))
        return EndpointState.PAUSED

    def _recover(self, entry: Entry, slot: Slot, endpoint: Endpoint, now: int) -> EndpointState:
        """Healthy again: the failures are forgotten, and what waited in its turn is due, spread
        out."""
        install_id = entry.install_id

        def healthy(condition: str, **values: str) -> Write:
            return self._freeing(
                install_id,
                slot,
                "#failures = :zero, #state = :ok, #recovered_at = :now",
                remove="#failing_since, #told, #reason, #due_pk, #due_at",
                condition=condition,
                zero=0,
                ok=EndpointState.OK.value,
                now=now,
                **values,
            )

        if endpoint.state is EndpointState.OK:
            try:
                self._table.write(healthy("attribute_not_exists(#state) OR #state = :ok"))
                return EndpointState.OK
            except ConditionFailed as failed:
                found = Endpoint() if failed.old is None else msgspec.convert(failed.old, Endpoint)
            if found.state is not EndpointState.DEGRADED:
                return found.state
            # It degraded while this request was under way: what was parked since must come back.
        whole = healthy("#state = :degraded", degraded=EndpointState.DEGRADED.value)
        # Conversations waited in their turn to probe, and replays, which probe where no
        # conversation does, among what is held.
        releases = [
            release_write(keys.install(install_id), source, now, RECOVERY_SPREAD_MS)
            for source in (keys.degraded(install_id), keys.held(install_id))
        ]
        notice = self._notice(entry, NoticeKind.DELIVERY_RECOVERED, now)
        try:
            self._table.transact_settled(lambda: [whole, *releases, notice], TRANSACTION_TRIES)
        except Cancelled:
            # The slot's lease ran out, or somebody else brought it back or paused it meanwhile.
            return self.read(install_id).state
        return EndpointState.OK

    def _degrade_if_failing(self, entry: Entry, endpoint: Endpoint, now: int) -> EndpointState:
        if endpoint.failures < DEGRADED_AFTER_FAILURES or endpoint.state is not EndpointState.OK:
            return endpoint.state
        reason = "failures_in_a_row"
        degrade = update(
            keys.delivery(entry.install_id),
            "SET #state = :degraded, #reason = :reason, #last_probe_at = :now,"
            " #due_pk = :due_pk, #due_at = :due_at",
            "#failures >= :many AND (attribute_not_exists(#state) OR #state = :ok)",
            degraded=EndpointState.DEGRADED.value,
            reason=reason,
            now=now,
            due_pk=keys.due(entry.install_id),
            due_at=now + PROBE_EVERY_MS - TICK_SLACK_MS,
            many=DEGRADED_AFTER_FAILURES,
            ok=EndpointState.OK.value,
        )
        kind, failures = NoticeKind.DELIVERY_DEGRADED, endpoint.failures
        notice = self._notice(entry, kind, now, reason, failures=failures)
        try:
            write_and_tell(self._table, degrade, [notice])
        except ConditionFailed:
            return endpoint.state
        return EndpointState.DEGRADED

    def _notice(
        self, entry: Entry, kind: NoticeKind, now: int, reason: str | None = None, **figures: int
    ) -> Write:
        """The notice of a change of the endpoint's state."""
        return notice_write(
            self._ids.ulid(),
            kind,
            now,
            agent_id=entry.agent_id,
            install_id=entry.install_id,
            subject=entry.install_id,
            reason=reason,
            figures=figures,
        )

    def _freeing(
        self,
        install_id: str,
        slot: Slot,
        sets: str = "",
        remove: str = "",
        condition: str = "",
        **values: Any,
    ) -> Write:
        """Frees the slot and more. A slot whose lease ran out and was taken anew is not ours to
        free."""
        expression = f"SET #{slot.name} = :free" + (f", {sets}" if sets else "")
        if remove:
            expression += f" REMOVE {remove}"
        ours = f"#{slot.name} = :ours"
        whole = f"({ours}) AND ({condition})" if condition else ours
        return update(
            keys.delivery(install_id), expression, whole, free=0, ours=slot.until, **values
        )

    def _write(self, write: Write) -> dict[str, Any] | None:
        try:
            return self._table.write(write)
        except ConditionFailed:
            return None
