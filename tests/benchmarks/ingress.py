"""Owns the speed of ingress: cold in fresh processes, warm beside another signed webhook's door.

Refuses wall time: other work on the machine would be measured with it. CPU time is taken of both
sides in turn, and the middle one of each is compared.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, Final

from infra.local.aws.session import session_on
from infra.local.gateway import Gateway, Request
from mesh.app import Handler, Ports, build
from mesh.kernel.clock import SystemClock
from mesh.kernel.ids import SystemRandom
from mesh.kernel.log import JsonLog
from mesh.kernel.settings import Settings
from mesh.storage.clients import SessionClients
from tests.benchmarks.costs import KB
from tests.benchmarks.figures import Figure, ratio
from tests.benchmarks.replay import Answers, Recording, Replay
from tests.fakes.system import Made, System

COLD_RUNS: Final = 9
WARM_ROUNDS: Final = 15
WARM_MESSAGES: Final = 40
IMPORT_RATIO_MAX: Final = 1.2

_COLD: Final = Path(__file__).with_name("cold.py")


def figures() -> dict[str, Figure]:
    """The four ratios of ingress."""
    system = System(lag=False)
    made = system.make_install()
    answers = recorded(system, made)
    imports = _interleaved("import", {})
    first = _interleaved("first", {"answers": answers, "event": event(system, made)})
    door, calls, other = warm_seconds(system, made, answers)
    return {
        "ingress_import": ratio(
            imports, "CPU of a bare process: botocore, the same two clients", IMPORT_RATIO_MAX
        ),
        "ingress_first": ratio(first, "CPU of the same bare process and one call"),
        "ingress_cpu": ratio(
            door / other, "CPU of slack_bolt's verify and dispatch through its Lambda adapter"
        ),
        "ingress_cpu_own": ratio(
            (door - calls) / other, "the same, without what its three bare AWS calls take"
        ),
    }


def event(system: System, made: Made, message_id: str = "m-1") -> dict[str, Any]:
    """The trigger document of a signed message of one kilobyte, signed as of now."""
    payload = {
        "message_id": message_id,
        "conversation_key": "room-9",
        "actor_id": "u-42",
        "body": KB,
    }
    body = json.dumps(payload).encode()
    headers = system.signed(made, body, timestamp=str(int(time.time())))
    seen: list[dict[str, Any]] = []

    def invoke(_: str, document: dict[str, Any]) -> dict[str, Any]:
        seen.append(document)
        return {"statusCode": 202}

    gateway = Gateway(invoke, system.clock, system.random)
    gateway.answer(Request("POST", "/generic/events", tuple(headers.items()), body))
    return seen[0]


def recorded(system: System, made: Made) -> Answers:
    """AWS's answers to a cold function's message of a known actor in a known conversation."""
    system.say(made, KB, "before")
    session = system.aws.session("generic_ingress")
    recording = Recording(session)
    function = _ingress(SessionClients(session), system.stack.settings)
    answer = function(event(system, made, "recorded"), None)
    assert answer["statusCode"] == 202, answer
    return recording.answers


def _ingress(clients: SessionClients, settings: Settings) -> Handler:
    ports = Ports(settings, clients=clients, log=_quiet)
    return build("generic_ingress", ports)


def _quiet(function: str) -> JsonLog:
    """A log that formats every line and shows none."""
    return JsonLog(f"{function}-benchmark", stream=StringIO())


def _interleaved(what: str, given: Mapping[str, object]) -> float:
    """Ours against bare, each in fresh processes that take turns; the first of each is not kept."""
    taken: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(COLD_RUNS + 1):
        for who, seconds in taken.items():
            seconds.append(_fresh(who, what, json.dumps(given)))
    return median(taken["ours"][1:]) / median(taken["bare"][1:])


def _fresh(who: str, what: str, given: str) -> float:
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": "/nonexistent",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "MESH_ENVIRONMENT": "dev",
        "MESH_TABLE": "mesh-dev",
        "MESH_SECRETS_KEY": "alias/mesh-dev-secrets",
        "MESH_INGRESS_URL": "",
        "MESH_QUEUE_URL_TURNS": "https://sqs.eu-west-1.amazonaws.com/000000000000/turns",
    }
    done = subprocess.run(
        [sys.executable, str(_COLD), who, what],
        input=given,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"a fresh process of {who} failed:\n{done.stderr}")
    return float(done.stdout)


def warm_seconds(system: System, made: Made, answers: Answers) -> tuple[float, float, float]:
    """CPU seconds a message: our function, its three calls made bare, and slack_bolt's."""
    clients = SessionClients(session_on(SystemClock(), Replay(answers)))
    function = _ingress(clients, system.stack.settings)
    events = [event(system, made, f"warm-{number}") for number in range(WARM_MESSAGES)]

    def door() -> None:
        for each in events:
            assert function(each, None)["statusCode"] == 202

    return _middles(door, _bare_calls(clients, system.stack.settings), slack_door())


