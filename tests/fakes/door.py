"""Owns the generic ingress function as tests ask it: trigger documents in, answers out.

Refuses shortcuts on the way in: what is asked goes through the builder that is deployed, over the
embedded AWS. Installs are written as rows, so that an id and a secret can be any.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from botocore import UNSIGNED
from botocore.config import Config

from infra import topology
from infra.local.aws import Faults
from infra.local.aws.recorder import Call
from infra.local.aws.rows import IndexKeys
from mesh.app import Handler, Ports, build
from mesh.control.instance_key import InstanceKeys
from mesh.control.rows import item_of
from mesh.control.secrets import seal_secret
from mesh.kernel.clock import Clock
from mesh.kernel.log import ALLOWED
from mesh.records.install import AgentStatus, Caps, Engagement, Install, InstallState, Secret
from mesh.security.sealing import InstanceKey
from mesh.storage import keys
from mesh.storage.clients import SessionClients
from mesh.storage.kms import KmsWrapper
from mesh.storage.writes import put
from tests.canary import WATCH
from tests.fakes.system import System
from tests.fakes.time import SimulatedClock

INSTALL = "ins_01JDXW5Y9ZK3V7Q2M8N4P6R0ST"
OTHER = "ins_01JDXW5Y9ZK3V7Q2M8N4P6R0TV"
SECRET = "whsec_JwGO+mwA4P7CTWY+ERn5oXxoeApE2OJvPNTbXQjHG7s="
OTHER_SECRET = "whsec_" + base64.b64encode(b"another secret of thirty-two by.").decode()


class Shape(StrEnum):
    """The trigger documents that a gateway may send."""

    HTTP_TEXT = "http-2.0-text"
    HTTP_BASE64 = "http-2.0-base64"
    REST = "rest-1.0"

    def carries(self, body: bytes) -> bool:
        """Whether a document of this shape can hold these bytes unchanged."""
        if self is not Shape.HTTP_TEXT:
            return True
        try:
            body.decode()
        except UnicodeDecodeError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Answer:
    """What the function answered. Header names as the function wrote them."""

    status: int
    headers: Mapping[str, str]
    body: str

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        """The error's code; None where there is none."""
        error = self.json().get("error")
        return None if error is None else error["code"]


@dataclass
class StrictLog:
    """Keeps events, and refuses the fields that the product's log refuses."""

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, event: str, /, **fields: str | int | float | bool | None) -> None:
        assert fields.keys() <= ALLOWED, fields.keys() - ALLOWED
        WATCH.look("a log line", f"{event} {fields}")
        self.events.append((event, fields))

    def named(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == event]


def signature(secret: str, install_id: str, timestamp: str, body: bytes) -> str:
    """What a third party puts into `X-Mesh-Signature`."""
    base = f"v1:in:{install_id}:{timestamp}:".encode() + body
    return "v1=" + hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()


def utterance(**more: Any) -> dict[str, Any]:
    """The contract's smallest payload, with what a test changes in it."""
    return {
        "message_id": "m-1",
        "conversation_key": "room-9",
        "actor_id": "u-42",
        "body": "hello",
    } | more


