"""Owns `mesh smoke`: whether a deployed gateway answers as the contracts say, from the outside.

Refuses to change what an operator set; with an install and its secret it sends one message.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import click

from mesh.kernel.limits import RAW_BODY_BYTES_MAX, TIMESTAMP_SKEW_S_MAX
from mesh.operator.cli.command import Invocation, common, read_secret
from mesh.operator.cli.failure import REFUSED, CommandError, of_silence
from mesh.operator.cli.third_party import INGRESS_PATH, signed_headers
from mesh.operator.client import Answer, OperatorClient, UnreachableError
from mesh.security import signing

OPAQUE: Final = b'{"error":{"code":"unauthorized","message":"unauthorized"}}'
NOBODY: Final = "ins_00000000000000000000000000"
NO_SECRET: Final = signing.SECRET_PREFIX + "A" * 43 + "="
PASSING: Final = frozenset({"x-request-id", "date", "apigw-requestid"})
"""Headers in which two opaque refusals may differ."""


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation, and whether it held."""

    name: str
    passed: bool
    seen: str


@click.command("smoke")
@click.option("--connector", metavar="ID", help="Also send one message to this install.")
@click.option("--secret-stdin", is_flag=True, help="Read its secret from standard input.")
@common
def smoke(invocation: Invocation, *, connector: str | None, secret_stdin: bool) -> int:
    """Check a gateway from the outside, such as after a deployment."""
    if secret_stdin and connector is None:
        raise CommandError("--secret-stdin needs --connector", exit_code=2)
    secret = read_secret(secret_stdin, "signing secret") if connector is not None else None
    checks: list[Check] = []
    with invocation.client(token=False) as client, invocation.terminal.waiting("checking"):
        try:
            checks += edge(client)
            if connector is not None and secret is not None:
                checks += signed(client, connector, secret)
        except UnreachableError as error:
            raise of_silence(error) from None
    failed = [check for check in checks if not check.passed]
    if invocation.as_json:
        invocation.terminal.document(
            {
                "passed": not failed,
                "checks": [
                    {"name": check.name, "passed": check.passed, "seen": check.seen}
                    for check in checks
                ],
            }
        )
    else:
        invocation.terminal.table(
            ("", "CHECK", "SEEN"),
            [("ok" if c.passed else "failed", c.name, c.seen) for c in checks],
        )
    if failed:
        click.echo(
            f"mesh: {len(failed)} of {len(checks)} checks failed: {failed[0].name}", err=True
        )
    return REFUSED if failed else 0


def edge(client: OperatorClient) -> Iterator[Check]:
    """What anybody may ask, without a secret or a token."""
    healthy = client.send("GET", "/healthz")
    document = healthy.json if isinstance(healthy.json, dict) else {}
    yield _check("healthz says ok", healthy, 200, document.get("status") == "ok")

    body = b"{}"
    bare = client.send(
        "POST", INGRESS_PATH, headers={"Content-Type": "application/json"}, content=body
    )
    yield _check("a request without a signature is refused", bare, 401, bare.body == OPAQUE)
    headers = signed_headers(NO_SECRET, NOBODY, body, int(time.time()))
    unknown = client.send("POST", INGRESS_PATH, headers=headers, content=body)
    same = (unknown.body, _comparable(unknown)) == (bare.body, _comparable(bare))
    yield _check("an unknown install is refused in the same bytes", unknown, 401, same)
    kept = unknown.headers.get("cache-control") == "no-store" and "x-request-id" in unknown.headers
    yield _check("a refusal is not stored, and has an id", unknown, 401, kept)

    large = client.send(
        "POST", INGRESS_PATH, headers=headers, content=b" " * (RAW_BODY_BYTES_MAX + 1)
    )
    yield _check("a body over 256 KiB is refused", large, 413, _code(large) == "body_too_large")
    other = client.send("GET", INGRESS_PATH)
    yield _check("the ingress takes POST alone", other, None, other.status in (404, 405))
    nobody = client.send("GET", "/api/whoami")
    yield _check(
        "the operator API refuses who has no token", nobody, 401, _code(nobody) == "unauthorized"
    )


def signed(client: OperatorClient, install_id: str, secret: str) -> Iterator[Check]:
    """What a third party may, and what a forger may not."""
    mark = f"smoke-{uuid.uuid4()}"
    payload = {
        "message_id": mark,
        "conversation_key": "mesh-smoke",
        "actor_id": "mesh-smoke",
        "body": "A message of mesh smoke.",
        "topology": "channel",
    }
    body = json.dumps(payload).encode()
    now = int(time.time())

    def post(headers: dict[str, str], content: bytes = body) -> Answer:
        return client.send("POST", INGRESS_PATH, headers=headers, content=content)

    forged = post(signed_headers(NO_SECRET, install_id, body, now))
    yield _check("another secret is refused", forged, 401, forged.body == OPAQUE)
    old = post(signed_headers(secret, install_id, body, now - TIMESTAMP_SKEW_S_MAX - 60))
    yield _check("a signature of six minutes ago is refused", old, 401, old.body == OPAQUE)
    timestamp = str(now)
    outward = signing.sign_outbound([secret], install_id, "out_x", timestamp, body)
    turned = {"Content-Type": "application/json", **outward}
    yield _check("a delivery's signature is refused", post(turned), 401, True)
    accepted = post(signed_headers(secret, install_id, body, int(time.time())))
    yield _check("a signed message is accepted", accepted, 202, _status(accepted) == "accepted")
    again = post(signed_headers(secret, install_id, body, int(time.time())))
    yield _check("the same message again runs nothing", again, 200, _status(again) == "duplicate")
    changed = json.dumps({**payload, "body": "Other words."}).encode()
    conflict = post(signed_headers(secret, install_id, changed, int(time.time())), changed)
    yield _check(
        "other words under the same id are refused",
        conflict,
        409,
        _code(conflict) == "idempotency_conflict",
    )


def _check(name: str, answer: Answer, status: int | None, holds: bool) -> Check:
    seen = f"{answer.status} {_code(answer) or _status(answer)}".strip()
    return Check(name, holds and status in (None, answer.status), seen)


def _comparable(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in PASSING}


def _code(answer: Answer) -> str:
    error = answer.json.get("error") if isinstance(answer.json, dict) else None
    return str(error.get("code", "")) if isinstance(error, dict) else ""


def _status(answer: Answer) -> str:
    return str(answer.json.get("status", "")) if isinstance(answer.json, dict) else ""
