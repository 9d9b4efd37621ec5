"""Owns the noun notice: something that happened of itself and that the operator should know."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mesh.records.conversation import Mark


class NoticeKind(StrEnum):
    """What a notice tells; the `type` that its receivers switch on."""

    CONNECTOR_ERROR = "connector.error"
    """Enabling ended in `error`."""
    DELIVERY_DEGRADED = "delivery.degraded"
    DELIVERY_FAILING = "delivery.failing"
    """It has failed for a part (50 %, 90 %) of the time after which it is paused."""
    DELIVERY_PAUSED = "delivery.paused"
    DELIVERY_RECOVERED = "delivery.recovered"
    ENTRY_DEAD = "outbox.dead"
    BUDGET_REACHED = "budget.reached"
    """A part (50, 80, 100 %) of what an agent may use in a day is used."""
    RUN_FAILED = "run.failed"


class Notice(Mark, frozen=True, kw_only=True):
    """The row of a notice. Its due mark stands until every receiver has it.

    It names things by id and says why by code: never a word of what was said, and no address.
    """

    notice_id: str
    kind: NoticeKind
    at: int
    agent_id: str
    install_id: str | None = None
    subject: str
    """The id of what it is about: of an install, an entry, a run, or an agent."""
    reason: str | None = None
    figures: dict[str, int] = msgspec.field(default_factory=dict)
    """Numbers, by a name that says the unit: `percent`, `age_s`, `attempts`."""
    on_bus_at: int | None = None
    """When EventBridge took it."""
    posted_at: int | None = None
    """When the operator's webhook took it."""
    tries: int = 0
    """Attempts after which somebody had not taken it yet."""
    tried_since: int | None = None
    """When the first of them was."""
    not_before: int = 0
    """When the next attempt may begin; a ring that comes earlier is nothing."""


class WebhookHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the operator's webhook does; no row while it takes what it is sent."""

    failures: int = 0
    """In a row, those that were under way at once counted as one."""
    not_before: int = 0
    """When the next notice may try it."""
