"""Owns the noun binding: whether an agent may use a tool, and since which change."""

from __future__ import annotations

import msgspec


class ToolBinding(msgspec.Struct, frozen=True, kw_only=True):
    """The row `TOOL#<name>` of an agent. An offer names its version, and is void after the next."""

    name: str
    enabled: bool
    version: int
    updated_at: int
