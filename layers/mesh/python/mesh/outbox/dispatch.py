"""Owns delivery: the head of a conversation's outbox, from its lease to its end.

Refuses to send an entry before the one below it is terminal, to begin a request without an attempt
written down, and to begin one on settings that were read more than a second ago. What a crash
leaves open is found again: it counts, as `unknown`, and the entry is tried anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

import msgspec

from mesh.connectors.contract import Outbound, OutboundAttempt
from mesh.control.instance_key import InstanceKeys
from mesh.control.instance_settings import InstanceHosts
from mesh.kernel.clock import Clock
from mesh.kernel.ids import Ids, Random
from mesh.kernel.limits import (
    DELIVERY_LEASE_MS,
    DELIVERY_SETTINGS_FRESH_MS,
    DUE_AFTER_MS,
    EGRESS_TOTAL_S,
    ENTRIES_PER_INVOCATION_MAX,
    ENTRY_AGE_MS_MAX,
    NO_SLOT_RETRY_S_MAX,
    NO_SLOT_RETRY_S_MIN,
    RING_AGAIN_WITHIN_MS,
    SHORT_DELAY_S_MAX,
    SLOTS_PER_INSTALL,
)
from mesh.kernel.log import Log
from mesh.outbox.endpoint import Endpoints, NoSlot, Slot
from mesh.outbox.ends import of_failure, of_status
from mesh.outbox.entries import REPLY_DELETED, Entries, LostEntry
from mesh.outbox.reading import InstallRead, read_install
from mesh.outbox.schedule import Outcome, after_attempt, due_time
from mesh.records.conversation import Heard, Outbox
from mesh.records.install import Endpoint, EndpointState, InstallState
from mesh.records.outbox import AttemptEnd, Entry, EntryState
from mesh.security.egress import Egress, EgressFailure, EgressPolicy
from mesh.security.egress.contract import policy_of
from mesh.storage import keys
from mesh.storage.conversations import find_outbox_head
from mesh.storage.queues import Bell
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import update

_EGRESS_TOTAL_MS: Final = int(EGRESS_TOTAL_S * 1000)


class _Then(StrEnum):
    """What a look at the head leads to."""

    AGAIN = "again"
    """Something ended: look at the head anew."""
    LET_GO = "let_go"
    """Nothing to do now; a mark, a ring or another worker sees to what is left."""


class NoReply(Exception):
    """The bytes to be sent were deleted since they were committed."""


class OutboxWorker:
    """Delivers. One per function."""

    def __init__(
        self,
        *,
        table: Table,
        bell: Bell,
        egress: Egress,
        outbound: Mapping[str, Outbound],
        instance_keys: InstanceKeys,
        clock: Clock,
        ids: Ids,
        random: Random,
        log: Log,
        own_hosts: tuple[str, ...],
        instance_hosts: InstanceHosts,
    ) -> None:
        self._table = table
        self._bell = bell
        self._egress = egress
        self._outbound = outbound
        self._instance_keys = instance_keys
        self._clock = clock
        self._random = random
        self._log = log
        self._own_hosts = frozenset(own_hosts)
        self._instance_hosts = instance_hosts
        self._entries = Entries(table, clock, ids)
        self.endpoints = Endpoints(table, clock, ids, random)

    def work(self, conversation_id: str, stop_at_ms: int, *, delayed: bool = False) -> None:
        """Sends entries from the head on until none is due, or time is up. Raises Failed.

        A `delayed` ring sends nothing: what is due is handed on to the queue of deliveries.
        """
        for _ in range(ENTRIES_PER_INVOCATION_MAX):
            if self._clock.now_ms() >= stop_at_ms:
                break
            if self._step(conversation_id, delayed) is _Then.LET_GO:
                return
        self._bell.delivery(conversation_id)

    # ---- the head

    def _step(self, conversation_id: str, delayed: bool) -> _Then:
        item = self._table.get(keys.outbox(conversation_id))
        if item is None:
            return _Then.LET_GO
        outbox = msgspec.convert(item, Outbox)
        head = find_outbox_head(self._table, outbox)
        entry = head.entry
        now = self._clock.now_ms()
        if entry is None:
            return self._rest(outbox) if head.whole else self._advance_to(outbox, head.bound)
        if entry.open is not None:
            if entry.open.until > now:
                return _Then.LET_GO  # its holder looks at the head again once it is closed
            return self._close_unknown(outbox, entry)
        install = read_install(self._table, self._clock, outbox.install_id)
        if install is None or install.settings.state is InstallState.DELETED:
            return self._end(outbox, entry, EntryState.DEAD, "install_deleted")
        if entry.created_at < install.settings.discard_before:
            return self._end(outbox, entry, EntryState.DISCARDED, "operator")
        endpoint = install.endpoint
        if (
            install.settings.state is not InstallState.ENABLED
            or endpoint.state is EndpointState.PAUSED
        ):
            return self._park(outbox, keys.held(outbox.install_id), now)
        if (ends := self._ends(entry, install, endpoint)) is not None:
            return self._end(outbox, entry, *ends)
        if endpoint.state is EndpointState.DEGRADED:
            if entry.not_before > now:  # its turn would come to nothing: the others go first
                moved = outbox.due_at != entry.not_before
                parked = keys.degraded(outbox.install_id)
                return self._park(outbox, parked, entry.not_before, moved=moved)
            if not self.endpoints.may_probe(endpoint):
                return self._park(outbox, keys.degraded(outbox.install_id), entry.created_at)
        elif entry.attempts and (wait_ms := due_time(entry, endpoint) - now) > 0:
            # What was never tried is due: its time is another function's clock, which may be ahead.
            return self._wait(outbox, wait_ms)
        then = self._hand_on if delayed else self._attempt
        return then(outbox, entry, install, endpoint)

    def _hand_on(self, outbox: Outbox, entry: Entry, _: InstallRead, endpoint: Endpoint) -> _Then:
        """Rings for an attempt that is due, in a group of its own, or later when no slot is free.

        The queue of delays has few workers. Were requests made there, the eight of one receiver
        that hangs would hold them all, and everybody's retries would be late.
        """
        if endpoint.in_flight(self._clock.now_ms()) < SLOTS_PER_INSTALL:
            self._bell.delivery(outbox.conversation_id, recovery=entry.attempts)
        else:
            self._try_later(outbox)
        return _Then.LET_GO

    def _try_later(self, outbox: Outbox) -> None:
        later_s = int(self._random.uniform(NO_SLOT_RETRY_S_MIN, NO_SLOT_RETRY_S_MAX))
        self._bell.delivery_later(outbox.conversation_id, later_s)

    def _ends(
        self, entry: Entry, install: InstallRead, endpoint: Endpoint
    ) -> tuple[EntryState, str] | None:
        """How an entry ends that there is nowhere, or no longer any sense, to send; None of
        others."""
        if install.settings.delivery_url is None:
            return EntryState.UNDELIVERABLE, "no_delivery_url"
        if self._age_ms(entry, endpoint) >= ENTRY_AGE_MS_MAX:
            return EntryState.DEAD, "too_old"
        return None

    def _attempt(
        self, outbox: Outbox, entry: Entry, install: InstallRead, endpoint: Endpoint
    ) -> _Then:
        probe = endpoint.state is EndpointState.DEGRADED
        try:
            sent = self.send(
                outbox.conversation_id, entry, install, endpoint, probe=probe, replay=False
            )
        except NoReply:
            return self._end(outbox, entry, EntryState.DEAD, REPLY_DELETED)
        except NoSlot:
            if probe:
                return self._park(outbox, keys.degraded(outbox.install_id), entry.created_at)
            self._try_later(outbox)
            return _Then.LET_GO
        except LostEntry:
            return _Then.LET_GO
        if sent is None:
            return _Then.AGAIN
        closed, slot, outcome = sent
        state = self.endpoints.settle(entry, slot, outcome.end, endpoint)
        if probe and state is EndpointState.OK:
            self._log("endpoint.recovered", install_id=outbox.install_id)
        if closed.state is not EntryState.PENDING:
            return self._advance(outbox, closed)
        if state is EndpointState.DEGRADED:
            # The failure that made it so waits for a probe as well, not for its own long delay.
            since = max(self._clock.now_ms(), closed.not_before)
            return self._park(outbox, keys.degraded(outbox.install_id), since, moved=True)
        return self._wait(outbox, closed.due_time - self._clock.now_ms())

    def send(
        self,
        conversation_id: str,
        entry: Entry,
        install: InstallRead,
        endpoint: Endpoint,
        *,
        probe: bool,
        replay: bool,
    ) -> tuple[Entry, Slot, Outcome] | None:
        """Makes one attempt: slot, attempt written, request, attempt closed.

        None when the settings were read too long ago for an attempt to begin on them. Raises
        NoReply when the reply was deleted, NoSlot and LostEntry when others are at work, Failed.
        """
        body = self._body(conversation_id, entry)
        if body is None:
            raise NoReply
        url, secrets = install.opened(self._instance_keys.current(), self._clock.now_ms())
        policy = policy_of(self._own_hosts, install.settings.allow_hosts, self._instance_hosts())
        if self._clock.now_ms() - install.read_at > DELIVERY_SETTINGS_FRESH_MS:
            return None
        slot = self.endpoints.take_slot(install.settings.install_id, endpoint)
        try:
            opened = self._entries.open(
                conversation_id, entry, DELIVERY_LEASE_MS, probe=probe, replay=replay
            )
        except LostEntry:
            self.endpoints.give_slot(install.settings.install_id, slot)
            raise
        assert opened.open is not None
        if self._clock.now_ms() + _EGRESS_TOTAL_MS > opened.open.until:
            # Whoever stood still for so long may have been taken for dead: the entry is not ours.
            self.endpoints.give_slot(install.settings.install_id, slot)
            raise LostEntry
        attempt = OutboundAttempt(
            secrets=secrets,
            install_id=install.settings.install_id,
            outbound_id=entry.outbound_id,
            now_ms=self._clock.now_ms(),
            number=opened.open.number,
            replay=replay,
        )
        headers = self._outbound[install.settings.kind].headers(attempt, body)
        outcome = self._post(url, headers, body, policy)
        now = self._clock.now_ms()
        then = after_attempt(
            opened,
            outcome,
            probe=probe,
            age_ms=self._age_ms(entry, endpoint),
            now_ms=now,
            random=self._random,
        )
        closed = self._entries.close(conversation_id, opened, outcome, then)
        self._log(
            "delivery.attempt",
            outbound_id=entry.outbound_id,
            install_id=entry.install_id,
            attempt=opened.open.number,
            reason=outcome.end.value,
            status=outcome.http_status,
            state=closed.state.value,
        )
        return closed, slot, outcome

    def _post(
        self, url: str, headers: dict[str, str], body: bytes, policy: EgressPolicy
    ) -> Outcome:
        try:
            reply = self._egress.post(url, headers, body, policy)
        except EgressFailure as failure:
            return of_failure(failure.kind)
        return of_status(reply.status, reply.retry_after, self._clock.now_ms())

    def _body(self, conversation_id: str, entry: Entry) -> bytes | None:
        """The exact bytes that were committed; None when the reply was deleted since."""
        item = self._table.get(keys.message(conversation_id, entry.reply_order))
        return None if item is None else msgspec.convert(item, Heard).sent

    def _age_ms(self, entry: Entry, endpoint: Endpoint) -> int:
        now = self._clock.now_ms()
        return now - entry.created_at - endpoint.held_ms(entry.created_at, now)

    # ---- what a look at the head leads to

    def close_unknown(self, conversation_id: str, entry: Entry) -> Entry:
        """Closes an attempt that a dead worker left open: it counts, and the entry is due at once.

        Raises LostEntry, Failed.
        """
        endpoint = self.endpoints.read(entry.install_id)
        now = self._clock.now_ms()
        assert entry.open is not None, "only an open attempt is closed"
        unknown = Outcome(AttemptEnd.UNKNOWN)
        then = after_attempt(
            entry,
            unknown,
            probe=entry.open.probe,
            age_ms=self._age_ms(entry, endpoint),
            now_ms=now,
            random=self._random,
        )
        return self._entries.close(conversation_id, entry, unknown, replace(then, due_time=now))

    def _close_unknown(self, outbox: Outbox, entry: Entry) -> _Then:
        try:
            closed = self.close_unknown(outbox.conversation_id, entry)
        except LostEntry:
            return _Then.AGAIN
        if closed.state is not EntryState.PENDING:
            return self._advance(outbox, closed)
        return _Then.AGAIN

    def _end(self, outbox: Outbox, entry: Entry, state: EntryState, reason: str) -> _Then:
        """Ends an entry that no attempt is made for."""
        try:
            ended = self._entries.end(outbox.conversation_id, entry, state, reason)
        except LostEntry:
            return _Then.AGAIN
        return self._advance(outbox, ended)

    def _advance(self, outbox: Outbox, entry: Entry) -> _Then:
        """Moves the lower bound past a terminal entry; the mark goes with the last one."""
        if entry.sequence >= outbox.seq:
            return self._rest(outbox)
        return self._advance_to(outbox, entry.sequence + 1)

    def _advance_to(self, outbox: Outbox, head: int) -> _Then:
        self._mark(outbox, "SET #head = :head", "#head < :head", head=head)
        return _Then.AGAIN

    def _rest(self, outbox: Outbox) -> _Then:
        """Nothing is pending: the mark goes, unless a turn put an entry in meanwhile."""
        held = self._mark(
            outbox,
            "SET #head = :head REMOVE #due_pk, #due_at, #rings, #seen",
            "#seq = :seq",
            head=outbox.seq + 1,
            seq=outbox.seq,
        )
        return _Then.LET_GO if held else _Then.AGAIN

    def _wait(self, outbox: Outbox, wait_ms: int) -> _Then:
        """Lets go until the head is due: short waits ride the delay queue, the rest is the sweep's.

        A short wait's ring may be lost, so the mark then stands a little behind it.
        """
        now = self._clock.now_ms()
        wait_s = max(1, -(-wait_ms // 1000))
        short = wait_ms <= RING_AGAIN_WITHIN_MS or wait_s <= SHORT_DELAY_S_MAX
        if short:
            self._bell.delivery_later(outbox.conversation_id, wait_s)
        due_at = now + wait_ms + (DUE_AFTER_MS if short else 0)
        marked = outbox.due_pk == keys.due(outbox.conversation_id) and outbox.due_at is not None
        if marked and (outbox.due_at == due_at or (short and (outbox.due_at or 0) <= due_at)):
            return _Then.LET_GO
        self._mark(
            outbox,
            "SET #due_pk = :due_pk, #due_at = :due_at",
            "attribute_exists(#pk)",
            due_pk=keys.due(outbox.conversation_id),
            due_at=due_at,
        )
        return _Then.LET_GO

    def _park(self, outbox: Outbox, partition: str, since_ms: int, *, moved: bool = False) -> _Then:
        """Takes the mark out of the sweep's way; a release, or its turn to probe, brings it
        back."""
        if outbox.due_pk != partition or moved:
            self._mark(
                outbox,
                "SET #due_pk = :partition, #due_at = :since",
                "attribute_exists(#pk)",
                partition=partition,
                since=since_ms,
            )
        return _Then.LET_GO

    def _mark(self, outbox: Outbox, expression: str, condition: str, **values: Any) -> bool:
        try:
            self._table.write(
                update(keys.outbox(outbox.conversation_id), expression, condition, **values)
            )
        except ConditionFailed:
            return False
        return True
