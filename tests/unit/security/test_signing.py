"""Signatures, held against worked values of an independent implementation and other people's."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.signature import Clock as SlackClock, SignatureVerifier
from standardwebhooks.webhooks import Webhook

from mesh.security import signing
from mesh.security.signing import Direction

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "signing.json").read_text("utf-8"))
INSTALL = "ins_01JDXW5Y9ZK3V7Q2M8N4P6R0ST"
OUTBOUND = "out_01JDXW5Y9ZK3V7Q2M8N4P6R0SW"
SECRET = "whsec_JwGO+mwA4P7CTWY+ERn5oXxoeApE2OJvPNTbXQjHG7s="
PREVIOUS = "whsec_nbbv7oGuTNBcJlLqVhuDtrGu3I93neB2iC4V0tH732U="
TIMESTAMP = "1764480000"
BODY = b'{"message_id":"m-1"}'


def named(case: dict[str, Any]) -> str:
    return f"{case['name']} {case.get('direction', '')}".strip()


@pytest.mark.behaviour(
    "signing:hmac-sha256", "signing:covers", "signing:direction-tag", "signing:install-binding"
)
@pytest.mark.parametrize("case", VECTORS["signatures"], ids=named)
def test_a_signature_is_the_worked_one(case: dict[str, Any]) -> None:
    body = base64.b64decode(case["body_base64"])
    parts = (case["secret"], case["install_id"], case["timestamp"])
    if case["direction"] == "in":
        signature = signing.sign_inbound(*parts, body)
    else:
        secret, install, timestamp = parts
        headers = signing.sign_outbound([secret], install, OUTBOUND, timestamp, body)
        signature = headers["X-Mesh-Signature"]
    assert signature == case["signature"]


@pytest.mark.behaviour(
    "signing:signature-header",
    "signing:timestamp-header",
    "signing:install-header",
    "signing:replay-window",
    "signing:no-reflection",
)
@pytest.mark.parametrize("case", VECTORS["verification"], ids=named)
def test_a_request_verifies_exactly_when_the_worked_case_says_so(case: dict[str, Any]) -> None:
    secrets = [case["secret"], *filter(None, [case["previous_secret"]])]
    headers = signing.parse_headers(case["install_id"], case["timestamp"], case["signature"])
    verifies = (
        headers is not None
        and signing.verify_inbound(headers, base64.b64decode(case["body_base64"]), secrets)
        is not None
        and signing.within_window(headers.timestamp, case["now"] * 1000 + 999)
    )
    assert verifies is case["verifies"], case["why"]


@pytest.mark.behaviour("signing:outbound-same-secret")
@pytest.mark.parametrize("case", VECTORS["deliveries"], ids=named)
def test_a_delivery_has_the_worked_headers(case: dict[str, Any]) -> None:
    worked = case["headers"]
    headers = signing.sign_outbound(
        case["secrets_current_first"],
        worked["X-Mesh-Install"],
        worked["X-Mesh-Outbound-Id"],
        worked["X-Mesh-Timestamp"],
        base64.b64decode(case["body_base64"]),
    )
    assert headers == worked


@pytest.mark.parametrize(
    ("install", "timestamp", "signature"),
    [
        (None, TIMESTAMP, "v1=" + "0" * 64),
        (INSTALL, None, "v1=" + "0" * 64),
        (INSTALL, TIMESTAMP, None),
        (INSTALL + "\n", TIMESTAMP, "v1=" + "0" * 64),
        (INSTALL, TIMESTAMP + "\n", "v1=" + "0" * 64),
        (INSTALL, "", "v1=" + "0" * 64),
        (INSTALL, TIMESTAMP, "v1=" + "0" * 64 + "\n"),
        (" " + INSTALL, TIMESTAMP, "v1=" + "0" * 64),
    ],
)
def test_a_missing_header_or_a_stray_line_end_is_malformed(
    install: str | None, timestamp: str | None, signature: str | None
) -> None:
    assert signing.parse_headers(install, timestamp, signature) is None


def test_the_secret_that_matches_is_told_by_its_index() -> None:
    signature = signing.sign_inbound(PREVIOUS, INSTALL, TIMESTAMP, BODY)
    headers = signing.parse_headers(INSTALL, TIMESTAMP, signature)
    assert headers is not None
    assert signing.verify_inbound(headers, BODY, [SECRET, PREVIOUS]) == 1
    assert signing.verify_inbound(headers, BODY, [PREVIOUS.encode(), SECRET.encode()]) == 0
    assert signing.verify_inbound(headers, BODY, [SECRET]) is None


def test_an_install_that_is_not_known_verifies_nothing_not_even_under_the_stand_in_keys() -> None:
    for dummy in signing._DUMMIES:
        signature = signing.sign_inbound(dummy, INSTALL, TIMESTAMP, BODY)
        headers = signing.parse_headers(INSTALL, TIMESTAMP, signature)
        assert headers is not None
        assert signing.verify_inbound(headers, BODY, []) is None
        assert signing.verify_inbound(headers, BODY, [SECRET]) is None


@pytest.mark.behaviour("signing:constant-time")
@pytest.mark.parametrize("secrets", [[], [SECRET], [SECRET, PREVIOUS]], ids=len)
def test_hit_miss_and_mismatch_do_the_same_work(
    secrets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[str, str]] = []

    class Counting:
        digest = staticmethod(hmac.digest)

        @staticmethod
        def compare_digest(left: str, right: str) -> bool:
            compared.append((left, right))
            return hmac.compare_digest(left, right)

    monkeypatch.setattr(signing, "hmac", Counting)
    good = signing.sign_inbound(SECRET, INSTALL, TIMESTAMP, BODY)
    headers = signing.parse_headers(INSTALL, TIMESTAMP, f"{good},v1={'0' * 64},{good}")
    assert headers is not None
    signing.verify_inbound(headers, BODY, secrets)
    assert len(compared) == 2 * 3


@pytest.mark.parametrize(
    ("now_s", "skew"), [(1764480000, 0), (1764480010, -10), (1764479990, 10)], ids=str
)
def test_skew_is_positive_when_the_sender_is_ahead(now_s: int, skew: int) -> None:
    assert signing.skew_s(TIMESTAMP, now_s * 1000 + 999) == skew


@pytest.mark.behaviour("signing:replay-window")
def test_the_window_counts_whole_seconds() -> None:
    assert signing.within_window(TIMESTAMP, 1764480300_999)
    assert not signing.within_window(TIMESTAMP, 1764480301_000)
    assert signing.within_window(TIMESTAMP, 1764479700_000)
    assert not signing.within_window(TIMESTAMP, 1764479699_999)


def test_a_minted_secret_is_the_prefix_and_32_random_bytes() -> None:
    class Fixed:
        def bytes(self, count: int) -> bytes:
            return bytes(range(count))

        def uniform(self, low: float, high: float) -> float:
            return low

    secret = signing.mint_secret(Fixed())
    assert secret.startswith("whsec_")
    assert signing.standard_webhooks_key(secret) == bytes(range(32))


@pytest.mark.behaviour("signing:no-reflection")
def test_an_outbound_signature_never_verifies_inbound() -> None:
    sent = signing.sign_outbound([SECRET], INSTALL, OUTBOUND, TIMESTAMP, BODY)
    digest = base64.b64decode(sent["webhook-signature"].removeprefix("v1,")).hex()
    for signature in (sent["X-Mesh-Signature"], f"v1={digest}"):
        headers = signing.parse_headers(INSTALL, TIMESTAMP, signature)
        assert headers is not None
        assert signing.verify_inbound(headers, BODY, [SECRET]) is None


@pytest.mark.behaviour("signing:outbound-same-secret")
def test_a_receiver_verifies_a_delivery_with_either_secret_while_they_overlap() -> None:
    sent = signing.sign_outbound([SECRET, PREVIOUS], INSTALL, OUTBOUND, TIMESTAMP, BODY)
    headers = signing.parse_headers(INSTALL, TIMESTAMP, sent["X-Mesh-Signature"])
    assert headers is not None
    assert signing.verify_outbound(headers, BODY, [SECRET])
    assert signing.verify_outbound(headers, BODY, [PREVIOUS])
    assert not signing.verify_outbound(headers, BODY + b"\n", [SECRET, PREVIOUS])


def test_a_delivery_without_a_secret_is_a_bug() -> None:
    with pytest.raises(ValueError, match="at least one secret"):
        signing.sign_outbound([], INSTALL, OUTBOUND, TIMESTAMP, BODY)


@pytest.mark.parametrize("secret", [SECRET, PREVIOUS])
def test_the_standard_webhooks_library_verifies_a_delivery(secret: str) -> None:
    now = str(int(dt.datetime.now(dt.UTC).timestamp()))  # the library's own clock
    sent = signing.sign_outbound([SECRET, PREVIOUS], INSTALL, OUTBOUND, now, BODY)
    headers = {name: value for name, value in sent.items() if name.startswith("webhook-")}
    assert Webhook(secret).verify(BODY, headers) == {"message_id": "m-1"}


def test_slacks_verifier_agrees_on_the_digest() -> None:
    # Slack signs `v0:timestamp:body`: with our prefix and install in front of the body, and its
    # own version, its verifier must find the digest that our primitives make.
    class Now(SlackClock):
        def now(self) -> float:
            return float(TIMESTAMP)

    body = f"in:{INSTALL}:".encode() + BODY
    digest = hmac.digest(signing.key_of(SECRET), f"v0:{TIMESTAMP}:".encode() + body, "sha256")
    verifier = SignatureVerifier(SECRET, clock=Now())
    assert verifier.is_valid(body.decode(), TIMESTAMP, "v0=" + digest.hex())


@pytest.mark.behaviour("signing:hmac-sha256")
def test_openssl_makes_the_same_digest() -> None:
    assert shutil.which("openssl"), "openssl is not installed; it is the oracle here"
    base = signing.signing_base(Direction.IN, INSTALL, TIMESTAMP, BODY)
    command = ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt"]
    done = subprocess.run(
        [*command, "hexkey:" + SECRET.encode().hex()], input=base, capture_output=True, check=True
    )
    digest = done.stdout.decode().split("= ")[1].strip()
    assert "v1=" + digest == signing.sign_inbound(SECRET, INSTALL, TIMESTAMP, BODY)


def test_the_digest_is_the_one_of_rfc_2104_spelt_out() -> None:
    key = SECRET.encode().ljust(64, b"\0")
    base = f"v1:in:{INSTALL}:{TIMESTAMP}:".encode() + BODY
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key) + base).digest()
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in key) + inner).hexdigest()
    assert signing.sign_inbound(SECRET, INSTALL, TIMESTAMP, BODY) == "v1=" + outer


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, mesh.security.signing; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"ssl", "socket", "h11", "idna", "cryptography", "pydantic", "botocore"}
