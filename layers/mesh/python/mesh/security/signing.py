"""Owns the generic connector's signatures: what is signed, with which key, and how it is checked.

Refuses to decode, parse or re-serialize a body: the bytes that travelled are the bytes that are
signed. Contract §1.1 (inbound), §1.2 (header forms) and §2 (outbound).

The direction tag and the install are part of what is signed, so that a delivery never passes as a
request, nor one install's message as another's. Two keys come out of one secret: Mesh's own
signature uses the bytes of the whole string as shown, `whsec_` included; the Standard Webhooks
signature beside it uses the 32 bytes that its base64 part stands for.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from mesh.kernel.ids import is_install_id
from mesh.kernel.limits import SECRET_KEY_BYTES, SIGNATURE_PARTS_MAX, TIMESTAMP_SKEW_S_MAX

if TYPE_CHECKING:
    from mesh.kernel.ids import Random

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - public: what every secret begins with

INSTALL_HEADER: Final = "X-Mesh-Install"
TIMESTAMP_HEADER: Final = "X-Mesh-Timestamp"
SIGNATURE_HEADER: Final = "X-Mesh-Signature"
OUTBOUND_ID_HEADER: Final = "X-Mesh-Outbound-Id"

_TIMESTAMP = re.compile(r"(?:0|[1-9][0-9]{0,11})\Z")
_CANDIDATE = re.compile(r"v1=([0-9a-f]{64})\Z")

_DUMMIES: Final = (b"no install has this secret", b"nor has any install this one")
"""What is worked through where a secret is missing. A match with one of them is never a match."""


class Direction(StrEnum):
    """Who signed: the third party (`in`) or Mesh (`out`)."""

    IN = "in"
    OUT = "out"


class SignedHeaders(msgspec.Struct, frozen=True):
    """The three headers of a request, well formed and not yet believed."""

    install_id: str
    timestamp: str
    """Unix seconds, exactly as sent: this text is what was signed."""
    candidates: tuple[str, ...]
    """Digests of 64 lower-case hex digits, one to five, in the order sent."""


def parse_headers(
    install: str | None, timestamp: str | None, signature: str | None
) -> SignedHeaders | None:
    """The three headers, or None when one is missing or malformed (contract §1.2).

    A part of the signature that is not exactly `v1=` and 64 lower-case hex digits is passed over;
    more than five parts, or none left, is malformed.
    """
    if install is None or timestamp is None or signature is None:
        return None
    if not is_install_id(install) or _TIMESTAMP.match(timestamp) is None:
        return None
    parts = signature.split(",", SIGNATURE_PARTS_MAX)
    if len(parts) > SIGNATURE_PARTS_MAX:
        return None
    candidates = tuple(
        match[1] for part in parts if (match := _CANDIDATE.match(part.strip(" \t"))) is not None
    )
    if not candidates:
        return None
    return SignedHeaders(install, timestamp, candidates)


def verify_inbound(
    headers: SignedHeaders, body: bytes, secrets: Sequence[bytes | str]
) -> int | None:
    """The index of the first secret that one candidate matches, or None.

    `secrets` are those valid now: current, then previous while it overlaps; empty when the install
    is not known. At least two digests are always worked out, so that neither a miss nor an overlap
    shows in the time taken, and every candidate is compared with every digest in constant time,
    without an early exit.
    """
    base = signing_base(Direction.IN, headers.install_id, headers.timestamp, body)
    keys = [key_of(secret) for secret in secrets]
    keys += _DUMMIES[len(keys) :]
    found: int | None = None
    for index, key in enumerate(keys):
        expected = hmac.digest(key, base, "sha256").hex()
        matches = False
        for candidate in headers.candidates:
            matches |= hmac.compare_digest(expected, candidate)
        if matches and found is None and index < len(secrets):
            found = index
    return found


def skew_s(timestamp: str, now_ms: int) -> int:
    """By how many seconds the sender's clock is ahead of ours (negative: behind it)."""
    return int(timestamp) - now_ms // 1000


