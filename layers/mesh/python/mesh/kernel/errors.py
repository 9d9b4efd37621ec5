"""Owns the tree of errors, sorted by who must act, and the one table from code to HTTP status.

Refuses to carry what must not be shown: a message is written for its reader, and never holds a
secret, a body, a header or an upstream text.

    MeshError
    ├── Invalid     the caller's data is wrong; the caller mends it
    ├── Refused     a policy or a state said no; nothing was done
    ├── Conflict    the caller acted on an outdated picture; read again
    └── Failed      a dependency did not do its part; `phase` tells how far it got

Anything else that is raised is a bug and may crash.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Phase(StrEnum):
    """How far a dependency got before it failed: only `BEFORE` is surely without effect."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


class FieldProblem(msgspec.Struct, frozen=True):
    """One field of the caller's data and what is wrong with it; `path` is empty for the whole."""

    path: str
    problem: str


class MeshError(Exception):
    """The base of every error that Mesh raises on purpose. `code` is stable, `message` is for
    people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status that answers this error."""
        return HTTP_STATUS[self.code]


class Invalid(MeshError):
    """The caller's data is wrong. `fields` names each problem that was found."""

    def __init__(self, code: str, message: str, fields: tuple[FieldProblem, ...] = ()) -> None:
        super().__init__(code, message)
        self.fields = fields


class Refused(MeshError):
    """A policy or a state said no. `retry_after_s` says when it may be otherwise."""

    def __init__(self, code: str, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(code, message)
        self.retry_after_s = retry_after_s


class Conflict(MeshError):
    """The caller acted on an outdated picture, or on a state that does not allow the act."""

    def __init__(self, code: str, message: str, current_version: int | None = None) -> None:
        super().__init__(code, message)
        self.current_version = current_version


class Failed(MeshError):
    """A dependency did not do its part."""

    def __init__(
        self, code: str, message: str, phase: Phase = Phase.DURING, outcome_unknown: bool = False
    ) -> None:
        super().__init__(code, message)
        self.phase = phase
        self.outcome_unknown = outcome_unknown


HTTP_STATUS: dict[str, int] = {
    # the caller's data
    "malformed_json": 400,
    "malformed_request": 400,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "invalid_payload": 422,
    "invalid_request": 422,
    # policy and state
    "unauthorized": 401,
    "forbidden": 403,
    "connector_disabled": 403,
    "conversation_cap_reached": 403,
    "actor_cap_reached": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "idempotency_conflict": 409,
    "version_conflict": 409,
    "state_conflict": 409,
    "already_exists": 409,
    "rate_limited": 429,
    "agent_paused": 503,
    # dependencies
    "unavailable": 503,
    "secret_unopenable": 500,
    "internal": 500,
}
"""Every code that an answer may carry. A code that is missing here is a bug, and a test says so."""
