"""Owns the shapes of what the doctor finds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from mesh.operator.shapes.base import Shown, Taken


class DoctorAsked(Taken):
    """Where the doctor goes on: a request looks at a bounded part of the instance."""

    cursor: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None


class FindingShown(Shown):
    """Something that is not as it should be."""

    severity: Literal["error", "warning", "note"]
    code: str
    """Stable, such as `connector_error`."""
    subject: str
    """What it is about: an id, an agent's slug, or `instance`."""
    text: str
    command: str | None
    """What mends it; null where that lies outside of Mesh."""


class FindingList(Shown):
    """What one part of the instance came to. A part may be whole, and yet not be the last."""

    items: list[FindingShown]
    next_cursor: str | None
