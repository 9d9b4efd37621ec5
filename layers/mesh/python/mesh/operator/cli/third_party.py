"""Owns the third party's side: `mesh send` signs and posts, `mesh verify` says why one fails.

Refuses a secret as an argument; it is read from standard input or a prompt, and never printed.
"""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any, Final

import click

from mesh.operator.cli.command import Invocation, common, read_secret
from mesh.operator.cli.failure import LATER, REFUSED, CommandError, of_silence
from mesh.operator.cli.reading import bytes_of
from mesh.operator.cli.terminal import clean
from mesh.operator.client import Answer, OperatorClient, UnreachableError, checked_url
from mesh.security import signing
from mesh.security.diagnosis import Finding, diagnose

INGRESS_PATH: Final = "/generic/events"


def signed_headers(secret: str, install_id: str, body: bytes, now_s: int) -> dict[str, str]:
    """The headers of one utterance, as any third party makes them."""
    timestamp = str(now_s)
    return {
        "Content-Type": "application/json",
        signing.INSTALL_HEADER: install_id,
        signing.TIMESTAMP_HEADER: timestamp,
        signing.SIGNATURE_HEADER: signing.sign_inbound(secret, install_id, timestamp, body),
    }


@click.command("send")
@click.argument("text")
@click.option("--connector", required=True, metavar="ID", help="The install to post to.")
@click.option("--secret-stdin", is_flag=True, help="Read the secret from standard input.")
@click.option("--conversation", default="cli", show_default=True, metavar="K")
@click.option("--actor", default="operator", show_default=True, metavar="A")
@click.option("--topology", type=click.Choice(("direct", "group", "channel")))
@click.option("--message-id", metavar="ID", help="Else a fresh one; the same one is a retry.")
@click.option("--parent", metavar="ID", help="The message that this one answers.")
@click.option("--ingress-url", metavar="URL", help="Else the gateway's own.")
@common
def send(
    invocation: Invocation,
    *,
    text: str,
    connector: str,
    secret_stdin: bool,
    conversation: str,
    actor: str,
    topology: str | None,
    message_id: str | None,
    parent: str | None,
    ingress_url: str | None,
) -> int:
    """Play the third party: sign TEXT as an utterance and post it."""
    payload: dict[str, Any] = {
        "message_id": message_id or f"cli-{uuid.uuid4()}",
        "conversation_key": conversation,
        "actor_id": actor,
        "body": text,
    }
    if topology is not None:
        payload["topology"] = topology
    if parent is not None:
        payload["parent_id"] = parent
    secret = read_secret(secret_stdin, "signing secret")
    body = json.dumps(payload, ensure_ascii=False).encode("utf-8", "surrogatepass")
    headers = signed_headers(secret, connector, body, int(time.time()))
    answer = post(invocation, ingress_url, headers, body)
    return report(invocation, answer, payload["message_id"], connector, conversation)


def post(
    invocation: Invocation, ingress_url: str | None, headers: dict[str, str], body: bytes
) -> Answer:
    """Posts to the ingress, without any operator token. Raises CommandError."""
    url = ingress_url or invocation.target().url + INGRESS_PATH
    base = checked_url(url)
    client = OperatorClient(base, None, transport=invocation.transport)
    try:
        return client.send("POST", "", headers=headers, content=body)
    except UnreachableError as error:
        raise of_silence(error) from None
    finally:
        client.close()


