"""Owns the shapes of the operator API: what it takes, checked to the letter, and what it answers.

Refuses unknown fields, wrong types, blank names and control characters. Secrets have a field only
where they are shown once.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from mesh.kernel.limits import (
    ACTOR_LIST_MAX,
    AGENTS_PER_TOKEN_MAX,
    ALLOW_HOSTS_MAX,
    CAP_ACTORS,
    CAP_CONVERSATIONS,
    CAP_MESSAGES_PER_MINUTE,
    CAP_WAITING,
    ID_CODE_POINTS_MAX,
    INSTRUCTIONS_CHARS_MAX,
    LIST_LIMIT_DEFAULT,
    LIST_LIMIT_MAX,
    NAME_CHARS_MAX,
    OVERLAP_S_DEFAULT,
    OVERLAP_S_MAX,
    TOKEN_DAYS_DEFAULT,
    TOKEN_DAYS_MAX,
    URL_CHARS_MAX,
)
from mesh.records.agent import ModelKind
from mesh.records.install import AgentStatus, Busy, EndpointState, InstallState, Policy
from mesh.records.operator import OperatorRole
from mesh.records.outbox import AttemptEnd, EntryState
from mesh.records.run import RunStatus, StepKind, StepStatus

_PLAIN: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"
_NAMED: Final = r"^[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\xa0][^\x00-\x1f\x7f-\x9f]*$"
_TEXT: Final = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*$"
_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)\Z", re.ASCII
)

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
Handle = Slug
Name = Annotated[str, StringConstraints(max_length=NAME_CHARS_MAX, pattern=_NAMED)]
Instructions = Annotated[str, StringConstraints(max_length=INSTRUCTIONS_CHARS_MAX, pattern=_TEXT)]
Url = Annotated[str, StringConstraints(min_length=1, max_length=URL_CHARS_MAX)]
Host = Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=_PLAIN)]
ActorId = Annotated[
    str, StringConstraints(min_length=1, max_length=ID_CODE_POINTS_MAX, pattern=_PLAIN)
]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339 in UTC with milliseconds."""
Version = Annotated[int, Field(ge=0, le=2**53)]


