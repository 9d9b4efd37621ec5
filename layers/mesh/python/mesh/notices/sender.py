"""Owns how a notice is sent: to the bus, and to the operator's webhook where one is set; each
until it was taken.

Refuses to hold anything up: one attempt a ring, bounded by the guard's deadline; what failed waits
under the notice's own due mark, and is given up after a day. Each success is written down before
the next part begins, so that whoever dies in between repeats one part at most. Receivers see a
repeated id.
"""

from __future__ import annotations

from typing import Final, Protocol

from mesh.control.rows import assign, record_of
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed
from mesh.kernel.ids import Random, is_minted, story_of
from mesh.kernel.limits import DUE_AFTER_MS, NOTICE_TRIED_MS, SHORT_DELAY_S_MAX
from mesh.kernel.log import Log
from mesh.notices.document import detail_of, told
from mesh.notices.webhook import NOBODY, Posting, WebhookPosts
from mesh.outbox.schedule import delay_ms
from mesh.records.notice import Notice
from mesh.storage import keys
from mesh.storage.queues import Bell
from mesh.storage.table import ConditionFailed, Table

_ENDED: Final[dict[str, object]] = {"due_pk": None, "due_at": None, "rings": None, "seen": None}
"""What goes once nobody waits for the notice any more."""


class Bus(Protocol):
    """Where events go."""

    def put(self, source: str, detail_type: str, detail: str) -> None:
        """Puts one event. Raises Failed."""
        ...


class NoticeSender:
    """Sends notices. One per function."""

    def __init__(
        self,
        *,
        table: Table,
        bus: Bus,
        posts: WebhookPosts,
        bell: Bell,
        clock: Clock,
        random: Random,
        log: Log,
        environment: str,
    ) -> None:
        self._table = table
        self._bus = bus
        self._posts = posts
        self._bell = bell
        self._clock = clock
        self._random = random
        self._log = log
        self._environment = environment

    def work(self, notice_id: str, _stop_at_ms: int) -> None:
        """Makes one attempt at whoever has not taken the notice yet. Raises Failed when the table
        does."""
        notice = self._find(notice_id)
        now = self._clock.now_ms()
        if notice is None or notice.due_pk is None or now < notice.not_before:
            return
        detail = detail_of(notice, self._environment)
        on_bus = notice.on_bus_at is not None
        if not on_bus and self._put(notice, detail):
            on_bus = True
            if not self._changed(notice, {"on_bus_at": self._clock.now_ms()}):
                return  # another worker is at it
        posting = NOBODY
        if notice.posted_at is None:
            posting = self._posts.post(notice, detail.encode())
        changes = {"posted_at": self._clock.now_ms()} if posting.taken else {}
        if on_bus and not posting.waits:
            self._changed(notice, changes | _ENDED)
        elif now - (notice.tried_since or now) >= NOTICE_TRIED_MS:
            if self._changed(notice, changes | _ENDED):
                self._log("notice.given_up", **told(notice), try_number=notice.tries)
        else:
            self._later(notice, changes, posting, tried=posting.tried or not on_bus)

    def _find(self, notice_id: str) -> Notice | None:
        if not is_minted(notice_id):
            return None
        item = self._table.get(keys.notice(story_of(notice_id)))
        return None if item is None else record_of(item, Notice)

    def _put(self, notice: Notice, detail: str) -> bool:
        """Whether the bus has taken it."""
        try:
            self._bus.put(f"mesh.{self._environment}", notice.kind.value, detail)
        except Failed as failed:
            self._log("notice.not_on_bus", **told(notice), code=failed.code)
            return False
        self._log("notice.on_bus", **told(notice))
        return True

    def _later(
        self, notice: Notice, changes: dict[str, int], posting: Posting, *, tried: bool
    ) -> None:
        """Moves the mark to the next attempt; the short wait after a failure is rung for besides.

        What only waited for its turn (not `tried`) is the sweep's: many may wait.
        """
        now = self._clock.now_ms()
        tries = notice.tries + tried
        until = max(posting.not_before, now + delay_ms(tries, self._random) if tried else 0)
        wait_s = -(-(until - now) // 1000)
        rung = tried and wait_s <= SHORT_DELAY_S_MAX
        moved: dict[str, object] = {
            "tries": tries,
            "tried_since": notice.tried_since or now,
            "not_before": until,
            "due_at": until + (DUE_AFTER_MS if rung else 0),
            "rings": 0,
        }
        if self._changed(notice, changes | moved) and rung:
            self._bell.chore(notice.notice_id, wait_s)

    def _changed(self, notice: Notice, changes: dict[str, object]) -> bool:
        """Writes down how far it is; False when another worker wrote of the same attempt first."""
        write = assign(
            keys.notice(story_of(notice.notice_id)),
            changes,
            "#not_before = :attempt AND attribute_exists(#due_pk)"
            + (" AND attribute_not_exists(#on_bus_at)" if "on_bus_at" in changes else ""),
            attempt=notice.not_before,
        )
        try:
            self._table.write(write)
        except ConditionFailed:
            return False
        return True
