"""Owns identifiers: prefixed ULIDs that Mesh mints, and hashes of what callers name.

Refuses to let a caller's value into a key raw: `hashed` turns any tuple of strings into 26
characters, length-prefixed so that no two tuples meet ("a#b","c" against "a","b#c").

One message's whole story shares one ULID: `req_X` received it, `msg_X` is it, `run_X` answers it,
and `out_X` is the reply. So any of the four leads to the others without an index.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
from typing import Final, Protocol

from mesh.kernel.clock import Clock

CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ULID_PATTERN: Final = r"[0-7][0-9A-HJKMNP-TV-Z]{25}"
HASH_LENGTH: Final = 26

_INSTALL_ID = re.compile(r"ins_[0-9A-HJKMNP-TV-Z]{26}\Z")
_ANY_ID = re.compile(r"[a-z]{3}_" + ULID_PATTERN + r"\Z")


class Random(Protocol):
    """Where randomness comes from. Injected, so that a simulation can be run again."""

    def bytes(self, count: int) -> bytes:
        """`count` unpredictable bytes."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`, for jitter; need not be unpredictable."""
        ...


class SystemRandom:
    """The operating system's randomness."""

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def uniform(self, low: float, high: float) -> float:
        return random.uniform(low, high)


class Ids:
    """Mints ULIDs: 48 bits of milliseconds, 80 bits of randomness, in Crockford base32."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random

    def ulid(self) -> str:
        """A fresh ULID of 26 upper-case characters."""
        return encode(
            self._clock.now_ms() << 80 | int.from_bytes(self._random.bytes(10), "big"), 26
        )

    def mint(self, prefix: str) -> str:
        """A fresh id such as `agt_01J…`."""
        return f"{prefix}_{self.ulid()}"

    def token(self) -> str:
        """A one-use token that tells one write from another: 16 characters, not a secret."""
        return encode(int.from_bytes(self._random.bytes(10), "big"), 16)


def encode(value: int, length: int) -> str:
    """`value` in Crockford base32, `length` characters, most significant first."""
    bits = range(5 * (length - 1), -1, -5)
    return "".join([CROCKFORD[value >> shift & 31] for shift in bits])


def hashed(*parts: str) -> str:
    """26 characters that stand for exactly this tuple of strings (130 bits of SHA-256)."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return encode(int.from_bytes(digest.digest(), "big") >> (256 - 130), HASH_LENGTH)


def is_install_id(text: str) -> bool:
    """Whether `text` is `ins_` and 26 upper-case Crockford characters, exactly."""
    return _INSTALL_ID.match(text) is not None


def is_minted(text: str) -> bool:
    """Whether `text` has the form of an id that Mesh mints: a prefix and a ULID."""
    return _ANY_ID.match(text) is not None


def story_of(minted: str) -> str:
    """The ULID that `req_X`, `msg_X`, `run_X` and `out_X` share."""
    return minted[4:]


def ulid_ms(ulid: str) -> int:
    """The Unix milliseconds in the first ten characters of a ULID. ValueError for other
    characters."""
    value = 0
    for character in ulid[:10]:
        value = value << 5 | CROCKFORD.index(character)
    return value
