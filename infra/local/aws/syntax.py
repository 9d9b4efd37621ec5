"""Owns the trees that DynamoDB's expressions are parsed into.

Refuses to mean anything: `expressions` makes these trees, `evaluate` and `change` read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Tree = TypeVar("Tree")


@dataclass(frozen=True, slots=True)
class Path:
    """A document path: attribute names (`#n` unresolved) and list indexes."""

    parts: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the request gives, such as `:v`."""

    name: str


@dataclass(frozen=True, slots=True)
class Size:
    path: Path


@dataclass(frozen=True, slots=True)
class IfNotExists:
    path: Path
    otherwise: Operand


@dataclass(frozen=True, slots=True)
class ListAppend:
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left + right` or `left - right`."""

    sign: str
    left: Operand
    right: Operand


Operand = Path | Given | Size | IfNotExists | ListAppend | Arithmetic


@dataclass(frozen=True, slots=True)
class Compare:
    sign: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Between:
    operand: Operand
    low: Operand
    high: Operand


@dataclass(frozen=True, slots=True)
class In:
    operand: Operand
    choices: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """`attribute_exists(path)` and its like."""

    function: str
    arguments: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Not:
    inner: Condition


@dataclass(frozen=True, slots=True)
class Both:
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Either:
    left: Condition
    right: Condition


Condition = Compare | Between | In | Call | Not | Both | Either


@dataclass(frozen=True, slots=True)
class Action:
    """One action of an update: its clause, where, and what (None for REMOVE)."""

    clause: str
    path: Path
    operand: Operand | None


@dataclass(frozen=True, slots=True)
class Parsed(Generic[Tree]):
    """A parsed expression and the placeholders that it uses."""

    tree: Tree
    names: frozenset[str]
    values: frozenset[str]
