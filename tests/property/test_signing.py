"""Whatever is signed, one changed bit of it does not verify, nor does it the other way round."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, strategies as st

from mesh.kernel.ids import CROCKFORD
from mesh.security import signing

SECRETS = st.binary(min_size=32, max_size=32).map(
    lambda raw: "whsec_" + base64.b64encode(raw).decode()
)
INSTALLS = st.text(CROCKFORD, min_size=26, max_size=26).map(lambda text: "ins_" + text)
STAMPS = st.integers(1, 10**12 - 1).map(str)
BODIES = st.binary(max_size=200)


def verifies(secret: str, install: str, stamp: str, signature: str, body: bytes) -> bool:
    headers = signing.parse_headers(install, stamp, signature)
    return headers is not None and signing.verify_inbound(headers, body, [secret]) is not None


def flipped(data: bytes, bit: int) -> bytes:
    index = bit // 8 % len(data)
    return data[:index] + bytes([data[index] ^ 1 << bit % 8]) + data[index + 1 :]


@given(SECRETS, INSTALLS, STAMPS, BODIES)
def test_what_is_signed_verifies(secret: str, install: str, stamp: str, body: bytes) -> None:
    signature = signing.sign_inbound(secret, install, stamp, body)
    assert verifies(secret, install, stamp, signature, body)


@pytest.mark.behaviour("signing:covers", "signing:install-binding")
@given(SECRETS, INSTALLS, STAMPS, BODIES.filter(bool), st.integers(0, 10_000))
def test_no_flipped_bit_verifies(
    secret: str, install: str, stamp: str, body: bytes, bit: int
) -> None:
    signature = signing.sign_inbound(secret, install, stamp, body)
    assert not verifies(secret, install, stamp, signature, flipped(body, bit))
    for index, value in enumerate((install, stamp, signature)):
        parts = [install, stamp, signature]
        parts[index] = flipped(value.encode(), bit).decode("latin-1")
        assert not verifies(secret, *parts, body)
    other = "whsec_" + base64.b64encode(flipped(base64.b64decode(secret[6:]), bit)).decode()
    assert not verifies(other, install, stamp, signature, body)


@given(SECRETS, INSTALLS, STAMPS, BODIES)
def test_a_byte_moved_from_the_time_into_the_body_does_not_verify(
    secret: str, install: str, stamp: str, body: bytes
) -> None:
    signature = signing.sign_inbound(secret, install, stamp, body)
    for cut in range(1, len(stamp)):
        moved = stamp[cut:].encode() + b":" + body
        assert not verifies(secret, install, stamp[:cut], signature, moved)


@pytest.mark.behaviour("signing:no-reflection")
@given(SECRETS, INSTALLS, STAMPS, BODIES)
def test_no_delivery_passes_as_a_request(
    secret: str, install: str, stamp: str, body: bytes
) -> None:
    sent = signing.sign_outbound([secret], install, "out_" + install[4:], stamp, body)
    digest = base64.b64decode(sent["webhook-signature"].removeprefix("v1,")).hex()
    for signature in (sent["X-Mesh-Signature"], "v1=" + digest, sent["webhook-signature"]):
        assert not verifies(secret, install, stamp, signature, body)


@given(st.text(max_size=60), st.text(max_size=20), st.text(max_size=400))
def test_no_header_crashes_the_reading(install: str, stamp: str, signature: str) -> None:
    headers = signing.parse_headers(install, stamp, signature)
    assert headers is None or 1 <= len(headers.candidates) <= 5
