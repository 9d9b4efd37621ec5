"""Owns the words of tools: a definition, its replay class, a call, and what came of it.

Refuses to decide whether a call may be made: that is the gate's, on the offer that the call rests
on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from mesh.kernel.clock import Clock
from mesh.records.connection import Capability, Grant
from mesh.security.egress.contract import Egress
from mesh.security.sealing import KeyWrapper
from mesh.storage.table import Table


class Replay(StrEnum):
    """What may be done about a call of which it is not known whether it was made."""

    OBSERVE = "observe"
    """It may be made again: it changes nothing and costs nothing."""
    METERED = "metered"
    """Never again: it was paid for when it was admitted, whatever came of it."""
    EFFECT = "effect"
    """Never again: it may have changed something. The model is told that it is uncertain."""


class ObservationKind(StrEnum):
    """What a call came to, as the model and an operator are told it."""

    RESULT = "result"
    INVALID_ARGUMENTS = "invalid_arguments"
    """Refused before it was admitted; it cost nothing."""
    NOT_OFFERED = "not_offered"
    REVOKED = "revoked"
    """What the offer rests on changed: before the call, or while it was under way."""
    EXHAUSTED = "exhausted"
    """A budget of the run is used up."""
    LIMITED = "limited"
    """A meter of the connection is used up, of this minute or of this run: refused before it was
    admitted, and the run goes on."""
    FAILED = "failed"
    """The tool, or what it stands on, said no or did not answer."""
    UNCERTAIN = "uncertain"
    """It may have been done. Nobody can know, and it is not done again by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What came of a call."""

    kind: ObservationKind
    text: str = field(repr=False)
    """Of a result, text from outside or from memory: framed as untrusted before a model sees it."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """Where a result came from, by names such as `install_id`; kept with it, and shown to the
    model and to operators: ids and addresses, never words that somebody said."""
    sources: tuple[str, ...] = ()
    """The URLs that a result rests on: kept with it, shown to operators, and with the reply."""


def provenance_of(grant: Grant) -> dict[str, str]:
    """Where what a call on `grant` brings back comes from: the capability, the provider, and the
    owner type of the credential (seed 001, "Operator API")."""
    return {
        "capability": grant.capability.value,
        "provider": grant.provider,
        "credential": grant.source.value,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a tool, admitted."""

    call_id: str
    """Mesh's own, persisted before its use."""
    agent_id: str
    run_id: str
    install_id: str | None
    """Whose conversation the run belongs to; None for a probe that named none."""
    conversation_id: str | None
    before: int | None = None
    """The order key of the message that the run answers: nothing behind it is the run's to see."""
    order: int | None = None
    """The order key under which the run waits, while it is not over; None for a probe."""
    grant: Grant | None = None
    """What a tool of a capability is used by, as it was admitted; None for every other tool."""


class Handler(Protocol):
    """Makes calls of one tool."""

    def __call__(self, arguments: Mapping[str, Any], call: Call, /) -> Observation:
        """Makes one call with arguments that fit the definition's schema.

        Raises Refused, Conflict or Failed, whose code and text the model is told as an observation.
        """
        ...


@runtime_checkable
class Judging(Protocol):
    """A handler that has more to say of a call's arguments than their schema, before the call is
    admitted."""

    def judge(self, arguments: Mapping[str, Any], grant: Grant | None) -> str | None:
        """Why the call is not to be admitted, in words for the model that repeat nothing of what
        it wrote; None where nothing stands against it."""
        ...

    def sources(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The URLs that the call is about, as far as they are known before it: kept with its
        admission, so that they are evidence whatever comes of it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a package's handlers are made of."""

    table: Table
    clock: Clock
    egress: Callable[[], Egress]
    """Makes the way out; asked when a handler first needs one."""
    wrapper: KeyWrapper
    """Opens the data keys that providers' keys are sealed under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A tool as its package or provider describes it."""

    name: str
    """1 to 64 of `[a-z0-9_]`."""
    description: str
    input_schema: Mapping[str, Any] = field(repr=False)
    replay: Replay
    package: str
    secrets: tuple[str, ...] = ()
    """Names of the vault's values that its handlers may have opened."""
    capability: Capability | None = None
    """What of the web it is: granted by connections, and not by a declaration of secrets."""

    @property
    def acting(self) -> str:
        """As whom it acts outside. A tool of the web reads what is public, signed in as nobody; a
        package that acts inside alone does so as the agent."""
        return "agent" if self.capability is None else "nobody"
