"""Owns the posts to the operator's webhook, and how it does: while it fails, one post at a time
tries it, further and further apart, and the others wait for it to come back.

Refuses to let a webhook that hangs hold up the jobs that share this function: however many notices
wait, so little time is spent on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from mesh.kernel.clock import DAY_MS, Clock
from mesh.kernel.errors import Failed
from mesh.kernel.ids import Random
from mesh.kernel.limits import EGRESS_TOTAL_S, NOTICE_TRIED_MS, WEBHOOK_FAILURES_COUNTED
from mesh.kernel.log import Log
from mesh.notices.document import headers_of, told
from mesh.outbox.ends import of_failure, of_status
from mesh.outbox.schedule import Outcome, delay_ms
from mesh.records.notice import Notice, WebhookHealth
from mesh.records.outbox import AttemptEnd
from mesh.security.egress import Egress, EgressFailure
from mesh.security.egress.contract import policy_of
from mesh.storage import keys
from mesh.storage.keys import Key
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import Write, delete, update

_PROBE_MS: Final = int(2 * EGRESS_TOTAL_S * 1000)
"""How long a post that tries a failing webhook keeps the others from it, should its worker die."""
_HEALTH_KEPT_MS: Final = NOTICE_TRIED_MS + DAY_MS


class Webhook(Protocol):
    """Where the operator wants to be told, and the secret that proves that Mesh does."""

    @property
    def url(self) -> str: ...
    @property
    def secret(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Posting:
    """What came of a notice at the webhook."""

    waits: bool
    """Whether the webhook has still to take it."""
    taken: bool = False
    tried: bool = False
    not_before: int = 0
    """When it may be tried again at the earliest (Unix ms)."""


NOBODY: Final = Posting(waits=False)
"""Nobody is to be posted to."""
TAKEN: Final = Posting(waits=False, taken=True, tried=True)


class WebhookPosts:
    """Posts to the webhook."""

    def __init__(
        self,
        *,
        table: Table,
        webhook: Callable[[], Webhook | None],
        egress: Egress,
        clock: Clock,
        random: Random,
        log: Log,
        own_hosts: Sequence[str],
        instance_hosts: Callable[[], Sequence[str]],
    ) -> None:
        self._table = table
        self._webhook = webhook
        self._egress = egress
        self._clock = clock
        self._random = random
        self._log = log
        self._own_hosts = frozenset(own_hosts)
        self._instance_hosts = instance_hosts

    def post(self, notice: Notice, body: bytes) -> Posting:
        """Makes one post, if it may be made now. Raises Failed when the table does."""
        try:
            webhook = self._webhook()
        except Failed as failed:  # its secret cannot be opened now
            self._log("notice.not_posted", **told(notice), code=failed.code)
            return Posting(waits=True, tried=True)
        if webhook is None:
            return NOBODY
        key = keys.webhook_health(webhook.url)
        health = self._health(key)
        if health.failures and (until := self._turn(key, health)):
            return Posting(waits=True, not_before=until)
        outcome = self._sent(notice, webhook, body)
        if outcome.end is AttemptEnd.DELIVERED:
            if health.failures:
                self._write(delete(key))
            return TAKEN
        until = self._failed(key, health, outcome.retry_after_ms)
        return Posting(waits=True, tried=True, not_before=until)

    def _sent(self, notice: Notice, webhook: Webhook, body: bytes) -> Outcome:
        policy = policy_of(self._own_hosts, (), self._instance_hosts())
        headers = headers_of(notice, webhook.secret, body, self._clock.now_ms())
        try:
            reply = self._egress.post(webhook.url, headers, body, policy)
        except EgressFailure as failure:
            outcome = of_failure(failure.kind)
        else:
            outcome = of_status(reply.status, reply.retry_after, self._clock.now_ms())
        self._log(
            "notice.posted" if outcome.end is AttemptEnd.DELIVERED else "notice.not_posted",
            **told(notice),
            reason=outcome.end.value,
            status=outcome.http_status,
            try_number=notice.tries + 1,
        )
        return outcome

    # ---- how the webhook does

    def _health(self, key: Key) -> WebhookHealth:
        item = self._table.get(key)
        return WebhookHealth() if item is None else msgspec.convert(item, WebhookHealth)

    def _turn(self, key: Key, health: WebhookHealth) -> int:
        """Until when this notice waits for a webhook that fails; 0 when it is the one to try it."""
        now = self._clock.now_ms()
        if now < health.not_before:
            return health.not_before
        mine = update(
            key,
            "SET #not_before = :until",
            "#not_before = :seen",
            until=now + _PROBE_MS,
            seen=health.not_before,
        )
        return 0 if self._write(mine) else now + _PROBE_MS

    def _failed(self, key: Key, health: WebhookHealth, asked_ms: int) -> int:
        """Notes a failure, and answers when the webhook may be tried again; several that were under
        way at once count as one."""
        now = self._clock.now_ms()
        failures = min(health.failures + 1, WEBHOOK_FAILURES_COUNTED)
        until = now + max(asked_ms, delay_ms(failures, self._random))
        seen = "#failures = :seen" if health.failures else "attribute_not_exists(#failures)"
        self._write(
            update(
                key,
                "SET #failures = :failures, #not_before = :until, #ttl = :ttl",
                seen,
                failures=failures,
                until=until,
                ttl=(now + _HEALTH_KEPT_MS) // 1000,
                **({"seen": health.failures} if health.failures else {}),
            )
        )
        return until

    def _write(self, write: Write) -> bool:
        try:
            self._table.write(write)
        except ConditionFailed:
            return False
        return True
