"""Owns the shapes of agents.

Refuses a key of a language model: it is shown as present or not.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mesh.kernel.limits import RUNNING_SLOTS_MAX, TOKENS_PER_DAY_MAX, TURNS_PER_DAY_MAX
from mesh.operator.shapes.base import (
    Handle,
    Instructions,
    Name,
    RetentionDays,
    Shown,
    Slug,
    Taken,
    Time,
    Url,
    Version,
)
from mesh.records.agent import ModelKind
from mesh.records.install import AgentStatus
from mesh.records.value import CredentialSource


class ModelTaken(Taken):
    """The language model that an agent thinks with."""

    kind: ModelKind = ModelKind.OFFLINE
    name: Name | None = None
    base_url: Url | None = None


class LimitsTaken(Taken):
    """An agent's budgets, a run's first; left out means the default."""

    steps: Annotated[int, Field(ge=1, le=1_000)] = 50
    tool_calls: Annotated[int, Field(ge=0, le=1_000)] = 25
    seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    queue_seconds: Annotated[int, Field(ge=1, le=604_800)] = 3600
    input_tokens: Annotated[int, Field(ge=1, le=100_000_000)] = 200_000
    output_tokens: Annotated[int, Field(ge=1, le=100_000_000)] = 20_000
    runs_at_once: Annotated[int, Field(ge=1, le=RUNNING_SLOTS_MAX)] = 5
    turns_per_day: Annotated[int, Field(ge=0, le=TURNS_PER_DAY_MAX)] | None = None
    tokens_per_day: Annotated[int, Field(ge=0, le=TOKENS_PER_DAY_MAX)] | None = None


class AgentNew(Taken):
    """A new agent. Left out: the name and the handle are the slug."""

    slug: Slug
    name: Name | None = None
    handle: Handle | None = None
    instructions: Instructions = ""
    model: ModelTaken = ModelTaken()
    limits: LimitsTaken = LimitsTaken()
    retention_days: RetentionDays | None = None


class AgentPut(Taken):
    """All settings of an agent, in the place of those at `version`."""

    name: Name | None = None
    handle: Handle | None = None
    instructions: Instructions = ""
    model: ModelTaken = ModelTaken()
    limits: LimitsTaken = LimitsTaken()
    retention_days: RetentionDays | None = None
    version: Version


class ModelShown(Shown):
    """A language model; its key is never shown."""

    kind: ModelKind
    name: str | None
    base_url: str | None
    credential_present: bool
    credential_source: CredentialSource | None
    """Whose key it is asked with: the agent's own, or the instance's."""


class LimitsShown(Shown):
    """Budgets."""

    steps: int
    tool_calls: int
    seconds: int
    queue_seconds: int
    input_tokens: int
    output_tokens: int
    runs_at_once: int
    turns_per_day: int | None
    tokens_per_day: int | None


class TodayShown(Shown):
    """What an agent used of its daily budgets on this UTC day; null where there is none: it is not
    counted."""

    turns: int | None
    tokens: int | None


class AgentShown(Shown):
    """An agent."""

    agent_id: str
    slug: str
    name: str
    handle: str
    instructions: str
    model: ModelShown
    limits: LimitsShown
    today: TodayShown
    retention_days: int | None
    """How long its words are kept, in days; null: as long as the instance says."""
    status: AgentStatus
    roster: int
    """How often the set of its connectors has changed."""
    version: int
    created_at: Time


class AgentList(Shown):
    """A page of agents, by slug."""

    items: list[AgentShown]
    next_cursor: str | None
