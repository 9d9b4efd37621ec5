"""Owns the adapters as tests reach them: each over the real guard and a real socket, with the
stand-in that speaks its API at the other end.

Refuses to be met half way: the adapter asks its declared origin under its own policy, and only
where the connection leads to is the test's.
"""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import pytest

from infra.local.egress import LoopbackEgress
from mesh.kernel.clock import SystemClock
from mesh.records.connection import Capability
from mesh.security.egress import Egress, EgressPolicy, GuardedEgress, Reply, StrictJudge
from mesh.security.urls import Reason, Refusal, Target
from mesh.tools.web import catalogue
from mesh.tools.web.contract import (
    Access,
    FailureKind,
    Hit,
    Page,
    ProviderFailure,
    ReadAdapter,
    SearchAdapter,
    Stage,
)
from tests.fakes import brave_server, cloudflare_server, firecrawl_server, perplexity_server
from tests.fakes.hurried import Hurried
from tests.fakes.model_servers import WireReply
from tests.fakes.time import SimulatedClock
from tests.fakes.web_servers import PRIVATE, WebServer
from tests.unit.security.peer import Peer

QUERY = 'the "ibex" & its horns'
PAGE_URL = "https://goats.example/ibex?a=1&b=2"


@dataclass(frozen=True)
class Said:
    """A provider's stand-in and the words of its API, by one name for all of them."""

    server: Callable[[], WebServer]
    module: ModuleType
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def errors(self) -> Mapping[str, WireReply]:
        errors: Mapping[str, WireReply] = self.module.ERRORS
        return errors


SAID: Mapping[str, Said] = {
    "brave": Said(brave_server.BraveServer, brave_server),
    "perplexity": Said(perplexity_server.PerplexityServer, perplexity_server),
    "firecrawl": Said(firecrawl_server.FirecrawlServer, firecrawl_server),
    "cloudflare": Said(
        cloudflare_server.CloudflareServer,
        cloudflare_server,
        {"account_id": cloudflare_server.ACCOUNT},
    ),
}
SEARCH = tuple(n for n in SAID if Capability.SEARCH in catalogue.PROVIDERS[n].capabilities)
READ = tuple(n for n in SAID if Capability.READ in catalogue.PROVIDERS[n].capabilities)


def adapter_of(name: str, egress: Egress, clock: SimulatedClock) -> Any:
    """The adapter of a provider, of the module of its name."""
    module = importlib.import_module(f"mesh.tools.web.{name}")
    made = module.search_adapter if name in SEARCH else module.read_adapter
    return made(egress, clock)


class StandInJudge(StrictJudge):
    """The strict judgement of what is asked for; what passes for the one origin is connected to at
    the peer's port, over TLS and by the origin's name."""

    def __init__(self, origin: str, port: int) -> None:
        self._host = origin.removeprefix("https://")
        self._port = port

    def judge_url(self, url: str, policy: EgressPolicy) -> Target | Refusal:
        judged = super().judge_url(url, policy)
        if isinstance(judged, Refusal) or judged.host != self._host:
            return judged
        return replace(judged, port=self._port)

    def judge_address(self, target: Target, address: str) -> str | None:
        if (target.host, target.port) == (self._host, self._port) and address == "127.0.0.1":
            return None
        return super().judge_address(target, address)