def _middles(*doors: Callable[[], None]) -> tuple[float, float, float]:
    taken: list[list[float]] = [[] for _ in doors]
    for number in range(WARM_ROUNDS + 1):
        for door, seconds in zip(doors, taken, strict=True):
            begun = time.process_time()
            door()
            if number:  # the first round warms up
                seconds.append((time.process_time() - begun) / WARM_MESSAGES)
    first, second, third = (median(seconds) for seconds in taken)
    return first, second, third


def _bare_calls(clients: SessionClients, settings: Settings) -> Callable[[], None]:
    """The SDK's part of a message: a look-up, a transaction of six rows, a ring."""
    dynamodb: Any = clients.dynamodb
    sqs: Any = clients.sqs
    random = SystemRandom()
    row = {f"attribute_{n}": {"S": "x" * 26} for n in range(12)}

    def calls() -> None:
        for _ in range(WARM_MESSAGES):
            dynamodb.query(
                TableName=settings.table,
                KeyConditionExpression="#pk = :pk AND begins_with(#sk, :sk)",
                ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
                ExpressionAttributeValues={":pk": {"S": "a"}, ":sk": {"S": "SE"}},
                ConsistentRead=True,
                Limit=4,
            )
            puts = [
                {"Put": {"TableName": settings.table, "Item": {**row, "pk": {"S": str(n)}}}}
                for n in range(5)
            ]
            puts.append({"Put": {"TableName": settings.table, "Item": {"body": {"S": KB}}}})
            dynamodb.transact_write_items(
                TransactItems=puts, ClientRequestToken=random.bytes(16).hex()
            )
            sqs.send_message(
                QueueUrl=settings.queue_urls["turns"], MessageBody="{}", MessageGroupId="a"
            )

    return calls


def slack_door() -> Callable[[], None]:
    """slack_bolt's own door: a signed event of the same size, verified and dispatched."""
    from slack_bolt import App
    from slack_bolt.adapter.aws_lambda import SlackRequestHandler
    from slack_bolt.authorization import AuthorizeResult
    from slack_sdk.signature import SignatureVerifier

    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    app = App(
        signing_secret=secret,
        authorize=lambda: AuthorizeResult(
            enterprise_id=None, team_id="T1", bot_id="B1", bot_user_id="U1", bot_token="xoxb-1"
        ),
        process_before_response=True,
        logger=logging.getLogger("slack-benchmark"),
    )
    heard = []
    app.event("message")(lambda event: heard.append(event["ts"]))
    handler: Any = SlackRequestHandler(app)
    message = {"type": "message", "channel": "C1", "user": "U2", "text": KB, "ts": "1.2"}
    payload = {
        "type": "event_callback",
        "team_id": "T1",
        "api_app_id": "A1",
        "event_id": "Ev1",
        "event": message,
    }
    body = json.dumps(payload)
    at = str(int(time.time()))
    signature = SignatureVerifier(secret).generate_signature(timestamp=at, body=body)
    document = {
        "version": "2.0",
        "rawPath": "/slack/events",
        "rawQueryString": "",
        "headers": {
            "content-type": "application/json",
            "x-slack-request-timestamp": at,
            "x-slack-signature": signature,
        },
        "requestContext": {"http": {"method": "POST", "path": "/slack/events"}},
        "body": body,
        "isBase64Encoded": False,
    }

    context = SimpleNamespace(function_name="slack", invoked_function_arn="arn:slack")

    def door() -> None:
        before = len(heard)
        for _ in range(WARM_MESSAGES):
            assert handler.handle(document, context)["statusCode"] == 200
        assert len(heard) == before + WARM_MESSAGES

    return door
