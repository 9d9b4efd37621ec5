"""Owns the noun sealed value: one named value in an agent's vault, or the key of its model."""

from __future__ import annotations

import msgspec


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

    @property
    def present(self) -> bool:
        """Whether there is a value."""
        return self.blob is not None

    def __repr__(self) -> str:
        return f"SealedValue(name={self.name!r}, version={self.version})"
