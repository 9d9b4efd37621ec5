"""Owns the nouns of one message's story: what was decided, the run, and its steps."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mesh.records.connection import Grant


class RunStatus(StrEnum):
    """The life of a run. The last four are final."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """The row that `req_X`, `msg_X`, `run_X` and `out_X` lead to. It holds no body."""

    story: str
    conversation_id: str
    conversation_key: str
    order: int | None = None
    install_id: str
    agent_id: str
    message_id: str
    actor_id: str
    received_at: int
    secret_version: int
    verdict: str
    reason: str
    status: RunStatus | None = None
    """None when no run was started."""
    run_reason: str | None = None
    started_at: int | None = None
    ended_at: int | None = None
    leases: int = 0
    merged_into: str | None = None
    """The story of the run that answered its message with its own."""
    sequence: int | None = None
    """The reply's place in the outbox; None when there is none."""
    reply_order: int | None = None


class StepKind(StrEnum):
    """What a step does."""

    MODEL = "model"
    TOOL = "tool"


class StepStatus(StrEnum):
    """How far a step got."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    REFUSED = "refused"
    UNCERTAIN = "uncertain"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a model asked for, and the versions that the tool was offered on.

    Its end is the step that follows its answer's by its place: so each call has one place in the
    ledger, reserved once.
    """

    call_id: str
    """Mesh's own, minted before the call is made."""
    model_call_id: str
    """The model's, which is only echoed."""
    name: str
    arguments: str | None
    """The JSON object of its arguments; None where what came was none."""
    agent_version: int | None = None
    binding_version: int | None = None
    """None where the tool was not offered."""
    grant: Grant | None = None
    """Of a tool of a capability: what it was offered on."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a run: written before the call, and again with its result."""

    number: int
    kind: StepKind
    status: StepStatus
    lease_no: int
    started_at: int
    ended_at: int | None = None
    tool: str | None = None
    text: str | None = None
    """What a model said, cut at `MODEL_TEXT_BYTES_MAX`."""
    error: str | None = None
    input_tokens: int | None = None
    """What a model's answer cost; None where it is not known."""
    output_tokens: int | None = None
    asked: tuple[Asked, ...] = ()
    """Of an answer: the calls that it asked for."""
    left_out: int = 0
    """Of an answer: how many more calls it asked for than one answer may."""
    keep: str | None = None
    """Of an answer: the order of its parts, where more than words and calls are to be sent back."""
    final: bool = False
    """Of an answer: whether a budget was used up, so that it was the last to be asked for."""
    call_id: str | None = None
    """Of a call: its id, and what follows."""
    replay: str | None = None
    """What may be done about it when its end is not known; None for a call that was not made."""
    arguments: str | None = None
    agent_version: int | None = None
    binding_version: int | None = None
    observation_kind: str | None = None
    provenance: dict[str, str] | None = None
    """Where what it brings back comes from; from its admission on, and of a result as it was told.
    """
    sources: tuple[str, ...] = ()
    """The URLs that it is about: from its admission on as far as they are known then, and of a
    result all that it rests on."""
    acting: str | None = None
    """As whom the call was made outside."""
    payer: str | None = None
    """Whose credential paid for it; None where nobody's did."""
    grant: Grant | None = None
    """What a tool of a capability was used by."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A caller's message id, seen. After its seven days it is an alias that leads to the story."""

    story: str
    digest: str
    digest_version: int
    claimed_at: int
    verdict: str
    reason: str


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The row that the request id of a refused, proven caller leads to."""

    install_id: str
    reason: str
    at: int
    skew_s: int
