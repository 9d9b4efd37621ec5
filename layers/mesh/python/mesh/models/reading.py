"""Owns the reading of JSON that somebody else's API wrote: every field may be absent or null.

Refuses to trust a type, a depth, a size or a number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mesh.kernel import strict_json
from mesh.kernel.errors import Invalid
from mesh.kernel.limits import (
    MODEL_ANSWER_NESTING_MAX,
    MODEL_ARGUMENT_BYTES_MAX,
    MODEL_ARGUMENT_NESTING_MAX,
    MODEL_TOKENS_TOLD_MAX,
)

Json = Mapping[str, Any]
"""A JSON object, of which nothing else is known yet."""


def document(raw: bytes) -> Json | None:
    """The JSON object that `raw` holds; None where it holds none, or one that is too deep."""
    try:
        value = strict_json.decode(raw, numbers=True)
    except Invalid:
        return None
    found = as_object(value)
    return found if found is not None and _depth_ends(found, MODEL_ANSWER_NESTING_MAX) else None


def as_object(value: object) -> Json | None:
    """`value` where it is a JSON object."""
    return value if isinstance(value, dict) else None


def as_text(value: object) -> str:
    """`value` where it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int | None:
    """`value` where it counts something: a whole number that is neither negative nor absurd."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MODEL_TOKENS_TOLD_MAX else None


def sum_of(first: object, *others: object) -> int | None:
    """The sum of these counts; None without the first, while the others may be absent."""
    count = as_count(first)
    return None if count is None else count + sum(as_count(other) or 0 for other in others)


def arguments_of(value: object) -> Json | None:
    """The arguments of a call, which come as a JSON object or as the text of one.

    Nothing at all stands for none: models write so for a tool that takes none. None where they are
    no object, or too long or too deep, or hold a number that JSON has no form for.
    """
    if value is None:
        return {}
    if isinstance(value, str):
        return _object_in(value)
    found = as_object(value)
    return found if found is not None and _fits(found) else None


def encoded(value: Json) -> bytes:
    """`value` as JSON in UTF-8. Raises ValueError for a number that JSON has no form for."""
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
    ).encode("utf-8")


def _object_in(text: str) -> Json | None:
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > MODEL_ARGUMENT_BYTES_MAX:
        return None
    if not raw.strip():
        return {}
    try:
        found = as_object(strict_json.decode(raw, numbers=True))
    except Invalid:
        return None
    return found if found is not None and _fits(found) else None


def _fits(arguments: Json) -> bool:
    if not _depth_ends(arguments, MODEL_ARGUMENT_NESTING_MAX):
        return False
    try:
        return len(encoded(arguments)) <= MODEL_ARGUMENT_BYTES_MAX
    except ValueError:
        return False


def _depth_ends(value: Json, nesting_max: int) -> bool:
    """Whether no value lies deeper; walked with a stack of its own, for depth is the question."""
    level: list[object] = [value]
    for _ in range(nesting_max):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return True
    return False


def _children(value: object) -> list[object]:
    found: list[object] = []
    if isinstance(value, dict):
        found = list(value.values())
    elif isinstance(value, list):
        found = value
    return [child for child in found if isinstance(child, dict | list)]
