"""Owns the whole system as scenarios drive it: simulated time, a scripted receiver, real functions.

Everything is what `mesh local` runs (`infra.local.stack`), stepped by hand in one thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from infra.local.aws import Faults, LocalAws
from infra.local.gateway import Response
from infra.local.stack import Stack
from mesh.app import Ports
from mesh.connectors.contract import Outbound
from mesh.connectors.registry import OUTBOUND
from mesh.control.installs import Wanted
from mesh.control.notes import counted
from mesh.control.rows import item_of
from mesh.engine.thinking import Models
from mesh.engine.watch import InlineWatch
from mesh.records.agent import Agent, Limits, Model
from mesh.records.install import Caps, Engagement, Install
from mesh.records.note import Note
from mesh.security.egress import Reply
from mesh.security.signing import parse_headers, sign_inbound, verify_outbound
from mesh.storage import keys
from mesh.storage.clients import SessionClients
from mesh.storage.writes import put
from mesh.tools.contract import Parts
from tests.canary import WATCH
from tests.fakes.control import CAUSE, control_plane
from tests.fakes.egress import Call, Outcome, ScriptedEgress, answer
from tests.fakes.time import SeededRandom, SimulatedClock

URL = "https://receiver.example/hook"


@dataclass
class SilentLog:
    """Keeps events instead of writing them."""

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, event: str, /, **fields: str | int | float | bool | None) -> None:
        WATCH.look("a log line", f"{event} {fields}")
        self.events.append((event, fields))


@dataclass(frozen=True)
class Made:
    """An install and its open secret."""

    install_id: str
    secret: str


class System:
    """One instance with one agent, and as many installs as a scenario makes."""

    def __init__(
        self,
        *,
        seed: int = 1,
        faults: Faults | None = None,
        lag: bool = True,
        models: Models | None = None,
        clock: SimulatedClock | None = None,
    ) -> None:
        self.clock = clock or SimulatedClock()
        self.random = SeededRandom(seed)
        self.aws = LocalAws(clock=self.clock, seed=seed, faults=faults, lag=lag)
        self.egress = ScriptedEgress()
        self.egress.script(URL, answer(200))
        self.log = SilentLog()
        self.stack = Stack(
            aws=self.aws,
            clock=self.clock,
            random=self.random,
            egress=self.egress,
            log=lambda _: self.log,
            watch=InlineWatch(self.clock),
            models=models,
        )
        self.control = control_plane(
            Ports(
                settings=self.stack.settings,
                clients=SessionClients(self.aws.session("test")),
                clock=self.clock,
                random=self.random,
            ),
            self.egress,
        )
        self.table, self.ids = self.control.table, self.control.ids
        self.agents, self.installs = self.control.agents, self.control.installs
        with self.aws.without_faults():
            self.agent = self.make_agent()

    # ---- what an operator made

    def make_agent(
        self, slug: str = "ada", limits: Limits = Limits(), model: Model = Model()
    ) -> Agent:
        return self.control.make_agent(slug, limits, model)

    def make_install(
        self,
        *,
        url: str | None = URL,
        engagement: Engagement = Engagement(),
        caps: Caps = Caps(),
        allow_hosts: tuple[str, ...] = (),
        agent: Agent | None = None,
        failure_replies: bool = True,
    ) -> Made:
        """An enabled install."""
        with self.aws.without_faults():
            install, secret = self.installs.create(
                agent or self.agent,
                Wanted(
                    name="Support",
                    delivery_url=url,
                    allow_hosts=allow_hosts,
                    engagement=engagement,
                    caps=caps,
                    failure_replies=failure_replies,
                ),
                kind="generic",
                enable=False,
                skip_ping=False,
                cause=CAUSE,
                minting=self.control.minting(),
            )
            self.set_state(install.install_id, "enabled")
        return Made(install.install_id, secret)

    def make_note(self, made: Made, name: str = "hours") -> str:
        """A note as a run of the install would have left it; its place and name, as in a path."""
        install = self.install(made.install_id)
        note = Note(
            name=name,
            text="open from nine",
            version=1,
            agent_id=install.agent_id,
            install_id=made.install_id,
            conversation_id="conv_" + "0" * 26,
            run_id="run_" + "0" * 26,
            created_at=1,
            updated_at=1,
        )
        with self.aws.without_faults():
            key = keys.note(install.agent_id, made.install_id, name)
            self.table.write(put(key, item_of(note)))
            self.table.write(counted(install.agent_id, made.install_id, 1))
        return f"{made.install_id}/{name}"

    def set_state(self, install_id: str, state: str) -> None:
        with self.aws.without_faults():
            self.control.set_state(install_id, state)

    def install(self, install_id: str) -> Install:
        """An install's settings as they are stored."""
        found = self.installs.by_id(install_id)
        assert found is not None
        return found

    def generic_outbound(self) -> Outbound:
        """How the generic surface sends."""
        return OUTBOUND["generic"]

    def egress_ok(self) -> Outcome:
        """What a receiver that takes everything answers."""
        return answer(204)

    # ---- what a third party does

    def post(self, made: Made, payload: dict[str, Any] | bytes, **signing: Any) -> Response:
        """Signs and posts. `signing` may override timestamp, install, signature, content_type."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return self.stack.request(
            "POST", "/generic/events", self.signed(made, body, **signing), body
        )

    def signed(
        self,
        made: Made,
        body: bytes,
        *,
        timestamp: str | None = None,
        install: str | None = None,
        signature: str | None = None,
        content_type: str = "application/json",
    ) -> dict[str, str]:
        at = timestamp or str(self.clock.now_ms() // 1000)
        return {
            "Content-Type": content_type,
            "X-Mesh-Install": install or made.install_id,
            "X-Mesh-Timestamp": at,
            "X-Mesh-Signature": signature or sign_inbound(made.secret, made.install_id, at, body),
        }

    def say(self, made: Made, text: str, message_id: str = "m-1", **more: Any) -> Response:
        payload = {
            "message_id": message_id,
            "conversation_key": "room-9",
            "actor_id": "u-42",
            "body": text,
        }
        return self.post(made, payload | more)

    def receiver(self, *outcomes: Outcome, url: str = URL) -> None:
        """What the receiver does from now on; the last outcome is repeated."""
        self.egress.script(url, *outcomes)

    def delivered(self, url: str = URL) -> list[dict[str, Any]]:
        """The bodies of every request to the receiver, in order."""
        return [json.loads(call.body) for call in self.calls(url)]

    def calls(self, url: str = URL) -> list[Call]:
        return [call for call in self.egress.calls if call.url == url]

    # ---- time

    def settle(self) -> int:
        """Polls every queue until nothing is visible; no time passes but what functions sleep."""
        return self.stack.drain()

    def run(self, seconds: float, step_s: float = 1.0) -> None:
        """Lets time pass: queues are drained every step, schedules tick every minute."""
        until = self.clock.now_ms() + int(seconds * 1000)
        self.settle()
        while self.clock.now_ms() < until:
            before = self.clock.now_ms()
            self.clock.forward(step_s)
            if self.clock.now_ms() // 60_000 != before // 60_000:
                self.stack.tick()
            self.settle()

    # ---- what is stored

    def rows(self, prefix: str) -> list[dict[str, Any]]:
        """Every row whose sort key begins with `prefix`, in key order: a full view, for tests."""
        found = (item for item in self.aws.items() if item["sk"].startswith(prefix))
        return sorted(found, key=lambda item: (item["pk"], item["sk"]))

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Every row stands afterwards as it stood before, whatever is done inside."""
        rows = self.aws.dynamo._rows
        before = {(row["pk"]["S"], row["sk"]["S"]): row for row in rows.all()}
        try:
            yield
        finally:
            with self.aws.dynamo.lock:
                after = {(row["pk"]["S"], row["sk"]["S"]): row for row in rows.all()}
                for key in before.keys() | after.keys():
                    if after.get(key) is not before.get(key):
                        rows.put(key, before.get(key))

    def verifies(self, made: Made, call: Call) -> bool:
        """Whether a delivery carries Mesh's signature under the install's secret."""
        headers = parse_headers(
            call.headers["X-Mesh-Install"],
            call.headers["X-Mesh-Timestamp"],
            call.headers["X-Mesh-Signature"],
        )
        return headers is not None and verify_outbound(headers, call.body, [made.secret])


def parts_of(system: System) -> Parts:
    """What the tools' handlers are made of, as the turn worker has it."""
    return Parts(
        table=system.table,
        clock=system.clock,
        egress=lambda: system.egress,
        wrapper=system.control.wrapper,
    )


def statuses(replies: Iterable[Response]) -> list[int]:
    return [reply.status for reply in replies]


__all__ = ["URL", "Made", "Reply", "System", "answer", "parts_of", "statuses"]
