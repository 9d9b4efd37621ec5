"""Owns the noun sealed value: one named value in an agent's vault, the key of its model, or that of
a web provider."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class CredentialSource(StrEnum):
    """Whose credential pays for what an agent uses."""

    AGENT = "agent"
    INSTANCE = "instance"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account that an agent acts by outside: it belongs to that agent alone."""

    origin: str
    """Scheme, host and port: where its credential may go, and nowhere else."""
    name: str


class SealedValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value's row.

    Where a model's key was deleted the row stays without it, so that no version ever names two.
    """

    name: str
    version: int
    wrapped: bytes | None = None
    """The data key of this one version, wrapped by KMS under the value's context."""
    blob: bytes | None = None
    created_at: int
    """When the name was first set, or set again after it was deleted. Unix ms."""
    updated_at: int
    """When this version was set or deleted. Unix ms."""

    account: Account | None = None
    """The acting account whose credential it is; None for any other value."""

    @property
    def present(self) -> bool:
        """Whether there is a value."""
        return self.blob is not None

    def __repr__(self) -> str:
        return f"SealedValue(name={self.name!r}, version={self.version})"