class Taken(BaseModel):
    """What is taken: exactly the fields that are named, by JSON's own types."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Shown(BaseModel):
    """What is answered. Keys may be added to it at any time."""

    model_config = ConfigDict(frozen=True)


class Nothing(Taken):
    """An empty object; an empty body counts as one."""


# ---- lists


class Listing(Taken):
    """A page of a list."""

    limit: Annotated[int, Field(ge=1, le=LIST_LIMIT_MAX)] = LIST_LIMIT_DEFAULT
    cursor: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None

    @field_validator("limit", mode="before")
    @classmethod
    def _digits(cls, value: object) -> object:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value, re.ASCII) is None:
            raise ValueError("must be a whole number")
        return value


class AuditListing(Listing):
    """Which audit rows are wanted."""

    target: str | None = None
    actor: str | None = None
    action: str | None = None
    since: Time | None = None
    until: Time | None = None

    @field_validator("since", "until")
    @classmethod
    def _time(cls, value: str | None) -> str | None:
        if value is not None:
            milliseconds(value)
        return value


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


def milliseconds(text: str) -> int:
    """Unix ms of an RFC 3339 date-time with offset. Raises ValueError."""
    if _RFC3339.match(text) is None:
        raise ValueError("must be an RFC 3339 date and time with its offset")
    try:
        moment = datetime.fromisoformat(re.sub(r"(\.\d{1,6})\d*", r"\1", text.upper()))
    except ValueError:
        raise ValueError("must be an RFC 3339 date and time with its offset") from None
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


# ---- agents


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
    runs_at_once: Annotated[int, Field(ge=1, le=1_000)] = 5
    turns_per_day: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = None
    tokens_per_day: Annotated[int, Field(ge=0, le=1_000_000_000_000)] | None = None


class AgentNew(Taken):
    """A new agent. Left out: the name and the handle are the slug."""

    slug: Slug
    name: Name | None = None
    handle: Handle | None = None
    instructions: Instructions = ""
    model: ModelTaken = ModelTaken()
    limits: LimitsTaken = LimitsTaken()


class AgentPut(Taken):
    """All settings of an agent, in the place of those at `version`."""

    name: Name | None = None
    handle: Handle | None = None
    instructions: Instructions = ""
    model: ModelTaken = ModelTaken()
    limits: LimitsTaken = LimitsTaken()
    version: Version


class ModelShown(Shown):
    """A language model; its key is never shown."""

    kind: ModelKind
    name: str | None
    base_url: str | None
    credential_present: bool


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


class AgentShown(Shown):
    """An agent."""

    agent_id: str
    slug: str
    name: str
    handle: str
    instructions: str
    model: ModelShown
    limits: LimitsShown
    status: AgentStatus
    version: int
    created_at: Time


class AgentList(Shown):
    """A page of agents, by slug."""

    items: list[AgentShown]
    next_cursor: str | None


# ---- connectors


class EngagementBoth(Taken):
    """What the engagement gate goes by."""

    policy: Policy = Policy.ADDRESSED
    allow_actors: Annotated[tuple[ActorId, ...], Field(max_length=ACTOR_LIST_MAX)] = ()
    deny_actors: Annotated[tuple[ActorId, ...], Field(max_length=ACTOR_LIST_MAX)] = ()
    busy: Busy = Busy.QUEUE


class CapsBoth(Taken):
    """What a caller can make Mesh hold and do."""

    conversations: Annotated[int, Field(ge=1, le=1_000_000)] = CAP_CONVERSATIONS
    actors: Annotated[int, Field(ge=1, le=1_000_000)] = CAP_ACTORS
    messages_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = CAP_MESSAGES_PER_MINUTE
    waiting: Annotated[int, Field(ge=1, le=10_000)] = CAP_WAITING


Hosts = Annotated[tuple[Host, ...], Field(max_length=ALLOW_HOSTS_MAX)]


class ConnectorNew(Taken):
    """A new install."""

    kind: Literal["generic"]
    name: Name = "generic"
    delivery_url: Url | None = None
    allow_hosts: Hosts = ()
    engagement: EngagementBoth = EngagementBoth()
    caps: CapsBoth = CapsBoth()
    failure_replies: bool = True
    enable: bool = False
    skip_ping: bool = False


class ConnectorPut(Taken):
    """All settings of an install. `delivery_url` left out keeps the saved one, null removes it."""

    name: Name = "generic"
    delivery_url: Url | None = None
    allow_hosts: Hosts = ()
    engagement: EngagementBoth = EngagementBoth()
    caps: CapsBoth = CapsBoth()
    failure_replies: bool = True
    pending: Literal["send", "discard"] | None = None
    version: Version


class EnableTaken(Taken):
    """How to enable."""

    skip_ping: bool = False


class RotateTaken(Taken):
    """How to rotate: for how long the previous secret goes on, 0 for not at all."""

    overlap_seconds: Annotated[int, Field(ge=0, le=OVERLAP_S_MAX)] = OVERLAP_S_DEFAULT
    force: bool = False


class DeliveryShown(Shown):
    """How delivery does. The counts are of the newest entries of the agent and may lag."""

    state: EndpointState
    reason: str | None
    failing_since: Time | None
    oldest_pending_at: Time | None
    pending: int
    dead: int


class SecretShown(Shown):
    """Version and age of the signing secret, never itself."""

    version: int
    created_at: Time
    previous_valid_until: Time | None
    previous_last_used_at: Time | None


class ConnectorShown(Shown):
    """An install."""

    install_id: str
    kind: str
    name: str
    agent: str
    ingress_url: str
    state: InstallState
    state_reason: str | None
    delivery_url: str | None
    """Scheme, host and a hash: the URL itself may be a secret."""
    allow_hosts: tuple[str, ...]
    engagement: EngagementBoth
    caps: CapsBoth
    failure_replies: bool
    delivery: DeliveryShown
    secret: SecretShown
    version: int
    created_at: Time


class ConnectorList(Shown):
    """A page of installs, oldest first."""

    items: list[ConnectorShown]
    next_cursor: str | None


class ConnectorCreated(Shown):
    """A new install, with its secret: shown now and never again."""

    install_id: str
    kind: str
    name: str
    agent: str
    ingress_url: str
    state: InstallState
    state_reason: str | None
    secret: str | None
    secret_version: int
    delivery_url: str | None
    version: int
    replayed: bool = False


class Rotation(Shown):
    """A fresh secret: shown now and never again."""

    install_id: str
    secret: str | None
    version: int
    previous_valid_until: Time | None
    replayed: bool = False


class PingShown(Shown):
    """How the receiver answered a ping."""

    delivered: bool
    outbound_id: str | None
    http_status: int | None
    duration_ms: int | None
    reason: str | None


class RefusalShown(Shown):
    """Refusals of one reason to a proven caller within one minute."""

    reason: str
    minute: Time
    count: int
    first_at: Time
    last_at: Time
    last_request_ids: list[str]
    clock_skew_s: int


class RefusalList(Shown):
    """A page of refusals, newest first."""

    items: list[RefusalShown]
    next_cursor: str | None


# ---- outbox


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


# ---- runs


class BudgetShown(Shown):
    """How much of a budget a run used."""

    used: int
    limit: int


class BudgetsShown(Shown):
    """A run's budgets."""

    steps: BudgetShown
    tool_calls: BudgetShown
    seconds: BudgetShown


