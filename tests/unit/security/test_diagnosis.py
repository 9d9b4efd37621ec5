"""Each mistake that integrators make is named; the texts never hold a secret or a signature."""

from __future__ import annotations

import base64
import hmac
import json

import pytest

from mesh.security import signing
from mesh.security.diagnosis import Finding, diagnose
from mesh.security.signing import Direction

INSTALL = "ins_01JDXW5Y9ZK3V7Q2M8N4P6R0ST"
OTHER = "ins_01JDXW5Y9ZK3V7Q2M8N4P6R0SV"
OUTBOUND = "out_01JDXW5Y9ZK3V7Q2M8N4P6R0SW"
SECRET = "whsec_JwGO+mwA4P7CTWY+ERn5oXxoeApE2OJvPNTbXQjHG7s="
STAMP = "1764480000"
NOW_MS = 1764480000_000
BODY = '{"message_id":"m-1","body":"naïve / 用户"}'.encode()


def mac(key: bytes | str, message: bytes) -> str:
    return "v1=" + hmac.digest(signing.key_of(key), message, "sha256").hex()


def base(body: bytes = BODY, install: str = INSTALL, direction: str = "in") -> bytes:
    return f"v1:{direction}:{install}:{STAMP}:".encode() + body


def found(
    signature: str | None,
    *,
    body: bytes = BODY,
    install: str = INSTALL,
    stamp: str = STAMP,
    direction: Direction = Direction.IN,
    now_ms: int | None = NOW_MS,
) -> Finding:
    headers = {"x-mesh-install": install, "X-MESH-Timestamp": stamp}
    if signature is not None:
        headers["X-Mesh-Signature"] = signature
    diagnosis = diagnose(headers, body, SECRET, direction, now_ms)
    assert SECRET not in diagnosis.text
    assert (signature or "v1=") not in diagnosis.text.replace("v1= ", "")
    return diagnosis.finding


GOOD = mac(SECRET, base())


@pytest.mark.parametrize(
    ("signature", "finding"),
    [
        (GOOD, Finding.VERIFIES),
        (None, Finding.HEADERS_MISSING),
        ("", Finding.SIGNATURE_MALFORMED),
        (",".join([GOOD] * 6), Finding.SIGNATURE_MALFORMED),
        (GOOD.upper().replace("V1", "v1"), Finding.SIGNATURE_ENCODING),
        (GOOD.removeprefix("v1="), Finding.SIGNATURE_ENCODING),
        (f'"{GOOD}"', Finding.SIGNATURE_ENCODING),
        (base64.b64encode(bytes.fromhex(GOOD[3:])).decode(), Finding.SIGNATURE_ENCODING),
        (mac(signing.standard_webhooks_key(SECRET), base()), Finding.KEY_DECODED),
        (mac(SECRET.removeprefix("whsec_"), base()), Finding.KEY_WITHOUT_PREFIX),
        (mac(SECRET + "\n", base()), Finding.KEY_WITH_WHITE_SPACE),
        (mac(SECRET, base(direction="out")), Finding.WRONG_DIRECTION),
        (mac(SECRET, base(BODY + b"\n")), Finding.BODY_TRAILING_NEWLINE),
        (mac(SECRET, base(json.dumps(json.loads(BODY)).encode())), Finding.BODY_REENCODED),
        (mac(SECRET, BODY), Finding.WRONG_BASE),
        (mac(SECRET, f"{STAMP}.".encode() + BODY), Finding.WRONG_BASE),
        (mac("another secret", base()), Finding.NO_MATCH),
        ("v0=abc", Finding.SIGNATURE_MALFORMED),
        (
            signing.standard_webhooks_signature(SECRET, "m-1", STAMP, BODY),
            Finding.STANDARD_WEBHOOKS,
        ),
    ],
)
def test_a_mistake_is_named(signature: str | None, finding: Finding) -> None:
    assert found(signature) is finding


def test_a_body_that_gained_a_line_end_on_its_way_is_named() -> None:
    assert found(GOOD, body=BODY + b"\r\n") is Finding.BODY_TRAILING_NEWLINE


def test_another_installs_signature_is_named_when_the_body_tells_the_install() -> None:
    body = json.dumps({"install_id": OTHER}).encode()
    signature = mac(SECRET, base(body, install=OTHER, direction="out"))
    assert found(signature, body=body, direction=Direction.OUT) is Finding.WRONG_INSTALL


@pytest.mark.parametrize(
    ("stamp", "finding"),
    [
        ("1764480000000", Finding.TIMESTAMP_IN_MILLISECONDS),
        ("1764480000.0", Finding.TIMESTAMP_MALFORMED),
        ("+1764480000", Finding.TIMESTAMP_MALFORMED),
    ],
)
def test_a_timestamp_that_is_none_is_named(stamp: str, finding: Finding) -> None:
    assert found(GOOD, stamp=stamp) is finding


def test_an_install_that_is_none_is_named() -> None:
    assert found(GOOD, install=INSTALL.lower()) is Finding.INSTALL_MALFORMED


def test_the_clock_is_named_with_its_side_and_only_when_all_else_is_right() -> None:
    headers = {"X-Mesh-Install": INSTALL, "X-Mesh-Timestamp": STAMP, "X-Mesh-Signature": GOOD}
    late = diagnose(headers, BODY, SECRET, Direction.IN, NOW_MS + 400_000)
    assert late.finding is Finding.CLOCK
    assert late.skew_s == -400
    assert "400 s behind" in late.text
    early = diagnose(headers, BODY, SECRET, Direction.IN, NOW_MS - 400_000)
    assert "400 s ahead of" in early.text
    assert found(mac("another", base()), now_ms=NOW_MS + 400_000) is Finding.NO_MATCH
    assert found(GOOD, now_ms=None) is Finding.VERIFIES


def test_a_delivery_verifies_as_one() -> None:
    sent = signing.sign_outbound([SECRET], INSTALL, OUTBOUND, STAMP, BODY)
    assert diagnose(sent, BODY, SECRET, Direction.OUT, NOW_MS).finding is Finding.VERIFIES
    assert diagnose(sent, BODY, SECRET, Direction.IN, NOW_MS).finding is Finding.WRONG_DIRECTION


def test_a_body_that_is_not_json_is_no_obstacle() -> None:
    assert found(mac("another", base(b"\xff[")), body=b"\xff[") is Finding.NO_MATCH
    assert found(mac("another", base()), body=b"[" * 100_000) is Finding.NO_MATCH


def test_every_finding_has_a_text() -> None:
    from mesh.security.diagnosis import _TEXTS

    assert set(_TEXTS) == set(Finding)
