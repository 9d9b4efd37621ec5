"""Owns the answer to "why does this signature not verify?", for whoever holds the secret.

Refuses to be part of any decision: it tries the mistakes that integrators make and names the one
that fits. Only the command line asks it; ingress never does, and tells a caller nothing.
"""

from __future__ import annotations

import hmac
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mesh.kernel.ids import is_install_id
from mesh.kernel.limits import SIGNATURE_PARTS_MAX, TIMESTAMP_SKEW_S_MAX
from mesh.security.signing import (
    INSTALL_HEADER,
    SECRET_PREFIX,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    Direction,
    key_of,
    parse_headers,
    signing_base,
    skew_s,
    standard_webhooks_key,
    within_window,
)

_INSTALL_IN_BODY = re.compile(rb"ins_[0-9A-HJKMNP-TV-Z]{26}")
_INSTALLS_TRIED: Final = 8
_ID_KEYS: Final = ("outbound_id", "message_id", "id")


class Finding(StrEnum):
    """What was found. The values are stable; the texts are for people and may change."""

    VERIFIES = "verifies"
    HEADERS_MISSING = "headers_missing"
    INSTALL_MALFORMED = "install_malformed"
    TIMESTAMP_MALFORMED = "timestamp_malformed"
    TIMESTAMP_IN_MILLISECONDS = "timestamp_in_milliseconds"
    SIGNATURE_MALFORMED = "signature_malformed"
    SIGNATURE_ENCODING = "signature_encoding"
    CLOCK = "clock"
    KEY_DECODED = "key_decoded"
    KEY_WITHOUT_PREFIX = "key_without_prefix"
    KEY_WITH_WHITE_SPACE = "key_with_white_space"
    WRONG_DIRECTION = "wrong_direction"
    WRONG_INSTALL = "wrong_install"
    WRONG_BASE = "wrong_base"
    STANDARD_WEBHOOKS = "standard_webhooks"
    BODY_TRAILING_NEWLINE = "body_trailing_newline"
    BODY_REENCODED = "body_reencoded"
    NO_MATCH = "no_match"


