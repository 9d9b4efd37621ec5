"""Owns the noun agent."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mesh.records.epoch import FIRST_EPOCH
from mesh.records.install import AgentStatus


class ModelKind(StrEnum):
    """Which language-model connector an agent thinks with."""

    OFFLINE = "offline"
    BEDROCK = "bedrock"
    ANTHROPIC = "anthropic"
    OPENAI = "openai"


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A language model, as an operator names it."""

    kind: ModelKind = ModelKind.OFFLINE
    name: str | None = None
    base_url: str | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's budgets, a run's first."""

    steps: int = 50
    tool_calls: int = 25
    seconds: int = 300
    queue_seconds: int = 3600
    input_tokens: int = 200_000
    output_tokens: int = 20_000
    runs_at_once: int = 5
    turns_per_day: int | None = None
    tokens_per_day: int | None = None


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """The settings row of an agent. Grants hang on `agent_id`, never on the slug."""

    agent_id: str
    slug: str
    name: str
    handle: str
    instructions: str = ""
    model: Model = Model()
    limits: Limits = Limits()
    retention_days: int | None = None
    """How long its words are kept; None: as long as the instance says."""
    status: AgentStatus = AgentStatus.ACTIVE
    resumed_at: int | None = None
    model_key_for: str | None = None
    """The kind and origin that the saved model key is for; None when there is none."""
    model_key_version: int | None = None
    """The version of the last model key that was saved; it outlives the key."""
    vault_names: int = 0
    """How many values its vault holds."""
    vault_version: int = 0
    """The highest version of a value that was deleted: a new name begins after it."""
    epoch: int = FIRST_EPOCH
    """The instance's epoch, copied here for replies to bear; a restore takes it over last."""
    roster: int = 0
    """How often the set of its connectors has changed."""
    version: int
    created_at: int