def document(
    shape: Shape, headers: Mapping[str, str], body: bytes, query: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The trigger document of one POST."""
    encoded = base64.b64encode(body).decode()
    if shape is Shape.REST:
        many = {name: value.split(",") for name, value in headers.items()}
        return {
            "resource": "/generic/events",
            "path": "/generic/events",
            "httpMethod": "POST",
            "headers": {name: values[-1] for name, values in many.items()},
            "multiValueHeaders": many,
            "queryStringParameters": dict(query) if query else None,
            "multiValueQueryStringParameters": {k: [v] for k, v in query.items()}
            if query
            else None,
            "requestContext": {"requestId": "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"},
            "body": encoded,
            "isBase64Encoded": True,
        }
    text = shape is Shape.HTTP_TEXT
    return {
        "version": "2.0",
        "routeKey": "POST /generic/events",
        "rawPath": "/generic/events",
        "rawQueryString": "&".join(f"{k}={v}" for k, v in (query or {}).items()),
        "headers": {name.lower(): value for name, value in headers.items()},
        "requestContext": {"http": {"method": "POST", "path": "/generic/events"}},
        **({"body": body.decode() if text else encoded} if body else {}),
        "isBase64Encoded": bool(body) and not text,
    }


class Door:
    """One ingress function, warm from its first request on; `cold()` makes another instance."""

    def __init__(self, *, seed: int = 1, faults: Faults | None = None) -> None:
        self.system = System(seed=seed, faults=faults)
        self.clock = self.system.clock
        self.aws = self.system.aws
        self.table = self.system.table
        self.log = StrictLog()
        session = self.aws.session("ingress")
        # Nobody here checks a request's signature, and making it is a fifth of a call's cost.
        session.set_default_client_config(Config(signature_version=UNSIGNED))
        self.cloud = SessionClients(session, hurried=True)
        wrapper = KmsWrapper(lambda: self.cloud.kms, self.system.stack.settings.secrets_key)
        self._instance_keys = InstanceKeys(wrapper, self.table, self.clock, self.system.random)
        with self.aws.without_faults():
            self._instance_keys.ensure()
            self._kept = [row for row in self.aws.items() if row["pk"].startswith(_KEPT)]
        self.handler = self.cold()

    def cold(self, clock: Clock | None = None) -> Handler:
        """A fresh instance, which keeps nothing yet; on a clock of its own when given one."""
        return build(
            "generic_ingress",
            Ports(
                settings=self.system.stack.settings,
                clients=self.cloud,
                clock=clock or self.clock,
                random=self.system.random,
                log=lambda _: self.log,
            ),
        )

    def at_once(self, count: int, say: Callable[[int, Handler], Answer]) -> list[Answer]:
        """Asks `count` instances at the same moment, as Lambda would scale out.

        Each waits on a clock of its own: on a shared one, thirty-one others' waiting would use up
        the time that a request has.
        """
        handlers = [self.cold(SimulatedClock(self.clock.ms)) for _ in range(count)]
        barrier = threading.Barrier(count)

        def one(number: int) -> Answer:
            barrier.wait()
            return say(number, handlers[number])

        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(one, range(count)))

    # ---- what an operator made

    def install(
        self,
        install_id: str = INSTALL,
        secret: str = SECRET,
        *,
        previous: str | None = None,
        previous_until: int | None = None,
        state: InstallState = InstallState.ENABLED,
        agent_status: AgentStatus = AgentStatus.ACTIVE,
        engagement: Engagement = Engagement(),
        caps: Caps = Caps(),
        kind: str = "generic",
    ) -> None:
        """Writes the rows of an install as an operator's call would leave them."""
        now = self.clock.now_ms()
        agent = self.system.agent
        install = Install(
            install_id=install_id,
            kind=kind,
            name="Shop",
            agent_id=agent.agent_id,
            agent_slug=agent.slug,
            agent_name=agent.name,
            agent_handle=agent.handle,
            agent_status=agent_status,
            state=state,
            engagement=engagement,
            caps=caps,
            secret_version=2,
            version=1,
            created_at=now,
        )
        with self.aws.without_faults():
            key = self._instance_keys.current()
            self.table.write(put(keys.settings(install_id), item_of(install)))
            self._secret(key, install_id, 2, secret, None)
            if previous is not None:
                until = previous_until if previous_until is not None else now + 86_400_000
                self._secret(key, install_id, 1, previous, until)

    def _secret(
        self, key: InstanceKey, install_id: str, version: int, secret: str, until: int | None
    ) -> None:
        row = Secret(
            version=version,
            blob=seal_secret(key, install_id, version, secret, self.system.random),
            created_at=self.clock.now_ms(),
            valid_until=until,
        )
        self.table.write(put(keys.secret(install_id, version), item_of(row)))

    # ---- what a third party does

    def ask(
        self,
        headers: Mapping[str, str],
        body: bytes,
        *,
        shape: Shape = Shape.HTTP_TEXT,
        query: Mapping[str, str] | None = None,
        handler: Handler | None = None,
    ) -> Answer:
        """One request exactly as given."""
        event = json.loads(json.dumps(document(shape, headers, body, query)))
        try:
            answer = (handler or self.handler)(event, None)
        except Exception as error:
            WATCH.look_at_error("an error that escaped a function", error)
            raise
        answer = json.loads(json.dumps(answer))
        WATCH.look_at_answer(self, "POST", str(answer["headers"]), answer["body"])
        assert answer["isBase64Encoded"] is False
        return Answer(answer["statusCode"], answer["headers"], answer["body"])

    def post(
        self,
        payload: Mapping[str, Any] | bytes,
        *,
        install: str = INSTALL,
        secret: str = SECRET,
        timestamp: str | None = None,
        headers: Mapping[str, str | None] | None = None,
        shape: Shape = Shape.HTTP_TEXT,
        query: Mapping[str, str] | None = None,
        handler: Handler | None = None,
    ) -> Answer:
        """Signs and posts; `headers` change what is sent, None leaves one out."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        at = timestamp or str(self.clock.now_ms() // 1000)
        sent: dict[str, str | None] = {
            "Content-Type": "application/json",
            "X-Mesh-Install": install,
            "X-Mesh-Timestamp": at,
            "X-Mesh-Signature": signature(secret, install, at, body),
            **(headers or {}),
        }
        given = {name: value for name, value in sent.items() if value is not None}
        return self.ask(given, body, shape=shape, query=query, handler=handler)

    def say(self, message_id: str = "m-1", /, **more: Any) -> Answer:
        """Posts the smallest payload; more of it, or what `post` takes, by keyword."""
        asking = {k: more.pop(k) for k in ("install", "secret", "handler") if k in more}
        return self.post(utterance(message_id=message_id, **more), **asking)

    # ---- what is stored, and what it cost

    def rows(self, prefix: str) -> list[dict[str, Any]]:
        return self.system.rows(prefix)

    def kept(self) -> list[dict[str, Any]]:
        """Every row but those that tell of refusals."""
        return [
            row
            for row in self.everything()
            if not row["pk"].startswith("REFUSED#") and row["sk"] != "REFUSED"
        ]

    def everything(self) -> list[dict[str, Any]]:
        """Every row there is."""
        return sorted(self.aws.items(), key=lambda row: (row["pk"], row["sk"]))

    def orders(self, conversation_key: str = "room-9", install: str = INSTALL) -> list[str]:
        """The bodies of a conversation's utterances, in the order that they were put in."""
        pk = keys.conversation(keys.conversation_id(install, conversation_key))
        return [row["body"] for row in self.rows(keys.MSG) if row["pk"] == pk and "body" in row]

    def doorbells(self) -> int:
        """How many rings wait in the queue of turns; all are taken out."""
        url = self.system.stack.settings.queue_urls["turns"]
        rung = 0
        while found := self.cloud.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            rung += len(found)
        return rung

    @contextmanager
    def calls(self) -> Iterator[list[Call]]:
        """The AWS calls made inside."""
        with self.aws.recording() as made:
            yield made

    def forget_everything(self) -> None:
        """A table with nothing but the agent and the instance key in it."""
        indexes = tuple(
            IndexKeys(index.name, index.hash_key, index.range_key, index.range_is_number)
            for index in topology.TABLE.indexes
        )
        self.aws.create_table(self.system.stack.settings.table, indexes)
        for row in self._kept:
            self.table.write(put(keys.Key(row["pk"], row["sk"]), row))


_KEPT = ("AGENT", "INSTANCE")
"""The partitions of what every test needs."""


def told(calls: list[Call]) -> list[str]:
    """The operations of `calls`, in order."""
    return [call.operation for call in calls]