def within_window(timestamp: str, now_ms: int) -> bool:
    """Whether the time signed is at most 300 s from now, either way, 300 included."""
    return abs(skew_s(timestamp, now_ms)) <= TIMESTAMP_SKEW_S_MAX


def sign_inbound(secret: bytes | str, install_id: str, timestamp: str, body: bytes) -> str:
    """The value of `X-Mesh-Signature` that a third party sends with `body`."""
    return _signature(secret, Direction.IN, install_id, timestamp, body)


def sign_outbound(
    secrets: Sequence[str], install_id: str, outbound_id: str, timestamp: str, body: bytes
) -> dict[str, str]:
    """Every signing header of one delivery attempt, by its name (contract §2).

    `secrets` come current first, the previous after it while it overlaps; both sign. `timestamp` is
    this attempt's own, in Unix seconds. Raises ValueError when there is no secret, or one that
    `mint_secret` did not make.
    """
    if not secrets:
        raise ValueError("a delivery is signed with at least one secret")
    webhook_id = standard_webhooks_id(install_id, outbound_id)
    return {
        INSTALL_HEADER: install_id,
        TIMESTAMP_HEADER: timestamp,
        SIGNATURE_HEADER: ",".join(
            _signature(secret, Direction.OUT, install_id, timestamp, body) for secret in secrets
        ),
        OUTBOUND_ID_HEADER: outbound_id,
        "webhook-id": webhook_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(
            standard_webhooks_signature(secret, webhook_id, timestamp, body) for secret in secrets
        ),
    }


def verify_outbound(headers: SignedHeaders, body: bytes, secrets: Sequence[bytes | str]) -> bool:
    """Whether Mesh signed this delivery with one of `secrets`: what a receiver does.

    The window (`within_window`) is the receiver's to check as well.
    """
    base = signing_base(Direction.OUT, headers.install_id, headers.timestamp, body)
    matches = False
    for secret in secrets:
        expected = hmac.digest(key_of(secret), base, "sha256").hex()
        for candidate in headers.candidates:
            matches |= hmac.compare_digest(expected, candidate)
    return matches


def mint_secret(random: Random) -> str:
    """A fresh signing secret: `whsec_` and 32 random bytes in padded base64."""
    return SECRET_PREFIX + b64encode(random.bytes(SECRET_KEY_BYTES)).decode("ascii")


def key_of(secret: bytes | str) -> bytes:
    """The key of Mesh's own signature: the bytes of the secret as shown, prefix and all."""
    return secret if isinstance(secret, bytes) else secret.encode("utf-8")


def signing_base(direction: Direction, install_id: str, timestamp: str, body: bytes) -> bytes:
    """What is signed: version, direction, install, time and the untouched body."""
    return f"v1:{direction.value}:{install_id}:{timestamp}:".encode() + body


def standard_webhooks_id(install_id: str, outbound_id: str) -> str:
    """The `webhook-id` of a delivery, which carries direction and install into that signature."""
    return f"out:{install_id}:{outbound_id}"


def standard_webhooks_key(secret: str) -> bytes:
    """The Standard Webhooks key: what the base64 part of the secret decodes to.

    Raises ValueError when `secret` does not have the form that `mint_secret` gives.
    """
    if not secret.startswith(SECRET_PREFIX):
        raise ValueError("a signing secret begins with whsec_")
    return b64decode(secret[len(SECRET_PREFIX) :], validate=True)


def standard_webhooks_signature(secret: str, webhook_id: str, timestamp: str, body: bytes) -> str:
    """One entry of `webhook-signature`: `v1,` and the base64 digest (Standard Webhooks 1.0.0)."""
    message = f"{webhook_id}.{timestamp}.".encode() + body
    digest = hmac.digest(standard_webhooks_key(secret), message, hashlib.sha256)
    return "v1," + b64encode(digest).decode("ascii")


def _signature(
    secret: bytes | str, direction: Direction, install_id: str, timestamp: str, body: bytes
) -> str:
    base = signing_base(direction, install_id, timestamp, body)
    return "v1=" + hmac.digest(key_of(secret), base, "sha256").hex()
