"""Owns the reading of what a model's API wrote: its answer, its counts, the arguments of its calls.

Refuses to trust a size or a number.
"""

from __future__ import annotations

from mesh.kernel import foreign_json, strict_json
from mesh.kernel.errors import Invalid
from mesh.kernel.foreign_json import Json, as_object, as_text, depth_ends, encoded
from mesh.kernel.limits import (
    MODEL_ANSWER_NESTING_MAX,
    MODEL_ARGUMENT_BYTES_MAX,
    MODEL_ARGUMENT_NESTING_MAX,
    MODEL_TOKENS_TOLD_MAX,
)

__all__ = [
    "Json",
    "arguments_of",
    "as_count",
    "as_object",
    "as_text",
    "document",
    "encoded",
    "sum_of",
]


def document(raw: bytes) -> Json | None:
    """The JSON object that `raw` holds; None where it holds none, or one that is too deep."""
    return foreign_json.document(raw, MODEL_ANSWER_NESTING_MAX)


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
    if not depth_ends(arguments, MODEL_ARGUMENT_NESTING_MAX):
        return False
    try:
        return len(encoded(arguments)) <= MODEL_ARGUMENT_BYTES_MAX
    except ValueError:
        return False
