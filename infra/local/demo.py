"""Owns `make demo`: one message's whole story, played here in process and told readably.

Refuses to pretend: everything goes over real sockets and through the deployed builders; what does
not come out as told ends it with a message and a failure.
"""

from __future__ import annotations

import json
import sys
import textwrap
import time
from typing import Final

import click
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from infra.local.command import compose
from infra.local.receiver import WAIT_S, Delivery, NothingCameError, Receiver
from mesh.operator.cli.command import Invocation
from mesh.operator.cli.happened import tell
from mesh.operator.cli.terminal import WIDTH, clean, when
from mesh.operator.cli.third_party import INGRESS_PATH, signed_headers
from mesh.operator.client import ApiError, Json, OperatorClient, UnreachableError
from mesh.security import signing

QUESTION: Final = "Hello Ada, are you there?"


class DemoError(Exception):
    """A part of the demonstration did not come out as it must."""


def main() -> int:
    """Plays the story; 0 when every part came out as told."""
    started = time.monotonic()
    receiver = Receiver()
    running = compose(0, [receiver.pair], level="ERROR")
    try:
        token = running.stack.bootstrap("demo")
        running.start()
        client = OperatorClient(running.stack.base_url, token)
        try:
            play(client, receiver)
        finally:
            client.close()
    except (DemoError, NothingCameError) as error:
        return _failed(str(error))
    except ApiError as error:
        return _failed(f"the operator API answered {error.status}: {error.message}")
    except UnreachableError as error:
        return _failed(str(error))
    finally:
        running.stop()
        receiver.close()
    click.echo(f"\nEvery part came out as told, in {time.monotonic() - started:.1f} s.")
    return 0


def play(client: OperatorClient, receiver: Receiver) -> None:
    """The story, from an agent's creation to its verified reply."""
    _title("1. An agent, with one generic install")
    made = prepare(client, receiver)
    install_id, secret = made["install_id"], made["secret"]

    _title("2. A third party signs an utterance and posts it")
    accepted = post_utterance(client, install_id, secret)

    _title("3. The agent's reply arrives, signed")
    delivery = receiver.wait_for("message.reply")
    check_reply(delivery, accepted, install_id, secret)

    _title("4. The whole story, as `mesh explain` tells it")
    tell_story(client, accepted)


def prepare(client: OperatorClient, receiver: Receiver) -> Json:
    """Creates agent and install, shows the secret's birth, enables with a signed ping."""
    agent = client.call(
        "POST",
        "/api/agents",
        body={"slug": "ada", "name": "Ada", "instructions": "Be brief."},
        idempotency_key="demo-agent",
    )
    _fields(("agent", f"{agent['slug']} (@{agent['handle']}), model {agent['model']['kind']}"))
    made = client.call(
        "POST",
        "/api/agents/ada/connectors",
        body={"kind": "generic", "name": "demo", "delivery_url": receiver.url},
        idempotency_key="demo-install",
    )
    _fields(
        ("install", made["install_id"]),
        ("post to", made["ingress_url"]),
        ("secret", "whsec_… (shown once to the operator; not here)"),
    )
    reached = client.call("POST", f"/api/connectors/{made['install_id']}/enable")
    if reached["state"] != "enabled":
        raise DemoError(f"enabling ended in {reached['state']}: {reached.get('state_reason')}")
    ping = receiver.wait_for("ping")
    _require(_ours(ping, made["secret"]), "the ping's signature verifies")
    _fields(("enabled", "after a signed ping, which the receiver verified"))
    return made


def post_utterance(client: OperatorClient, install_id: str, secret: str) -> Json:
    """Signs and posts one utterance; the gateway's answer."""
    payload = {
        "message_id": "demo-1",
        "conversation_key": "demo-room",
        "actor_id": "grace",
        "body": QUESTION,
    }
    body = json.dumps(payload).encode()
    headers = signed_headers(secret, install_id, body, int(time.time()))
    timestamp = headers[signing.TIMESTAMP_HEADER]
    _fields(
        ("signed", f"v1:in:{install_id}:{timestamp}:<body>"),
        ("body", body.decode()),
        ("key", "the secret's bytes, exactly as shown"),
        ("signature", headers[signing.SIGNATURE_HEADER][:19] + "…"),
    )
    public = OperatorClient(client.url, None)
    try:
        answer = public.send("POST", INGRESS_PATH, headers=headers, content=body)
        forged = {**headers, signing.SIGNATURE_HEADER: "v1=" + "0" * 64}
        refused = public.send("POST", INGRESS_PATH, headers=forged, content=body)
    finally:
        public.close()
    _require(answer.status == 202, f"the utterance is accepted (it got {answer.status})")
    _require(refused.status == 401, f"a forged one is not (it got {refused.status})")
    accepted = answer.json
    engagement = accepted["engagement"]
    _fields(
        ("answer", f"202 {accepted['status']}, {accepted['id']}"),
        ("verdict", f"{engagement['verdict']}, because {engagement['reason']}"),
        ("run", accepted["run_id"]),
        ("forged", "401, the same bytes for every cause"),
    )
    return accepted