_TEXTS: Final = {
    Finding.VERIFIES: "The signature is right and the timestamp inside the window.",
    Finding.HEADERS_MISSING: (
        f"{INSTALL_HEADER}, {TIMESTAMP_HEADER} and {SIGNATURE_HEADER} must all be there."
    ),
    Finding.INSTALL_MALFORMED: f"{INSTALL_HEADER} is not ins_ and 26 upper-case characters.",
    Finding.TIMESTAMP_MALFORMED: f"{TIMESTAMP_HEADER} is not Unix seconds in plain digits.",
    Finding.TIMESTAMP_IN_MILLISECONDS: (
        f"{TIMESTAMP_HEADER} is in milliseconds; it must be in seconds."
    ),
    Finding.SIGNATURE_MALFORMED: (
        f"{SIGNATURE_HEADER} has no part v1= with 64 lower-case hex digits, or over five parts."
    ),
    Finding.SIGNATURE_ENCODING: (
        "The digest is right, but it must be written as v1= and lower-case hex."
    ),
    Finding.CLOCK: (
        f"The signature is right, but the timestamp is over {TIMESTAMP_SKEW_S_MAX} s from now."
    ),
    Finding.KEY_DECODED: (
        "The key was the decoded base64; it must be the whole secret string, whsec_ included."
    ),
    Finding.KEY_WITHOUT_PREFIX: (
        "The key was the secret without whsec_; it must be the whole string."
    ),
    Finding.KEY_WITH_WHITE_SPACE: (
        "The key had white space around it, such as a line's end read from a file."
    ),
    Finding.WRONG_DIRECTION: (
        "It was signed for the other direction: requests sign v1:in:…, deliveries v1:out:…."
    ),
    Finding.WRONG_INSTALL: "It was signed for another install than the one in the header.",
    Finding.WRONG_BASE: "What was signed is not v1:<in|out>:<install>:<timestamp>:<body>.",
    Finding.STANDARD_WEBHOOKS: (
        f"{SIGNATURE_HEADER} holds a Standard Webhooks signature; that one belongs to webhook- "
        "signature, on deliveries only."
    ),
    Finding.BODY_TRAILING_NEWLINE: "The body gained or lost a line's end after it was signed.",
    Finding.BODY_REENCODED: (
        "The body was parsed and written again; the raw bytes must be signed and checked."
    ),
    Finding.NO_MATCH: (
        "Nothing that was tried matches: another secret, or a body changed on its way."
    ),
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found and, when it is the clock, by how much the sender's is ahead."""

    finding: Finding
    skew_s: int | None = None

    @property
    def text(self) -> str:
        """The finding in a sentence or two, for people."""
        if self.finding is Finding.CLOCK and self.skew_s is not None:
            side = "ahead of" if self.skew_s > 0 else "behind"
            return f"{_TEXTS[self.finding]} It is {abs(self.skew_s)} s {side} this clock."
        return _TEXTS[self.finding]


def diagnose(
    headers: Mapping[str, str],
    body: bytes,
    secret: str,
    direction: Direction,
    now_ms: int | None = None,
) -> Diagnosis:
    """Why a request (`in`) or a delivery (`out`) with these headers and raw bytes fails, or that it
    verifies.

    Header names in any case. `secret` is the secret string as it was shown. Without `now_ms` the
    clock is not looked at.
    """
    by_name = {name.lower(): value for name, value in headers.items()}
    install = by_name.get(INSTALL_HEADER.lower())
    timestamp = by_name.get(TIMESTAMP_HEADER.lower())
    signature = by_name.get(SIGNATURE_HEADER.lower())
    if install is None or timestamp is None or signature is None:
        return Diagnosis(Finding.HEADERS_MISSING)
    if not is_install_id(install):
        return Diagnosis(Finding.INSTALL_MALFORMED)
    if parse_headers(install, timestamp, "v1=" + "0" * 64) is None:
        millis = re.fullmatch(r"[1-9][0-9]{12}", timestamp) is not None
        return Diagnosis(
            Finding.TIMESTAMP_IN_MILLISECONDS if millis else Finding.TIMESTAMP_MALFORMED
        )
    parsed = parse_headers(install, timestamp, signature)
    if parsed is None and signature.count(",") >= SIGNATURE_PARTS_MAX:
        return Diagnosis(Finding.SIGNATURE_MALFORMED)

    given = _digests(signature)
    right = hmac.digest(key_of(secret), signing_base(direction, install, timestamp, body), "sha256")
    if right in given:
        if parsed is None or right.hex() not in parsed.candidates:
            return Diagnosis(Finding.SIGNATURE_ENCODING)
        if now_ms is not None and not within_window(timestamp, now_ms):
            return Diagnosis(Finding.CLOCK, skew_s(timestamp, now_ms))
        return Diagnosis(Finding.VERIFIES)
    for finding, key, message in _mistakes(install, timestamp, body, secret, direction):
        if hmac.digest(key, message, "sha256") in given:
            return Diagnosis(finding)
    return Diagnosis(Finding.SIGNATURE_MALFORMED if parsed is None else Finding.NO_MATCH)


def _mistakes(
    install: str, timestamp: str, body: bytes, secret: str, direction: Direction
) -> Iterator[tuple[Finding, bytes, bytes]]:
    """One mistake at a time: what it is called, the key and the message that it would have used."""
    key = key_of(secret)
    base = signing_base(direction, install, timestamp, body)
    other = Direction.OUT if direction is Direction.IN else Direction.IN

    for finding, wrong_key in _wrong_keys(secret):
        yield finding, wrong_key, base
    yield Finding.WRONG_DIRECTION, key, signing_base(other, install, timestamp, body)
    for changed in _newline_changes(body):
        yield (
            Finding.BODY_TRAILING_NEWLINE,
            key,
            signing_base(direction, install, timestamp, changed),
        )
    for changed in _reencodings(body):
        yield Finding.BODY_REENCODED, key, signing_base(direction, install, timestamp, changed)
    for named in dict.fromkeys(_INSTALL_IN_BODY.findall(body)[:_INSTALLS_TRIED]):
        yield (
            Finding.WRONG_INSTALL,
            key,
            signing_base(direction, named.decode("ascii"), timestamp, body),
        )

    keys = [key, *(wrong for _, wrong in _wrong_keys(secret))]
    for tried in keys:
        for message in _wrong_bases(install, timestamp, body, direction):
            yield Finding.WRONG_BASE, tried, message
        for message in _standard_webhooks_bases(install, timestamp, body):
            yield Finding.STANDARD_WEBHOOKS, tried, message


def _wrong_keys(secret: str) -> Iterator[tuple[Finding, bytes]]:
    with suppress(ValueError):
        yield Finding.KEY_DECODED, standard_webhooks_key(secret)
    yield Finding.KEY_WITHOUT_PREFIX, key_of(secret.removeprefix(SECRET_PREFIX))
    yield Finding.KEY_WITH_WHITE_SPACE, key_of(secret.strip())
    for end in ("\n", "\r\n", " "):
        yield Finding.KEY_WITH_WHITE_SPACE, key_of(secret + end)


def _newline_changes(body: bytes) -> Iterator[bytes]:
    yield body + b"\n"
    yield body + b"\r\n"
    yield body.rstrip(b"\r\n")
    yield body.removesuffix(b"\n")


def _reencodings(body: bytes) -> Iterator[bytes]:
    """The same JSON as common libraries write it, and the usual harm to text."""
    yield body.replace(b"\r\n", b"\n")
    yield body.replace(b"\n", b"\r\n")
    yield body.removeprefix(b"\xef\xbb\xbf")
    yield b"\xef\xbb\xbf" + body
    yield b64encode(body)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return
    for separators in ((",", ":"), (", ", ": ")):
        for ensure_ascii in (False, True):
            for sort_keys in (False, True):
                text = json.dumps(
                    value, separators=separators, ensure_ascii=ensure_ascii, sort_keys=sort_keys
                )
                yield text.encode("utf-8", "surrogatepass")
                yield text.replace("/", "\\/").encode("utf-8", "surrogatepass")
    for indent in (2, 4):
        yield json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _wrong_bases(
    install: str, timestamp: str, body: bytes, direction: Direction
) -> Iterator[bytes]:
    for prefix in (
        "",
        f"{timestamp}.",
        f"{timestamp}:",
        f"v0:{timestamp}:",
        f"v1:{timestamp}:",
        f"v1.{timestamp}.",
        f"v1:{install}:{timestamp}:",
        f"v1:{direction.value}:{timestamp}:",
        f"{direction.value}:{install}:{timestamp}:",
        f"v1.{direction.value}.{install}.{timestamp}.",
        f"v1:{direction.value}:{install}:{timestamp}",
    ):
        yield prefix.encode("ascii") + body


def _standard_webhooks_bases(install: str, timestamp: str, body: bytes) -> Iterator[bytes]:
    """`id.timestamp.body`, the id taken from where this message names one."""
    ids = [install]
    with suppress(ValueError, RecursionError):
        value = json.loads(body)
        if isinstance(value, dict):
            ids += [text for text in map(value.get, _ID_KEYS) if isinstance(text, str)]
    for named in ids:
        yield f"{named}.{timestamp}.".encode("utf-8", "surrogatepass") + body
        yield f"out:{install}:{named}.{timestamp}.".encode("utf-8", "surrogatepass") + body


def _digests(signature: str) -> set[bytes]:
    """Every 32 bytes that a part of the header could mean, in hex of either case or in base64."""
    found = set()
    for part in re.split(r"[,\s\"']+", signature):
        text = part.partition("=")[2] if re.match(r"v\d+=", part) else part
        if re.fullmatch(r"[0-9A-Fa-f]{64}", text):
            found.add(bytes.fromhex(text))
        elif re.fullmatch(r"[A-Za-z0-9+/]{43}=", text):
            found.add(b64decode(text))
    return found
