"""Owns JSON as Mesh takes it from outside: one reading or none, whatever parser a caller has.

Refuses what parsers disagree about: other encodings than UTF-8, a byte order mark, duplicate keys
at any level, NaN and Infinity, lone surrogates, and text after the value (contract §1.2).
"""

from __future__ import annotations

import json
import math
import re
from typing import Final

from mesh.kernel.errors import FieldProblem, Invalid

# Every escape is walked, so that an escaped back-slash never lends its second half to the next
# one. A pair of surrogates is passed over whole; group 1 is a half without its other.
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u([dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
_TOKEN: Final = re.compile(
    r"[ \t\n\r]*+(?:"
    r"(?P<mark>[{}\[\],:])"
    r'|(?P<string>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
    r"|(?P<plain>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|true|false|null)"
    r"|(?P<end>\Z)"
    r"|(?P<other>.))",
    re.DOTALL,
)
_INTEGER_DIGITS_MAX: Final = 20
_VALUE: Final = ("{", "[", "string", "plain")
_FIRST_VALUE: Final = (*_VALUE, "]")
_KEY: Final = ("string",)
_FIRST_KEY: Final = ("string", "}")


class _StrictnessError(ValueError):
    """A hook of the parser met what JSON, strictly read, does not have."""


def decode(raw: bytes, *, numbers: bool = False, mended: bool = False) -> object:
    """The value that `raw` holds. Without `numbers` each of them comes as 0; else an integer
    that is too long for any field comes as infinity. `mended`, half of a surrogate pair comes as
    U+FFFD, for a text that is not worth losing to it.

    Raises `Invalid`: `malformed_json` for what is not strict JSON, and `invalid_payload` for JSON
    that is nested deeper than the parser can follow.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise malformed("the body is not UTF-8") from None
    if text.startswith("\ufeff"):
        raise malformed("the body starts with a byte order mark")
    if mended and "\\" in text:
        text = _ESCAPE.sub(lambda found: r"\ufffd" if found[1] else found[0], text)
    try:
        value = _parse(text, numbers=numbers)
    except _StrictnessError:
        raise malformed("the body has a duplicate key, NaN or Infinity") from None
    except ValueError:
        raise malformed("the body is not one JSON value") from None
    except RecursionError:
        if not well_formed(text):
            raise malformed("the body is not one JSON value") from None
        value = None
        deep = True
    else:
        deep = False
    if "\\" in text and any(found[1] for found in _ESCAPE.finditer(text)):
        raise malformed("the body has half of a surrogate pair")
    if deep:
        problem = FieldProblem("", "is nested too deeply")
        raise Invalid("invalid_payload", "the payload is not valid", (problem,))
    return value


def malformed(message: str) -> Invalid:
    """The error for a body that is not strict JSON."""
    return Invalid("malformed_json", message)


def _parse(text: str, *, numbers: bool) -> object:
    # Python's bound on the digits of an integer is not JSON's, so none is converted unasked.
    value: object = json.loads(
        text,
        object_pairs_hook=_unique,
        parse_constant=_no_constant,
        parse_int=_integer if numbers else _zero,
        parse_float=float if numbers else _zero,
    )
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _StrictnessError
    return found


def _no_constant(_: str) -> object:
    raise _StrictnessError


def _zero(_: str) -> int:
    return 0


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _INTEGER_DIGITS_MAX else math.inf


def well_formed(text: str) -> bool:
    """Whether `text` is one JSON value without duplicate keys, however deep it is nested.

    Slower than the parser, and asked only where that one has given up; it keeps its own stack.
    """
    opened: list[set[str] | None] = []  # the keys of each open object, None for an array
    expected: tuple[str, ...] = _VALUE
    for found in _TOKEN.finditer(text):
        kind = found[1] or str(found.lastgroup)
        if kind not in expected:
            return False
        if kind == "end":
            return True
        keys = opened[-1] if opened else None
        if keys is not None and expected in (_KEY, _FIRST_KEY) and kind == "string":
            key = json.loads(found["string"])
            if key in keys:
                return False
            keys.add(key)
            expected = (":",)
        elif kind == ":":
            expected = _VALUE
        elif kind == ",":
            expected = _VALUE if keys is None else _KEY
        elif kind == "[":
            opened.append(None)
            expected = _FIRST_VALUE
        elif kind == "{":
            opened.append(set())
            expected = _FIRST_KEY
        else:
            if kind in ("]", "}"):
                opened.pop()
            expected = _after(opened)
    return False


def _after(opened: list[set[str] | None]) -> tuple[str, ...]:
    """What may follow a value, by what is open around it."""
    if not opened:
        return ("end",)
    return (",", "]") if opened[-1] is None else (",", "}")
