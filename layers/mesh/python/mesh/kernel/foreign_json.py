"""Owns the reading of JSON that somebody else's API wrote: every field may be absent or null.

Refuses to trust a type, a depth, a size or a number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mesh.kernel import strict_json
from mesh.kernel.errors import Invalid

Json = Mapping[str, Any]
"""A JSON object, of which nothing else is known yet."""


def document(raw: bytes, nesting_max: int, *, mended: bool = False) -> Json | None:
    """The JSON object that `raw` holds; None where it holds none, or one that is too deep.

    `mended`, half of a surrogate pair stands for the character that says so (U+FFFD), and takes
    nothing else with it.
    """
    try:
        value = strict_json.decode(raw, numbers=True, mended=mended)
    except Invalid:
        return None
    found = as_object(value)
    return found if found is not None and depth_ends(found, nesting_max) else None


def as_object(value: object) -> Json | None:
    """`value` where it is a JSON object."""
    return value if isinstance(value, dict) else None


def as_text(value: object) -> str:
    """`value` where it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def encoded(value: Json) -> bytes:
    """`value` as JSON in UTF-8. Raises ValueError for a number that JSON has no form for."""
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
    ).encode("utf-8")


def depth_ends(value: Json, nesting_max: int) -> bool:
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
