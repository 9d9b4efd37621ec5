"""Owns cursors: where a listing goes on, sealed so that nobody but Mesh can make or change one.

Refuses a cursor of another route, filter or operator: its seal is made over all three, with a key
that belongs to the operator's token.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from mesh.kernel.errors import FieldProblem, Invalid

_SEAL_BYTES: Final = 16


def seal(key: bytes, binding: str, place: list[str | int]) -> str:
    """An opaque cursor that needs no escaping in a URL. `binding` says what it is for."""
    data = json.dumps(place, separators=(",", ":")).encode()
    return urlsafe_b64encode(_mac(key, binding, data) + data).decode().rstrip("=")


def unseal(key: bytes, binding: str, cursor: str) -> list[str | int]:
    """The place that a cursor stands for. Raises Invalid `invalid_request` for any other."""
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except ValueError:
        raise _invalid() from None
    mac, data = raw[:_SEAL_BYTES], raw[_SEAL_BYTES:]
    canonical = urlsafe_b64encode(raw).decode().rstrip("=") == cursor
    if not hmac.compare_digest(mac, _mac(key, binding, data)) or not canonical:
        raise _invalid()
    place: list[str | int] = json.loads(data)
    return place


def _mac(key: bytes, binding: str, data: bytes) -> bytes:
    base = b"mesh cursor 1\0" + binding.encode() + b"\0" + data
    return hmac.digest(key, base, "sha256")[:_SEAL_BYTES]


def _invalid() -> Invalid:
    problem = FieldProblem("cursor", "is not a cursor of this list, filter and token")
    return Invalid("invalid_request", "the query is not valid", (problem,))