def report(
    invocation: Invocation, answer: Answer, message_id: str, connector: str, conversation: str
) -> int:
    """Tells what came back; the exit code says whether to try again."""
    document = answer.json if isinstance(answer.json, dict) else {}
    if invocation.as_json:
        invocation.terminal.document(
            {"http_status": answer.status, "message_id": message_id, "response": answer.json}
        )
    if answer.status in (200, 202) and document.get("status") in ("accepted", "duplicate"):
        engagement = document.get("engagement") or {}
        if not invocation.as_json:
            invocation.terminal.fields(
                [
                    ("status", document.get("status")),
                    ("id", document.get("id")),
                    ("message id", message_id),
                    ("verdict", engagement.get("verdict")),
                    ("reason", engagement.get("reason")),
                    ("run", document.get("run_id")),
                ]
            )
            invocation.terminal.say(f"\nnext: mesh explain {document.get('id')}")
        return 0
    error = document.get("error")
    error = error if isinstance(error, dict) else {}
    code = clean(error.get("code") or document.get("message") or "no code")
    hint = ""
    if answer.status == 401:
        hint = "; check install, secret and clock: mesh verify"
    elif answer.status == 403 and code == "connector_disabled":
        hint = f"; it is closed or deleted; see: mesh connector show {connector}"
    elif answer.status in (429, 502, 503, 504):
        hint = f"; send it again later with --message-id {message_id}"
    elif answer.status < 300:
        hint = "; that is no answer of Mesh: is the URL right?"
    elif answer.status == 409:
        where = f"--connector {connector} --conversation {conversation}"
        hint = f"; see: mesh explain {where} {message_id}"
    fields = error.get("fields")
    problems = "; ".join(
        f"{clean(field.get('path'))}: {clean(field.get('problem'))}"
        for field in (fields if isinstance(fields, list) else ())
        if isinstance(field, dict)
    )
    detail = f" ({problems})" if problems else ""
    click.echo(f"mesh: {answer.status} {code}{detail}{hint}", err=True)
    return LATER if answer.status in (429, 502, 503, 504) else REFUSED


@click.command("verify")
@click.option("--secret-stdin", is_flag=True, help="Read the secret from standard input.")
@click.option(
    "--headers",
    "headers_file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The headers as they came: `Name: value` lines, or a JSON object.",
)
@click.option(
    "--body",
    "body_file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The raw body, byte for byte.",
)
@click.option(
    "--direction",
    type=click.Choice(("in", "out")),
    help="in: a request to Mesh; out: a delivery from it. Else told by the headers.",
)
@click.option(
    "--at", "at_s", type=int, metavar="SECONDS", help="Judge the clock at this Unix time."
)
@click.option("--no-clock", is_flag=True, help="Do not judge the timestamp's age.")
@common
def verify(
    invocation: Invocation,
    *,
    secret_stdin: bool,
    headers_file: Path,
    body_file: Path,
    direction: str | None,
    at_s: int | None,
    no_clock: bool,
) -> int:
    """Check a request or a delivery that was received or refused, and say why it fails."""
    headers = read_headers(_read(headers_file, "--headers"))
    body = _read(body_file, "--body")
    secret = read_secret(secret_stdin, "signing secret")
    names = {name.lower() for name in headers}
    way = direction or ("out" if names & {"x-mesh-outbound-id", "webhook-id"} else "in")
    now_ms = None if no_clock else 1000 * (int(time.time()) if at_s is None else at_s)
    found = diagnose(headers, body, secret, signing.Direction(way), now_ms)
    good = found.finding is Finding.VERIFIES
    if invocation.as_json:
        invocation.terminal.document(
            {
                "verifies": good,
                "finding": str(found.finding),
                "text": found.text,
                "direction": way,
                "skew_s": found.skew_s,
            }
        )
    elif good:
        what = "a delivery from Mesh" if way == "out" else "a request to Mesh"
        invocation.terminal.say(f"verifies as {what}: {found.text}")
    if not good:
        click.echo(f"mesh: {found.finding}: {found.text}", err=True)
    return 0 if good else REFUSED


def read_headers(raw: bytes) -> dict[str, str]:
    """Headers from `Name: value` lines or a JSON object. Repeated ones are joined by commas."""
    text = raw.decode("utf-8", "replace").lstrip("\ufeff")
    if text.lstrip().startswith("{"):
        try:
            document = json.loads(text)
        except ValueError:
            raise CommandError(
                "--headers is neither lines nor a JSON object", exit_code=2
            ) from None
        return {
            str(name): ",".join(map(str, value)) if isinstance(value, list) else str(value)
            for name, value in document.items()
        }
    headers: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        # curl -v marks what it sent and what came; a request or status line has no such name.
        name, value = name.strip().removeprefix(">").removeprefix("<").strip(), value.strip()
        if colon and name and " " not in name:
            known = next((each for each in headers if each.lower() == name.lower()), None)
            if known is None:
                headers[name] = value
            else:
                headers[known] = f"{headers[known]},{value}"
    return headers


def _read(path: Path, option: str) -> bytes:
    try:
        return bytes_of(path)
    except OSError:
        raise CommandError(f"{option} {path} cannot be read", exit_code=2) from None