class StepShown(Shown):
    """One step of a run."""

    kind: StepKind
    tool: str | None
    status: StepStatus
    observation_kind: str | None
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


class Explanation(Shown):
    """The story of one message: what happened in order, and what happens next."""

    subject: dict[str, Any]
    events: list[ExplainEvent]
    next: str


# ---- operators, audit, meta


class OperatorNew(Taken):
    """A new token. `agents` (slugs): needed for operator, optional for viewer, none for admin."""

    name: Name
    role: OperatorRole
    agents: Annotated[tuple[Slug, ...], Field(max_length=AGENTS_PER_TOKEN_MAX)] | None = None
    expires_in_days: Annotated[int, Field(ge=1, le=TOKEN_DAYS_MAX)] = TOKEN_DAYS_DEFAULT


class OperatorPut(Taken):
    """All settings of an operator. The token and its expiry stay."""

    name: Name
    role: OperatorRole
    agents: Annotated[tuple[Slug, ...], Field(max_length=AGENTS_PER_TOKEN_MAX)] | None = None
    version: Version


class OperatorShown(Shown):
    """An operator; `agents` are slugs, null for all."""

    id: str
    name: str
    role: OperatorRole
    agents: list[str] | None
    created_at: Time
    expires_at: Time
    revoked_at: Time | None
    version: int


class OperatorList(Shown):
    """A page of operators, oldest first."""

    items: list[OperatorShown]
    next_cursor: str | None


class OperatorCreated(OperatorShown):
    """A new operator, with its token: shown now and never again."""

    token: str | None
    replayed: bool = False


class AuditShown(Shown):
    """Who changed what."""

    id: str
    at: Time
    actor: str
    action: str
    target: str
    version_before: int | None
    version_after: int | None
    request_id: str


class AuditList(Shown):
    """A page of audit rows, newest first."""

    items: list[AuditShown]
    next_cursor: str | None


class Whoami(Shown):
    """What a token may do."""

    id: str
    name: str
    role: OperatorRole
    agents: list[str] | None
    expires_at: Time


class Health(Shown):
    """That the function runs; nothing else is touched."""

    status: Literal["ok"]
    version: str
