"""Owns what a route of the operator API is: whom it lets in, what it finds, takes and does.

Refuses an order of its own: `dispatch` calls the parts, always in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from mesh.control.audit import Cause
from mesh.control.idempotency import Minting
from mesh.control.operators import Proven
from mesh.operator import cursors
from mesh.operator.plane import ControlPlane
from mesh.records.operator import Principal

S = TypeVar("S")
B = TypeVar("B", bound=BaseModel)


class Needs(IntEnum):
    """The least role that may call a route."""

    NOTHING = 0
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What an act answers; None has no body."""

    body: BaseModel | Mapping[str, Any] | None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    """Beside those that every answer bears."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A body as it came, and how it was labelled. It stays out of the `repr`."""

    content_type: str | None
    content_encoding: str | None
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, as an act sees it: who asks, on what, and in which request."""

    plane: ControlPlane
    proven: Proven
    path: Mapping[str, str]
    cause: Cause
    operation: str
    minting: Minting | None = None
    binding: str = ""
    """What cursors of this list are bound to: route, filter and operator."""
    sent: Sent | None = None
    """The body of a route that takes it unread."""

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.proven.principal

    @property
    def mint(self) -> Minting:
        """The use of the Idempotency-Key, which every route that mints has."""
        assert self.minting is not None, "only a route that mints asks for it"
        return self.minting

    def cursor(self, place: list[str | int] | None) -> str | None:
        """The cursor of a place; None at the end."""
        return None if place is None else cursors.seal(self.proven.cursor_key, self.binding, place)

    def place(self, cursor: str | None) -> list[str | int] | None:
        """The place of a cursor. Raises Invalid."""
        if cursor is None:
            return None
        return cursors.unseal(self.proven.cursor_key, self.binding, cursor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Generic[S, B]):
    """One route: whom it lets in, what it finds, what it takes, what it does."""

    method: str
    path: str
    operation: str
    """The OpenAPI operationId."""
    summary: str
    needs: Needs
    find: Callable[[Call], S]
    """Finds what the path names, or raises `not_found`, also for what is not the caller's."""
    takes: type[B]
    """The body of a POST or PUT; the query of a GET."""
    act: Callable[[Call, S, B], Answer]
    answers: type[BaseModel] | None
    status: int = 200
    mints: bool = False
    unread: bool = False
    """Whether the body is handed on as it came, in `Call.sent`: the act judges it, and `takes` is
    for the document alone."""
    also: tuple[int, ...] = field(default=())
    """Statuses that it may answer beside the ordinary ones, for the document."""

    @property
    def key(self) -> str:
        """The route as API Gateway names it."""
        return f"{self.method} {self.path}"


def nothing(_: Call) -> None:
    """What a route finds whose path names nothing."""