def check_reply(delivery: Delivery, accepted: Json, install_id: str, secret: str) -> None:
    """Verifies a reply as a third party does: both families of signatures, then what it says."""
    reply, headers = delivery.document, delivery.headers
    _require(_ours(delivery, secret), "the reply's X-Mesh-Signature verifies")
    try:
        Webhook(secret).verify(delivery.body, dict(headers))
    except WebhookVerificationError:
        raise DemoError("the Standard Webhooks signature does not verify") from None
    _require(reply["install_id"] == install_id, "the reply is this install's")
    _require(reply["in_reply_to"] == "demo-1", "the reply answers the utterance")
    _require(reply["run_id"] == accepted["run_id"], "the reply is the run's")
    _require(reply["sequence"] == 1, "it is the conversation's first")
    _fields(
        ("signed", f"v1:out:{install_id}:{headers['x-mesh-timestamp']}:<body>"),
        ("verified", "X-Mesh-Signature, and webhook-signature by the standardwebhooks package"),
        ("delivery", f"{reply['outbound_id']}, attempt {headers['x-mesh-attempt']}"),
        ("in order", f"epoch {reply['epoch']}, sequence {reply['sequence']}"),
        ("reply", reply["body"]),
    )


def tell_story(client: OperatorClient, accepted: Json) -> None:
    """The run's steps, the entry's attempts, and the explanation of it all."""
    run = _settled(client, f"/api/runs/{accepted['run_id']}", "status", "completed")
    for step in run["steps"]:
        line = f"{step['kind']} step {step['status']}"
        _fields(("run", f"{run['status']}: {line}, {when(step['ended_at'])}"))
    outbound_id = accepted["run_id"].replace("run_", "out_")
    entry = _settled(client, f"/api/outbox/{outbound_id}", "status", "delivered")
    _fields(("outbox", f"{outbound_id} {entry['status']} after {entry['attempts']} attempt"))
    story = client.call("GET", f"/api/explain/{accepted['id']}")
    _require(bool(story["events"]), "the story has events")
    click.echo()
    tell(Invocation(), story)


def _settled(client: OperatorClient, path: str, name: str, wanted: str) -> Json:
    """What stands at `path` once `name` is as wanted: an attempt is closed after its answer."""
    until = time.monotonic() + WAIT_S
    while True:
        document = client.call("GET", path)
        if document[name] == wanted:
            return document
        if time.monotonic() > until:
            raise DemoError(f"{path} says {name} {document[name]}, not {wanted}")
        time.sleep(0.02)


def _ours(delivery: Delivery, secret: str) -> bool:
    headers = signing.parse_headers(
        delivery.headers.get("x-mesh-install"),
        delivery.headers.get("x-mesh-timestamp"),
        delivery.headers.get("x-mesh-signature"),
    )
    return (
        headers is not None
        and signing.within_window(headers.timestamp, time.time_ns() // 1_000_000)
        and signing.verify_outbound(headers, delivery.body, [secret])
    )


def _require(held: bool, what: str) -> None:
    if not held:
        raise DemoError(f"this must hold and does not: {what}")


def _title(text: str) -> None:
    click.echo()
    click.secho(text, bold=True)


def _fields(*pairs: tuple[str, object]) -> None:
    for name, value in pairs:
        lines = [
            line
            for text in str(value).splitlines()
            for line in textwrap.wrap(clean(text), WIDTH - 14, break_long_words=False) or [""]
        ]
        click.echo(f"  {name.ljust(10)}  " + f"\n{' ' * 14}".join(lines))


def _failed(message: str) -> int:
    click.echo(f"demo: {clean(message)}", err=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
