"""Owns the two handlers of the web as tests call them: over the embedded table and KMS, with every
provider's stand-in behind a scripted way out.

Refuses to grant by courtesy: a call is made on the grant that the rows give.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.local.aws import Faults, LocalAws
from mesh.control.connections import provider_key_context, read_grants
from mesh.control.rows import item_of
from mesh.records.connection import Capability, Grant
from mesh.records.value import SealedValue
from mesh.security.egress import Egress, Reply
from mesh.security.sealing import DataKey, KeyWrapper, seal
from mesh.storage import keys
from mesh.storage.clients import SessionClients
from mesh.storage.kms import KmsWrapper
from mesh.storage.table import Table
from mesh.storage.writes import put
from mesh.tools.contract import Call, Observation, Parts
from mesh.tools.web.catalogue import PROVIDERS, kept_for
from mesh.tools.web.handlers import handlers
from tests.fakes import egress as scripted
from tests.fakes.model_servers import WireReply, WireRequest
from tests.fakes.time import SeededRandom, SimulatedClock
from tests.fakes.web import Connections, provider_of
from tests.fakes.web_servers import WebServer
from tests.unit.web.apis import PAGE_URL, QUERY, SAID, SEARCH

AGENT = "agt_grace"
INSTANCE = "instance"


def capability_of(name: str) -> Capability:
    return Capability.SEARCH if name in SEARCH else Capability.READ


def served(server: WebServer, call: scripted.Call) -> Reply:
    """What a stand-in answers to a request, without a socket."""
    headers = {"accept-encoding": "identity"} | {k.lower(): v for k, v in call.headers.items()}
    path = call.url.removeprefix("https://").partition("/")[2]
    answer = server.reply(WireRequest(call.method, f"/{path}", headers, call.body))
    told = tuple((name.lower(), value) for name, value in answer.headers.items())
    return Reply(answer.status, scripted.PUBLIC_ADDRESS, told, answer.body)


class Bench:
    """One agent, connected to whatever a test says."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.clock = SimulatedClock()
        self.random = SeededRandom()
        self.aws = LocalAws(clock=self.clock, seed=1, faults=faults)
        with self.aws.without_faults():
            self.aws.create_table("mesh")
            session = self.aws.session()
            self.table = Table(session.create_client("dynamodb"), "mesh", self.clock, self.random)
            clients = SessionClients(session)
            key = self.aws.create_key("secrets")
        self.wrapper: KeyWrapper = KmsWrapper(lambda: clients.kms, key)
        self.connections = Connections(self.table, self.wrapper, self.random)
        self.servers = {name: said.server() for name, said in SAID.items()}
        self.egress = scripted.ScriptedEgress()
        self.egress.otherwise = lambda call: served(self.servers[provider_of(call)], call)
        self.opened = self.wrapper
        """The key service that handlers open keys with."""
        self.made = 0
        """How often a way out was asked for."""

    def connect(self, name: str, owner: str = INSTANCE, key: str | None = None) -> Grant:
        """Connects the owner to a provider, by the key that its stand-in takes."""
        with self.aws.without_faults():
            self.connections.connect(
                owner,
                capability_of(name),
                provider=name,
                key=self.servers[name].key if key is None else key,
                **SAID[name].config,
            )
        return self.grant(name)

    def grant(self, name: str) -> Grant:
        """What the agent may use the provider's capability by, as the rows stand."""
        capability = capability_of(name)
        with self.aws.without_faults():
            found = read_grants(self.table, AGENT, [capability])[capability]
        assert isinstance(found, Grant), found
        assert found.provider == name
        return found

    def keep(
        self, name: str, plaintext: bytes, owner: str = INSTANCE, sealed_for: str | None = None
    ) -> None:
        """Puts a sealed key into the owner's row for the provider, at version 1."""
        meant = kept_for(PROVIDERS[name]) if sealed_for is None else sealed_for
        context = provider_key_context(owner, meant, 1)
        with self.aws.without_faults():
            material, wrapped = self.wrapper.generate(context.encryption_context())
            blob = seal(DataKey(material), context, plaintext, self.random)
            value = SealedValue(
                name=meant, version=1, wrapped=wrapped, blob=blob, created_at=0, updated_at=0
            )
            self.table.write(put(keys.provider_key(owner, name), item_of(value)))

    def change(self, name: str, owner: str = INSTANCE, **attributes: Any) -> None:
        """Changes a row of a provider's key, as nobody but a fault or an intruder would."""
        where = keys.provider_key(owner, name)
        item = self.table.get(where)
        assert item is not None
        kept = {k: v for k, v in (item | attributes).items() if v is not None}
        self.table.write(put(where, {k: v for k, v in kept.items() if k not in ("pk", "sk")}))

    def row(self, name: str, owner: str = INSTANCE) -> Mapping[str, Any]:
        item = self.table.get(keys.provider_key(owner, name))
        assert item is not None
        return item

    def make(self, grant: Grant, **arguments: Any) -> Observation:
        """Makes one call on a grant; without arguments a plain one."""
        searches = grant.capability is Capability.SEARCH
        given = arguments or ({"query": QUERY} if searches else {"url": PAGE_URL})
        call = Call(
            call_id="cal_1",
            agent_id=AGENT,
            run_id="run_1",
            install_id=None,
            conversation_id=None,
            grant=grant,
        )
        return self._handlers()["search" if searches else "fetch"](given, call)

    def judge(self, grant: Grant | None, tool: str = "search", **arguments: Any) -> str | None:
        """What a tool has against a call."""
        handler: Any = self._handlers()[tool]
        against: str | None = handler.judge(arguments, grant)
        return against

    def sources(self, tool: str, **arguments: Any) -> tuple[str, ...]:
        handler: Any = self._handlers()[tool]
        found: tuple[str, ...] = handler.sources(arguments)
        return found

    def answers(self, name: str, reply: WireReply) -> None:
        """From now on the provider answers so."""
        self.servers[name].sends(reply)

    def _handlers(self) -> Mapping[str, Any]:
        parts = Parts(table=self.table, clock=self.clock, egress=self._way_out, wrapper=self.opened)
        return handlers(parts)

    def _way_out(self) -> Egress:
        self.made += 1
        return self.egress


def document(observation: Observation) -> Any:
    """What a model is told of a result."""
    return json.loads(observation.text)
