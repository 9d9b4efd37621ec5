"""Owns what Mesh consists of: functions, routes, queues, the table, schedules, and who may touch
what.

Plain data, and no import of any cloud library: the CDK app, the local stack and the tests all
read this one truth, so that what is tried locally is what is deployed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Api(StrEnum):
    """Two HTTP APIs with throttles of their own: a flood at one leaves the other standing."""

    INGRESS = "ingress"
    OPERATOR = "operator"


class Allow(StrEnum):
    """What a function may do to the table. Everything else is refused by its role."""

    READ = "read"
    """GetItem, BatchGetItem, Query on the table."""
    WRITE = "write"
    """PutItem, UpdateItem, DeleteItem, ConditionCheckItem on the table, audit rows excepted."""
    APPEND_AUDIT = "append_audit"
    """PutItem of audit rows; nobody may change or delete one."""
    INDEXES = "indexes"
    """Query on the indexes."""


class Secrets(StrEnum):
    """What a function may do with the key that wraps secrets."""

    OPEN = "open"
    """kms:Decrypt under Mesh's encryption context."""
    SEAL = "seal"
    """kms:GenerateDataKey under Mesh's encryption context."""
    REWRAP = "rewrap"
    """kms:ReEncryptFrom any key that has wrapped secrets, and kms:ReEncryptTo the newest, under
    any of these contexts."""
    SEAL_VALUES = "seal_values"
    """kms:GenerateDataKey under the encryption context of a value that an agent owns."""
    OPEN_MODEL_KEYS = "open_model_keys"
    """kms:Decrypt under the encryption context of a model's key, an agent's or the instance's."""
    OPEN_PROVIDER_KEYS = "open_provider_keys"
    """kms:Decrypt under the encryption context of a web provider's key, an agent's or the
    instance's."""
    SEAL_INSTANCE_VALUES = "seal_instance_values"
    """kms:GenerateDataKey under the encryption context of a value that the instance owns."""


@dataclass(frozen=True, slots=True)
class Index:
    """A KEYS_ONLY index; both attributes are sparse."""

    name: str
    hash_key: str
    range_key: str
    range_is_number: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """The one table. Keys are built in `mesh.storage.keys` and nowhere else."""

    hash_key: str = "pk"
    range_key: str = "sk"
    ttl: str = "ttl"
    indexes: tuple[Index, ...] = (
        Index("due", "due_pk", "due_at", range_is_number=True),
        Index("lists", "list_pk", "list_sk"),
    )


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue and its dead-letter queue (`<name>-dead`, telemetry only: rows hold the truth)."""

    name: str
    visibility_s: int
    fifo: bool = False
    max_receives: int = 10
    retention_s: int = 4 * 24 * 3600
    dead_retention_s: int = 14 * 24 * 3600

    @property
    def physical_name(self) -> str:
        """The name at SQS, which demands the suffix."""
        return f"{self.name}.fifo" if self.fifo else self.name

    @property
    def dead_name(self) -> str:
        """The dead-letter queue's name at SQS."""
        return f"{self.name}-dead.fifo" if self.fifo else f"{self.name}-dead"


@dataclass(frozen=True, slots=True)
class Route:
    """One route of an API. `{name}` is a path parameter, as API Gateway writes it."""

    api: Api
    method: str
    path: str


@dataclass(frozen=True, slots=True)
class Function:
    """One Lambda function: one folder under `functions/`, one trigger family."""

    name: str
    timeout_s: int
    memory_mb: int
    layers: tuple[str, ...]
    routes: tuple[Route, ...] = ()
    queues: tuple[str, ...] = ()
    """Queues whose messages it receives, batch size 1, partial batch failure reported."""
    schedule_minutes: int | None = None
    rings: tuple[str, ...] = ()
    """Queues that it may send to."""
    table: frozenset[Allow] = frozenset()
    secrets: frozenset[Secrets] = frozenset()
    reserved_concurrency: bool = False
    """Whether a share of the account's concurrency is set aside for it (the figure is the
    environment's)."""
    rings_itself: bool = False
    """Lambda's loop detection is switched off by name; the bound is in the row."""
    posts_out: bool = False
    """Whether it makes requests to addresses that operators name (through the egress guard)."""
    tells: bool = False
    """Whether it puts events to the bus of EventBridge."""
    asks_bedrock: bool = False
    """Whether it may invoke models of Amazon Bedrock."""
    environment: tuple[str, ...] = field(default=())


READ = frozenset({Allow.READ})
READ_WRITE = frozenset({Allow.READ, Allow.WRITE})
CHANGE = READ_WRITE | {Allow.APPEND_AUDIT}
"""A change with its audit row."""

TABLE = Table()

TURN_TIMEOUT_S = 300
OUTBOX_TIMEOUT_S = 60
CHORE_TIMEOUT_S = 120
VISIBILITY_MARGIN_S = 10

