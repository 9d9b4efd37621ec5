"""Owns the shapes of what happened: the outbox, runs, and the story of a message.

Refuses a body: ids, times and reasons are told.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mesh.operator.shapes.base import Listing, Moment, Shown, Taken, Time
from mesh.records.outbox import AttemptEnd, EntryState
from mesh.records.run import RunStatus, StepKind, StepStatus

_Ended = Literal[
    EntryState.DEAD, EntryState.DISCARDED, EntryState.UNDELIVERABLE, EntryState.DELIVERED
]
_Waiting = Literal[EntryState.PENDING]


class OutboxListing(Listing):
    """Which outbox entries are wanted."""

    status: EntryState | None = None
    install_id: str | None = None


class RunListing(Listing):
    """Which runs are wanted."""

    status: RunStatus | None = None
    install_id: str | None = None


class MessageSearch(Taken):
    """A message, as its sender names it."""

    install_id: str
    conversation_key: str
    message_id: str


class AttemptShown(Shown):
    """One attempt to deliver. `end` is null while it is open."""

    number: int
    at: Time
    ended_at: Time | None
    end: AttemptEnd | None
    http_status: int | None
    detail: str | None
    probe: bool
    replay: bool


class AttemptList(Shown):
    """The attempts of an entry, oldest first."""

    items: list[AttemptShown]
    next_cursor: str | None


class EntryShown(Shown):
    """An entry of the outbox. It never shows a body."""

    outbound_id: str
    install_id: str
    conversation_id: str
    run_id: str
    sequence: int
    status: EntryState
    reason: str | None
    created_at: Time
    attempts: int
    next_attempt_at: Time | None
    last_attempt: AttemptShown | None
    replay_requested: bool | None
    """Whether a replay is under way; null in lists, which do not look."""


class EntryList(Shown):
    """A page of entries, newest first."""

    items: list[EntryShown]
    next_cursor: str | None


class _Span(Taken):
    """When the entries were made: from `since` on, and before `until`. Left out: all that are
    kept, up to the moment of the order."""

    since: Moment | None = None
    until: Moment | None = None


class ReplayMany(_Span):
    """Which entries of a connector are to be sent once more: those in one of these states."""

    status: _Ended | Annotated[tuple[_Ended, ...], Field(min_length=1, max_length=4)] = (
        EntryState.DEAD
    )


class DiscardMany(_Span):
    """Which entries of a connector that wait are to be given up."""

    status: _Waiting | Annotated[tuple[_Waiting, ...], Field(min_length=1, max_length=1)] = (
        EntryState.PENDING
    )


class BudgetShown(Shown):
    """How much of a budget a run used."""

    used: int
    limit: int


class BudgetsShown(Shown):
    """A run's budgets."""

    steps: BudgetShown
    tool_calls: BudgetShown
    seconds: BudgetShown
    input_tokens: BudgetShown
    output_tokens: BudgetShown


class StepShown(Shown):
    """One step of a run. It never shows what was said or asked, nor what a call came to."""

    number: int
    kind: StepKind
    tool: str | None
    status: StepStatus
    reason: str | None
    """Why a model call failed."""
    call_id: str | None
    observation_kind: str | None
    origin: dict[str, str] | None
    """Where the result of a call came from, by ids of Mesh's own; of a call of the web the
    capability, the provider and whose credential it was, from its admission on."""
    sources: list[str]
    """The URLs that a call is about, or that its result rests on."""
    agent_version: int | None
    binding_version: int | None
    """The versions that the tool was offered on."""
    connection_version: int | None
    key_version: int | None
    """Of a call of the web: the versions of the connection and of the key that it was made by."""
    acting: str | None
    """As whom a call was made; null where the gate did not let it pass."""
    payer: str | None
    started_at: Time
    ended_at: Time | None


class RunShown(Shown):
    """A run. `message_id` is the caller's."""

    run_id: str
    status: RunStatus
    reason: str | None
    install_id: str
    conversation_id: str
    message_id: str
    outbound_id: str | None
    received_at: Time
    started_at: Time | None
    ended_at: Time | None
    budgets: BudgetsShown
    steps: list[StepShown]


class RunSummary(Shown):
    """A run in a list, without its steps."""

    run_id: str
    status: RunStatus
    reason: str | None
    install_id: str
    conversation_id: str
    message_id: str
    received_at: Time
    started_at: Time | None
    ended_at: Time | None


class RunList(Shown):
    """A page of runs, newest first."""

    items: list[RunSummary]
    next_cursor: str | None


class ExplainEvent(Shown):
    """One thing that happened, or was decided, and by which rule."""

    at: Time
    kind: str
    rule: str | None
    reason: str | None
    ids: dict[str, str]
    text: str
    sources: list[str] = Field(default_factory=list)
    """The URLs that a call is about, or that its result rests on."""


class Explanation(Shown):
    """The story of one message: what happened in order, and what happens next."""

    subject: dict[str, Any]
    events: list[ExplainEvent]
    next: str
