"""Owns the nouns of the control plane's people: operator tokens, principals, and audit rows."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mesh.records.epoch import FIRST_EPOCH


class OperatorRole(StrEnum):
    """What a token may do."""

    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's token: its hash, never itself."""

    operator_id: str
    name: str
    role: OperatorRole
    agents: tuple[str, ...] | None = None
    """Ids of the agents that it reaches; None means every agent (admin, and viewers left open)."""
    prefix: str
    digest: bytes
    created_at: int
    expires_at: int
    revoked_at: int | None = None
    version: int = 1
    epoch: int = FIRST_EPOCH
    """The instance's epoch when it was minted: a restore ends every token of those before."""

    def __repr__(self) -> str:
        return f"Token({self.operator_id})"


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a request, proven."""

    operator_id: str
    name: str
    role: OperatorRole
    agents: tuple[str, ...] | None
    expires_at: int

    def reaches(self, agent_id: str) -> bool:
        """Whether the principal may see that agent at all."""
        return self.agents is None or agent_id in self.agents


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """One mutation, in the mutation's own transaction. Never a secret, never a delivery URL."""

    id: str
    at: int
    actor: str
    action: str
    target: str
    agent_id: str | None = None
    version_before: int | None = None
    version_after: int | None = None
    request_id: str