QUEUES: tuple[Queue, ...] = (
    Queue("turns", visibility_s=TURN_TIMEOUT_S + VISIBILITY_MARGIN_S),
    Queue("deliveries", visibility_s=OUTBOX_TIMEOUT_S + VISIBILITY_MARGIN_S, fifo=True),
    Queue("delays", visibility_s=OUTBOX_TIMEOUT_S + VISIBILITY_MARGIN_S),
    Queue("chores", visibility_s=CHORE_TIMEOUT_S + VISIBILITY_MARGIN_S),
)

_OPERATOR_LAYERS = ("mesh", "core", "net", "api")


def _operator(name: str, *routes: tuple[str, str], **more: object) -> Function:
    return Function(
        name=f"operator_{name}",
        timeout_s=29,
        memory_mb=512,
        routes=tuple(Route(Api.OPERATOR, method, path) for method, path in routes),
        **{  # type: ignore[arg-type]
            "layers": _OPERATOR_LAYERS,
            "table": READ,
            "reserved_concurrency": True,
            **more,
        },
    )


FUNCTIONS: tuple[Function, ...] = (
    Function(
        name="generic_ingress",
        timeout_s=5,
        memory_mb=1024,
        layers=("mesh", "core"),
        routes=(Route(Api.INGRESS, "POST", "/generic/events"),),
        rings=("turns",),
        table=READ_WRITE,
        secrets=frozenset({Secrets.OPEN}),
        reserved_concurrency=True,
    ),
    Function(
        name="turn_worker",
        timeout_s=TURN_TIMEOUT_S,
        memory_mb=512,
        layers=("mesh", "core", "net", "tools"),
        queues=("turns",),
        rings=("turns", "deliveries"),
        table=READ_WRITE | {Allow.INDEXES},
        secrets=frozenset({Secrets.OPEN_MODEL_KEYS, Secrets.OPEN_PROVIDER_KEYS}),
        rings_itself=True,
        posts_out=True,
        asks_bedrock=True,
    ),
    Function(
        name="outbox_worker",
        timeout_s=OUTBOX_TIMEOUT_S,
        memory_mb=512,
        layers=("mesh", "core", "net"),
        queues=("deliveries", "delays"),
        rings=("deliveries", "delays"),
        table=READ_WRITE,
        secrets=frozenset({Secrets.OPEN}),
        rings_itself=True,
        posts_out=True,
    ),
    Function(
        name="sweep_due",
        timeout_s=55,
        memory_mb=512,
        layers=("mesh", "core"),
        schedule_minutes=1,
        rings=("turns", "deliveries", "chores"),
        table=READ_WRITE | {Allow.INDEXES},
        reserved_concurrency=True,
    ),
    Function(
        name="chore_worker",
        timeout_s=CHORE_TIMEOUT_S,
        memory_mb=512,
        layers=("mesh", "core", "net"),
        queues=("chores",),
        rings=("turns", "deliveries", "chores"),
        table=CHANGE | {Allow.INDEXES},
        secrets=frozenset({Secrets.OPEN}),
        rings_itself=True,
        posts_out=True,
        tells=True,
    ),
    Function(
        name="operator_authorizer",
        timeout_s=5,
        memory_mb=512,
        layers=("mesh", "core"),
        table=READ,
        reserved_concurrency=True,
    ),
    _operator(
        "meta",
        ("GET", "/healthz"),
        ("GET", "/api/whoami"),
        ("GET", "/api/openapi.json"),
    ),
    _operator(
        "agents",
        ("GET", "/api/agents"),
        ("POST", "/api/agents"),
        ("GET", "/api/agents/{slug}"),
        ("PUT", "/api/agents/{slug}"),
        ("DELETE", "/api/agents/{slug}"),
        ("POST", "/api/agents/{slug}/pause"),
        ("POST", "/api/agents/{slug}/resume"),
        table=CHANGE | {Allow.INDEXES},
        rings=("turns", "chores"),
    ),
    _operator(
        "vault",
        ("GET", "/api/agents/{slug}/vault"),
        ("PUT", "/api/agents/{slug}/vault/{name}"),
        ("DELETE", "/api/agents/{slug}/vault/{name}"),
        ("PUT", "/api/agents/{slug}/model-key"),
        ("DELETE", "/api/agents/{slug}/model-key"),
        table=CHANGE,
        secrets=frozenset({Secrets.SEAL_VALUES}),
    ),
    _operator(
        "tools",
        ("GET", "/api/agents/{slug}/tools"),
        ("PUT", "/api/agents/{slug}/tools/{name}"),
        ("POST", "/api/agents/{slug}/tools/{name}/probe"),
        ("GET", "/api/agents/{slug}/notes"),
        ("DELETE", "/api/agents/{slug}/notes/{place}/{name}"),
        ("POST", "/api/agents/{slug}/notes/{place}/{name}/widen"),
        ("POST", "/api/agents/{slug}/notes/{place}/{name}/narrow"),
        table=CHANGE | {Allow.INDEXES},
        layers=(*_OPERATOR_LAYERS, "tools"),
        secrets=frozenset({Secrets.OPEN_PROVIDER_KEYS}),
        posts_out=True,
    ),
    _operator(
        "web_access",
        ("GET", "/api/web-access"),
        ("GET", "/api/web-access/{capability}"),
        ("PUT", "/api/web-access/{capability}"),
        ("GET", "/api/agents/{slug}/web-access"),
        ("GET", "/api/agents/{slug}/web-access/{capability}"),
        ("PUT", "/api/agents/{slug}/web-access/{capability}"),
        table=CHANGE,
        secrets=frozenset({Secrets.SEAL_VALUES, Secrets.SEAL_INSTANCE_VALUES}),
    ),
    _operator(
        "connectors",
        ("GET", "/api/agents/{slug}/connectors"),
        ("POST", "/api/agents/{slug}/connectors"),
        ("GET", "/api/connectors/{id}"),
        ("PUT", "/api/connectors/{id}"),
        ("DELETE", "/api/connectors/{id}"),
        ("POST", "/api/connectors/{id}/enable"),
        ("POST", "/api/connectors/{id}/disable"),
        ("POST", "/api/connectors/{id}/plan"),
        ("POST", "/api/connectors/{id}/simulate"),
        ("POST", "/api/connectors/{id}/rotate"),
        ("POST", "/api/connectors/{id}/end-overlap"),
        ("POST", "/api/connectors/{id}/ping"),
        ("POST", "/api/connectors/{id}/resume-delivery"),
        ("GET", "/api/connectors/{id}/refusals"),
        table=CHANGE | {Allow.INDEXES},
        secrets=frozenset({Secrets.OPEN, Secrets.SEAL}),
        rings=("turns", "deliveries", "chores"),
        posts_out=True,
    ),
    _operator(
        "outbox",
        ("GET", "/api/agents/{slug}/outbox"),
        ("GET", "/api/outbox/{id}"),
        ("GET", "/api/outbox/{id}/attempts"),
        ("POST", "/api/outbox/{id}/replay"),
        ("POST", "/api/outbox/{id}/discard"),
        ("POST", "/api/connectors/{id}/outbox/replay"),
        ("POST", "/api/connectors/{id}/outbox/discard"),
        table=CHANGE | {Allow.INDEXES},
        rings=("deliveries", "chores"),
    ),
    _operator(
        "runs",
        ("GET", "/api/agents/{slug}/runs"),
        ("GET", "/api/runs/{id}"),
        ("POST", "/api/runs/{id}/cancel"),
        ("GET", "/api/explain"),
        ("GET", "/api/explain/{id}"),
        table=CHANGE | {Allow.INDEXES},
        rings=("turns",),
    ),
    _operator(
        "conversations",
        ("GET", "/api/agents/{slug}/conversations"),
        ("GET", "/api/conversations/{id}"),
        ("DELETE", "/api/conversations/{id}"),
        ("GET", "/api/conversations/{id}/messages"),
        ("DELETE", "/api/agents/{slug}/actors/{id}"),
        table=CHANGE | {Allow.INDEXES},
        rings=("chores",),
    ),
    _operator(
        "operators",
        ("GET", "/api/operators"),
        ("POST", "/api/operators"),
        ("PUT", "/api/operators/{id}"),
        ("DELETE", "/api/operators/{id}"),
        table=CHANGE,
    ),
    _operator("jobs", ("GET", "/api/jobs/{id}")),
    _operator("audit", ("GET", "/api/audit")),
    _operator(
        "instance",
        ("GET", "/api/instance/rewrap"),
        ("POST", "/api/instance/rewrap"),
        ("POST", "/api/instance/restore/finish"),
        table=CHANGE,
        rings=("chores",),
        secrets=frozenset({Secrets.REWRAP}),
    ),
    _operator(
        "instance_settings",
        ("GET", "/api/instance/settings"),
        ("PUT", "/api/instance/settings"),
        ("PUT", "/api/instance/model-keys/{kind}"),
        ("DELETE", "/api/instance/model-keys/{kind}"),
        table=CHANGE,
        secrets=frozenset({Secrets.OPEN, Secrets.SEAL, Secrets.SEAL_INSTANCE_VALUES}),
    ),
    _operator(
        "doctor",
        ("GET", "/api/instance/doctor"),
        table=READ | {Allow.INDEXES},
        secrets=frozenset({Secrets.OPEN}),
    ),
    Function(
        name="operator_bootstrap",
        timeout_s=29,
        memory_mb=512,
        layers=_OPERATOR_LAYERS,
        table=CHANGE,
        secrets=frozenset({Secrets.SEAL, Secrets.OPEN}),
    ),
)
"""`operator_bootstrap` has no route: it is invoked through IAM alone, and mints an admin token."""

AUTHORIZER = "operator_authorizer"
"""Passes {principal | none} to every operator route and never denies (its own refusals cannot be
made uniform)."""


def function(name: str) -> Function:
    """The function of that name; KeyError when there is none."""
    return next(f for f in FUNCTIONS if f.name == name)


def queue(name: str) -> Queue:
    """The queue of that name; KeyError when there is none."""
    return next(q for q in QUEUES if q.name == name)