@dataclass
class Sent:
    """What an adapter asked of the way out."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    policy: EgressPolicy
    body_bytes_max: int
    total_s: float | None


class Watched(Hurried):
    """The way out of one adapter, kept book of."""

    def __init__(self, real: Egress) -> None:
        super().__init__(real)
        self.sent: list[Sent] = []

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, policy: EgressPolicy
    ) -> Reply:
        raise AssertionError("an answer is wanted whole")

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        policy: EgressPolicy,
        **bounds: Any,
    ) -> Reply:
        self.sent.append(Sent(method, url, dict(headers), body, policy, **bounds))
        return super().request(method, url, headers, body, policy, **bounds)


class Api:
    """One adapter and the stand-in at the other end of its wire."""

    def __init__(
        self,
        name: str,
        tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
        peer: Peer | None = None,
    ) -> None:
        """`tls` has the context of the served end and of the trusting one; without it the local
        stack's own composition leads to the stand-in, over http. `peer` is listened at in place of
        the stand-in's own."""
        said = SAID[name]
        self.name = name
        self.errors = said.errors
        self.module: Any = said.module
        self.server = said.server()
        self.peer = peer or self.server.on_loopback(tls[0] if tls else None)
        self.clock = SimulatedClock()
        self.provider = catalogue.PROVIDERS[name]
        self.searches = name in SEARCH
        self.access = Access(dict(said.config), self.server.key)
        real = self._loopback() if tls is None else self._guarded(tls[1])
        self.egress = Watched(real)
        self.adapter = adapter_of(name, self.egress, self.clock)

    def _loopback(self) -> Egress:
        return LoopbackEgress([], stand_ins={self.name: f"127.0.0.1:{self.peer.port}"})

    def _guarded(self, trusting: ssl.SSLContext) -> Egress:
        judge = StandInJudge(self.provider.origin, self.peer.port)
        return GuardedEgress(
            SystemClock(), judge=judge, resolver=lambda *_: ["127.0.0.1"], tls=trusting
        )

    def search(self, query: str = QUERY, limit: int = 5) -> tuple[Hit, ...]:
        adapter: SearchAdapter = self.adapter
        return adapter.search(query, limit, self.access)

    def read(self, url: str = PAGE_URL) -> Page:
        adapter: ReadAdapter = self.adapter
        return adapter.read(url, self.access)

    def ask(self) -> tuple[Hit, ...] | Page:
        """One plain request."""
        return self.search() if self.searches else self.read()

    def came_to(self) -> tuple[Hit, ...] | Page | ProviderFailure:
        """What one plain request comes to, where several things would do."""
        try:
            return self.ask()
        except ProviderFailure as failure:
            assert_holds_nothing(failure, self)
            return failure

    def good(self) -> Any:
        """The JSON of a plain good answer."""
        module = self.module
        if self.searches:
            return module.found(*(module.result(n) for n in range(5)))
        return module.page(PAGE_URL) if self.name == "firecrawl" else module.page()

    def fails(self) -> ProviderFailure:
        """What one plain request, and no other, fails with; it holds nothing that it must not."""
        before = len(self.egress.sent)
        with pytest.raises(ProviderFailure) as caught:
            self.ask()
        assert len(self.egress.sent) == before + 1, "nothing is asked for again"
        assert_holds_nothing(caught.value, self)
        return caught.value

    def use_key(self, key: str) -> None:
        """From now on it is asked with this key."""
        self.access = Access(self.access.config, key)

    @staticmethod
    def host_of(name: str) -> str:
        """The host of the provider's origin."""
        return catalogue.PROVIDERS[name].origin.removeprefix("https://")

    def close(self) -> None:
        self.peer.close()


def assert_holds_nothing(failure: BaseException, api: Api) -> None:
    """Holds that an error and everything behind it have no word of the provider's, no key, and no
    address."""
    told = all_of(failure)
    host = Api.host_of(api.name)
    for word in (PRIVATE, "PRIVATE", api.server.key, host, str(api.peer.port), "127.0.0.1"):
        assert word not in told, told
    assert "goats.example" not in told, "nor what was asked for"


def all_of(error: BaseException) -> str:
    """Everything that an error and what is behind it say."""
    return "\n".join(_told(error, set()))


def _told(error: BaseException | None, seen: set[int]) -> Iterator[str]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield f"{error} {error!r} {error.args!r} {getattr(error, '__notes__', '')}"
    yield repr(getattr(error, "__dict__", {}))
    yield from _told(error.__cause__, seen)
    yield from _told(error.__context__, seen)


def outcome(failure: ProviderFailure) -> tuple[Stage, FailureKind]:
    return failure.stage, failure.kind


def refuses_all_but(policy: EgressPolicy, origin: str) -> bool:
    """Whether a policy lets the one origin pass, and nothing else."""
    judge = StrictJudge()
    others = ("https://example.com/", f"{origin}.evil.example/", "https://api.example.com/")
    refused = [judge.judge_url(url, policy) for url in others]
    return isinstance(judge.judge_url(f"{origin}/x", policy), Target) and all(
        isinstance(it, Refusal) and it.reason is Reason.ALLOWLIST for it in refused
    )
