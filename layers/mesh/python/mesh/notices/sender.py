"""Owns how a notice is sent: to the bus, and to the operator's webhook where one is set; each
until it was taken.

Refuses to hold anything up: one attempt a ring, bounded by the guard's deadline; what failed waits
under the notice's own due mark, and is given up after a day. Each success is written down before
the next part begins, so that whoever dies in between repeats one part at most. Receivers see a
repeated id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mesh.control.rows import assign, record_of
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed
from mesh.kernel.ids import Random, is_minted, story_of
from mesh.kernel.limits import DUE_AFTER_MS, NOTICE_TRIED_MS, SHORT_DELAY_S_MAX
from mesh.kernel.log import Log
from mesh.notices.document import detail_of, headers_of
from mesh.outbox.ends import of_failure, of_status
from mesh.outbox.schedule import Outcome, delay_ms
from mesh.records.notice import Notice
from mesh.records.outbox import AttemptEnd
from mesh.security.egress import Egress, EgressFailure
from mesh.security.egress.contract import policy_of
from mesh.storage import keys
from mesh.storage.queues import Bell
from mesh.storage.table import ConditionFailed, Table


class Bus(Protocol):
    """Where events go."""

    def put(self, source: str, detail_type: str, detail: str) -> None:
        """Puts one event. Raises Failed."""
        ...


class Webhook(Protocol):
    """Where the operator wants to be told, and the secret that proves that Mesh does."""

    @property
    def url(self) -> str: ...
    @property
    def secret(self) -> str: ...


class NoticeSender:
    """Sends notices. One per function."""

    def __init__(
        self,
        *,
        table: Table,
        bus: Bus,
        webhook: Callable[[], Webhook | None],
        egress: Egress,
        bell: Bell,
        clock: Clock,
        random: Random,
        log: Log,
        environment: str,
        own_hosts: Sequence[str],
        instance_hosts: Callable[[], Sequence[str]],
    ) -> None:
        self._table = table
        self._bus = bus
        self._webhook = webhook
        self._egress = egress
        self._bell = bell
        self._clock = clock
        self._random = random
        self._log = log
        self._environment = environment
        self._own_hosts = frozenset(own_hosts)
        self._instance_hosts = instance_hosts

    def work(self, notice_id: str, _stop_at_ms: int) -> None:
        """Makes one attempt at whoever has not taken the notice yet. Raises Failed when the table
        does."""
        notice = self._find(notice_id)
        if notice is None or notice.due_pk is None or self._clock.now_ms() < notice.not_before:
            return
        on_bus = notice.on_bus_at is not None
        if not on_bus and self._put(notice):
            on_bus = True
            if not self._changed(notice, {"on_bus_at": self._clock.now_ms()}):
                return  # another worker is at it
        changes: dict[str, object] = {}
        outcome = None if notice.posted_at is not None else self._post(notice)
        if outcome is not None and outcome.end is AttemptEnd.DELIVERED:
            changes["posted_at"] = self._clock.now_ms()
        if on_bus and (outcome is None or outcome.end is AttemptEnd.DELIVERED):
            self._changed(notice, changes | _ENDED)
        elif self._clock.now_ms() - notice.at >= NOTICE_TRIED_MS:
            if self._changed(notice, changes | _ENDED):
                self._log("notice.given_up", **_told(notice), try_number=notice.tries + 1)
        else:
            self._later(notice, changes, 0 if outcome is None else outcome.retry_after_ms)

    def _find(self, notice_id: str) -> Notice | None:
        if not is_minted(notice_id):
            return None
        item = self._table.get(keys.notice(story_of(notice_id)))
        return None if item is None else record_of(item, Notice)

    def _put(self, notice: Notice) -> bool:
        """Whether the bus has taken it."""
        detail = detail_of(notice, self._environment)
        try:
            self._bus.put(f"mesh.{self._environment}", notice.kind.value, detail)
        except Failed as failed:
            self._log("notice.not_on_bus", **_told(notice), code=failed.code)
            return False
        self._log("notice.on_bus", **_told(notice))
        return True

    def _post(self, notice: Notice) -> Outcome | None:
        """How one post ended; None where no webhook is set."""
        try:
            webhook = self._webhook()
            policy = policy_of(self._own_hosts, (), self._instance_hosts())
        except Failed as failed:  # its secret cannot be opened now
            self._log("notice.not_posted", **_told(notice), code=failed.code)
            return Outcome(AttemptEnd.UNKNOWN)
        if webhook is None:
            return None
        body = detail_of(notice, self._environment).encode()
        headers = headers_of(notice, webhook.secret, body, self._clock.now_ms())
        try:
            reply = self._egress.post(webhook.url, headers, body, policy)
        except EgressFailure as failure:
            outcome = of_failure(failure.kind)
        else:
            outcome = of_status(reply.status, reply.retry_after, self._clock.now_ms())
        taken = outcome.end is AttemptEnd.DELIVERED
        self._log(
            "notice.posted" if taken else "notice.not_posted",
            **_told(notice),
            reason=outcome.end.value,
            status=outcome.http_status,
            try_number=notice.tries + 1,
        )
        return outcome

    def _later(self, notice: Notice, changes: dict[str, object], asked_ms: int) -> None:
        """Moves the mark to the next attempt; a short wait is rung for besides."""
        now = self._clock.now_ms()
        wait_ms = max(delay_ms(notice.tries + 1, self._random), asked_ms)
        wait_s = -(-wait_ms // 1000)
        short = wait_s <= SHORT_DELAY_S_MAX
        moved = {
            "tries": notice.tries + 1,
            "not_before": now + wait_ms,
            "due_at": now + wait_ms + (DUE_AFTER_MS if short else 0),
        }
        if self._changed(notice, changes | moved) and short:
            self._bell.chore(notice.notice_id, wait_s)

    def _changed(self, notice: Notice, changes: dict[str, object]) -> bool:
        """Writes down how far it is; False when another worker wrote of the same attempt first."""
        write = assign(
            keys.notice(story_of(notice.notice_id)),
            changes,
            "#tries = :tries AND attribute_exists(#due_pk)"
            + (" AND attribute_not_exists(#on_bus_at)" if "on_bus_at" in changes else ""),
            tries=notice.tries,
        )
        try:
            self._table.write(write)
        except ConditionFailed:
            return False
        return True


_ENDED: dict[str, object] = {"due_pk": None, "due_at": None, "rings": None, "seen": None}
"""What goes once nobody waits for the notice any more."""


def _told(notice: Notice) -> dict[str, str | None]:
    """What a log says of a notice."""
    return {
        "chore_id": notice.notice_id,
        "action": notice.kind.value,
        "agent_id": notice.agent_id,
        "install_id": notice.install_id,
    }
