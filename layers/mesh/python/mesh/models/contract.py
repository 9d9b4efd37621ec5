"""Owns the contract of a language-model connector: what a run asks, what it gets, and how it fails.

Refuses streams, retries and prompts: a connector turns one request into one answer, or a typed
failure. When it is asked again, and with what, is the engine's decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from mesh.kernel.errors import Failed, Phase


class Side(StrEnum):
    """Whose part of the exchange a turn is, as every model API knows it."""

    USER = "user"
    """What the model is given: messages, observations."""
    ASSISTANT = "assistant"
    """What the model said and asked for."""


@dataclass(frozen=True, slots=True)
class Image:
    """A picture, such as the newest screenshot."""

    media_type: str
    """`image/png` or `image/jpeg`."""
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Text:
    """Words. Never empty, and not white space alone."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call that the model asked for."""

    call_id: str
    """The id that the model's API gave it, or one made up where it gave none; echoed back, and
    never trusted: Mesh's own call ids are the ledger's."""
    name: str
    arguments: Mapping[str, Any] | None = field(repr=False)
    """The JSON object of its arguments; None where what came was none, or one that is longer or
    deeper than the limits allow, which the model is told."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a call, for the model."""

    call_id: str
    text: str = field(repr=False)
    failed: bool = False
    image: Image | None = None


@dataclass(frozen=True, slots=True)
class Opaque:
    """A block that the same connector gave and wants back unchanged, such as a signed thought.

    A connector passes over what another one gave: an agent's model may change in mid-run.
    """

    block: Mapping[str, Any] = field(repr=False)
    """JSON, whatever the API's own form, so that it can be stored."""


Part = Text | Image | ToolUse | ToolResult | Opaque


@dataclass(frozen=True, slots=True)
class Turn:
    """One side's parts, in order. Sides alternate, and the first is the user's."""

    side: Side
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    """1 to 64 of `[A-Za-z0-9_-]`."""
    description: str
    input_schema: Mapping[str, Any]
    """JSON Schema of an object."""


class ToolChoice(StrEnum):
    """Whether the model may call tools."""

    AUTO = "auto"
    NONE = "none"
    """It must answer in words. The tools are still named, because turns speak of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model."""

    model: str | None
    """The model's name at its API, as the agent names it; None leaves it to the connector."""
    system: str = field(repr=False)
    turns: tuple[Turn, ...] = field(repr=False)
    question: str = field(repr=False)
    """The message that the run answers, without any frame: for a connector that reads no prompt."""
    max_output_tokens: int
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice.AUTO


class Stop(StrEnum):
    """Why a model stopped."""

    END = "end"
    CALLS = "calls"
    """It waits for the results of its calls."""
    LENGTH = "length"
    """It reached `max_output_tokens`, or the end of its context."""
    REFUSED = "refused"
    """The model, or a guard before it, would not answer."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer. Cached ones count as input."""

    input_tokens: int
    output_tokens: int
    estimated: bool = False
    """Whether the connector took the length for it, because its API told nothing."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model said."""

    text: str = field(repr=False)
    """All of its words; empty where it only called."""
    calls: tuple[ToolUse, ...]
    """There are some exactly where `stop` says so: what was cut at its length may lack the end of
    its last call, and is not to be acted on."""
    stop: Stop
    usage: Usage
    keep: tuple[Part, ...] = field(default=(), repr=False)
    """The parts of its turn, in order, as they must be sent back when the exchange goes on."""
    calls_left_out: int = 0
    """How many calls there were beyond those that one answer may ask for; the model is to be
    told."""


class ModelFailureKind(StrEnum):
    """What kept a model from answering. The first three may pass by themselves."""

    THROTTLED = "model_throttled"
    OVERLOADED = "model_overloaded"
    UNREACHABLE = "model_unreachable"
    """No answer: DNS, connection, TLS, time-out, a broken answer of the network."""
    QUOTA = "model_quota"
    """The account's money or allowance is used up: waiting does not help."""
    CREDENTIAL = "model_credential"
    """Missing, refused, or not allowed for this model."""
    NOT_FOUND = "model_not_found"
    TOO_LARGE = "model_context_exceeded"
    REFUSED_REQUEST = "model_refused_request"
    """The API calls the request invalid."""
    MALFORMED = "model_malformed"
    """An answer that is none of its API's."""
    REFUSED_URL = "model_url_refused"
    """The egress guard refuses the base URL or its address."""


PASSING = frozenset(
    {ModelFailureKind.THROTTLED, ModelFailureKind.OVERLOADED, ModelFailureKind.UNREACHABLE}
)
"""After these the same request may be made again; a model call has no effect but its cost."""


class ModelFailure(Failed):
    """A request without an answer. Its text is Mesh's own: never the API's words, address or
    key."""

    def __init__(
        self, kind: ModelFailureKind, message: str, *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(kind.value, message, Phase.DURING)
        self.kind = kind
        self.retry_after_s = retry_after_s
        """How long the API asked to be left alone, where it said so."""


class ModelConnector(Protocol):
    """One language model's API."""

    def answer(self, request: ModelRequest, timeout_s: float) -> ModelAnswer:
        """One answer within `timeout_s`, by one request.

        Raises ModelFailure; and ValueError for turns that no API takes, which is a bug: sides that
        begin or end with the assistant's, parts on the wrong side, calls without their results in
        the next turn.
        """
        ...
