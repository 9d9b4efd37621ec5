"""Owns the shapes of operators, of the audit trail, and of what the API says of itself.

Refuses a token but where it is shown once.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mesh.kernel.limits import AGENTS_PER_TOKEN_MAX, TOKEN_DAYS_DEFAULT, TOKEN_DAYS_MAX
from mesh.operator.shapes.base import Listing, Moment, Name, Shown, Slug, Taken, Time, Version
from mesh.records.operator import OperatorRole


class AuditListing(Listing):
    """Which audit rows are wanted."""

    target: str | None = None
    actor: str | None = None
    action: str | None = None
    since: Moment | None = None
    until: Moment | None = None


class OperatorNew(Taken):
    """A new token. `agents` (slugs): needed for operator, optional for viewer, none for admin."""

    name: Name
    role: OperatorRole
    agents: Annotated[tuple[Slug, ...], Field(max_length=AGENTS_PER_TOKEN_MAX)] | None = None
    expires_in_days: Annotated[int, Field(ge=1, le=TOKEN_DAYS_MAX)] = TOKEN_DAYS_DEFAULT


class OperatorPut(Taken):
    """All settings of an operator. The token and its expiry stay."""

    name: Name
    role: OperatorRole
    agents: Annotated[tuple[Slug, ...], Field(max_length=AGENTS_PER_TOKEN_MAX)] | None = None
    version: Version


class OperatorShown(Shown):
    """An operator; `agents` are slugs, null for all."""

    id: str
    name: str
    role: OperatorRole
    agents: list[str] | None
    created_at: Time
    expires_at: Time
    revoked_at: Time | None
    version: int


class OperatorList(Shown):
    """A page of operators, oldest first."""

    items: list[OperatorShown]
    next_cursor: str | None


class OperatorCreated(OperatorShown):
    """A new operator, with its token: shown now and never again."""

    token: str | None
    replayed: bool = False


class AuditShown(Shown):
    """Who changed what."""

    id: str
    at: Time
    actor: str
    action: str
    target: str
    version_before: int | None
    version_after: int | None
    request_id: str


class AuditList(Shown):
    """A page of audit rows, newest first."""

    items: list[AuditShown]
    next_cursor: str | None


class Whoami(Shown):
    """What a token may do."""

    id: str
    name: str
    role: OperatorRole
    agents: list[str] | None
    expires_at: Time


class Health(Shown):
    """That the function runs; nothing else is touched."""

    status: Literal["ok"]
    version: str
