"""The main job over moto's server: real sockets, and an emulator that is not Mesh's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import botocore.session
import pytest
from moto.server import ThreadedMotoServer

from infra import topology
from mesh import app
from mesh.control.installs import Wanted
from mesh.kernel.clock import SystemClock
from mesh.kernel.ids import SystemRandom
from mesh.kernel.settings import Settings
from mesh.records.install import Caps, Engagement
from mesh.security.signing import sign_inbound
from mesh.storage.clients import SessionClients
from tests.fakes.control import CAUSE, control_plane
from tests.fakes.egress import ScriptedEgress, answer
from tests.fakes.system import URL, SilentLog

REGION = "eu-west-1"


@dataclass
class Context:
    """As much of a Lambda context as a worker asks for."""

    remaining_ms: int = topology.TURN_TIMEOUT_S * 1000
    aws_request_id: str = "test"

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[botocore.session.Session]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    yield botocore.session.Session()
    server.stop()


def make_resources(session: botocore.session.Session) -> Settings:
    """The topology's table, queues and key, made as any AWS would make them."""
    dynamodb, sqs = session.create_client("dynamodb"), session.create_client("sqs")
    table = topology.TABLE
    names = [table.hash_key, table.range_key]
    definitions = [{"AttributeName": name, "AttributeType": "S"} for name in names]
    indexes = []
    for index in table.indexes:
        number = "N" if index.range_is_number else "S"
        definitions += [
            {"AttributeName": index.hash_key, "AttributeType": "S"},
            {"AttributeName": index.range_key, "AttributeType": number},
        ]
        indexes.append(
            {
                "IndexName": index.name,
                "KeySchema": [
                    {"AttributeName": index.hash_key, "KeyType": "HASH"},
                    {"AttributeName": index.range_key, "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        )
    dynamodb.create_table(
        TableName="mesh",
        AttributeDefinitions=definitions,
        KeySchema=[
            {"AttributeName": table.hash_key, "KeyType": "HASH"},
            {"AttributeName": table.range_key, "KeyType": "RANGE"},
        ],
        GlobalSecondaryIndexes=indexes,
        BillingMode="PAY_PER_REQUEST",
    )
    urls = {}
    for queue in topology.QUEUES:
        attributes = {"FifoQueue": "true"} if queue.fifo else {}
        urls[queue.name] = sqs.create_queue(QueueName=queue.physical_name, Attributes=attributes)[
            "QueueUrl"
        ]
    key = session.create_client("kms").create_key()["KeyMetadata"]["Arn"]
    return Settings(
        environment="test", table="mesh", queue_urls=urls, secrets_key=key, ingress_url=""
    )


def answered(session: botocore.session.Session, url: str, handler: app.Handler) -> int:
    """Feeds the queue's messages to the function, as an event source does; how many there were."""
    sqs = session.create_client("sqs")
    count = 0
    while messages := sqs.receive_message(QueueUrl=url).get("Messages"):
        assert count < 100, "functions ring without end"
        for message in messages:
            record = {
                "messageId": message["MessageId"],
                "body": message["Body"],
                "eventSource": "aws:sqs",
            }
            assert handler({"Records": [record]}, Context()) == {"batchItemFailures": []}
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            count += 1
    return count


@pytest.mark.behaviour("ingress:webhook")
def test_the_main_job_runs_over_another_emulator_and_real_sockets(
    session: botocore.session.Session,
) -> None:
    egress = ScriptedEgress()
    egress.script(URL, answer(200))
    ports = app.Ports(
        make_resources(session),
        clients=SessionClients(session),
        clock=SystemClock(),
        random=SystemRandom(),
        egress=lambda _: egress,
        log=lambda _: SilentLog(),
    )
    control = control_plane(ports, egress)
    agent = control.make_agent("ada")
    install, secret = control.installs.create(
        agent,
        Wanted(
            name="shop",
            delivery_url=URL,
            allow_hosts=(),
            engagement=Engagement(),
            caps=Caps(),
            failure_replies=True,
        ),
        kind="generic",
        enable=False,
        skip_ping=False,
        cause=CAUSE,
        minting=control.minting(),
    )
    control.set_state(install.install_id, "enabled")
    ingress = app.build("generic_ingress", ports)
    for number in (1, 2):
        response = post(ports, ingress, install.install_id, secret, f"m-{number}")
        assert response["statusCode"] == 202, response
    urls = ports.settings.queue_urls
    assert answered(session, urls["turns"], app.build("turn_worker", ports)) == 2
    assert answered(session, urls["deliveries"], app.build("outbox_worker", ports)) >= 1
    replies = [json.loads(call.body) for call in egress.calls]
    assert [reply["in_reply_to"] for reply in replies] == ["m-1", "m-2"]
    assert [reply["sequence"] for reply in replies] == [1, 2]


def post(
    ports: app.Ports, ingress: app.Handler, install_id: str, secret: str, message_id: str
) -> dict[str, Any]:
    body = json.dumps(
        {
            "message_id": message_id,
            "conversation_key": "room-9",
            "actor_id": "u-42",
            "body": "hello",
        }
    )
    at = str(ports.clock.now_ms() // 1000)
    event = {
        "version": "2.0",
        "rawPath": "/generic/events",
        "rawQueryString": "",
        "headers": {
            "content-type": "application/json",
            "x-mesh-install": install_id,
            "x-mesh-timestamp": at,
            "x-mesh-signature": sign_inbound(secret, install_id, at, body.encode()),
        },
        "requestContext": {"http": {"method": "POST"}},
        "body": body,
        "isBase64Encoded": False,
    }
    return ingress(event, Context())
