"""Owns the whole local stack with everything that a call of the web meets: a scripted language
model, the four providers' stand-ins, and a third party, all on loopback.

Refuses a way round the wire: the model is asked, the providers are asked and the reply is taken
over sockets, and everything is set through the operator API.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from infra.local.command import compose
from infra.local.receiver import Receiver
from infra.local.stack import RunningStack
from mesh.kernel.clock import MINUTE_MS, Clock, SystemClock
from mesh.models.contract import Stop, Text, ToolResult, ToolUse
from mesh.operator.cli.third_party import INGRESS_PATH, signed_headers
from mesh.operator.client import OperatorClient
from mesh.security import signing
from mesh.tools.web.catalogue import PROVIDERS
from tests.fakes.brave_server import BraveServer
from tests.fakes.cloudflare_server import ACCOUNT, CloudflareServer
from tests.fakes.firecrawl_server import FirecrawlServer
from tests.fakes.hurried import Hurried
from tests.fakes.model_servers import (
    Asked,
    Counted,
    RuleBroken,
    Said,
    WireReply,
    WireRequest,
    as_json,
)
from tests.fakes.openai_server import OpenAiServer
from tests.fakes.perplexity_server import PerplexityServer
from tests.fakes.web_servers import WebServer, on_the_wire, wire_request
from tests.unit.security.peer import Peer, read_request

SERVERS: Final[Mapping[str, type[WebServer]]] = {
    "brave": BraveServer,
    "perplexity": PerplexityServer,
    "firecrawl": FirecrawlServer,
    "cloudflare": CloudflareServer,
}
CAPABILITY: Final = {name: PROVIDERS[name].capabilities[0].value for name in SERVERS}
INSTRUCTIONS: Final = "Zanzibar is what the instructions are about."
_PLAY: Final = re.compile(r"play-([a-z0-9-]+)")
_ESCAPED: Final = re.compile(r"\\u\{([0-9a-f]+)\}")
_FRAMED: Final = re.compile(
    r"(?P<kind>(?:\w+: )?)\[\[mesh:(?P<run>\w+) result [^\n]*\]\]\n"
    r"(?P<text>.*)\n\[\[/mesh:(?P=run)\]\]",
    re.DOTALL,
)
WAIT_S: Final = 30.0

Line = Sequence[Said]


class Player(OpenAiServer):
    """A server that is compatible with OpenAI's, and whose model plays what an utterance names:
    `play-NAME` is answered by the lines of that play, one after the other, the last for ever.

    It keeps nothing of what it said, so any number of runs may ask at once.
    """

    def __init__(self) -> None:
        super().__init__(own=False)
        self.plays: dict[str, Sequence[Line]] = {}
        self.meanwhile: dict[str, Callable[[], object]] = {}
        """What happens once, by the play, while it thinks of its first line."""

    def reply(self, request: WireRequest) -> WireReply:
        self.requests.append(request)
        try:
            asked = self.read(request, json.loads(request.body))
        except RuleBroken as rule:
            self.broken.append(str(rule))
            return self.error(400, "")
        self.asked.append(asked)
        parts = tuple(self._line(asked))
        why = Stop.CALLS if any(isinstance(part, ToolUse) for part in parts) else Stop.END
        return WireReply(200, as_json(self.answer(parts, why, Counted())))

    def of(self, play: str) -> list[Asked]:
        """What it was asked for a play, in order."""
        return [asked for asked in self.asked if _play_of(asked) == play]

    def told(self, play: str) -> list[str]:
        """What it was last told of the calls of a play, in order, failed or not."""
        return [part.text for part in _results(self.of(play)[-1])]

    def serve(self, sock: socket.socket, _over: threading.Event) -> None:
        sock.sendall(on_the_wire(self.reply(wire_request(read_request(sock)))))

    def on_loopback(self) -> Peer:
        return Peer(self.serve, reads_request=False)

    def _line(self, asked: Asked) -> Line:
        play = _play_of(asked)
        self.meanwhile.pop(play, lambda: None)()
        lines = self.plays[play]
        called = sum(any(isinstance(it, ToolUse) for it in turn.parts) for turn in asked.turns)
        return lines[min(called, len(lines) - 1)]


def _play_of(asked: Asked) -> str:
    texts = [it.text for turn in asked.turns for it in turn.parts if isinstance(it, Text)]
    return _PLAY.findall("\n".join(texts))[-1]


def _results(asked: Asked) -> list[ToolResult]:
    return [it for turn in asked.turns for it in turn.parts if isinstance(it, ToolResult)]


def unframed(told: str) -> str:
    """What a model is told of a call, without the frame of what comes from outside."""
    found = _FRAMED.fullmatch(told)
    return told if found is None else found["kind"] + found["text"]


def observed(told: str) -> Any:
    """The JSON of an observation, as it was before what hides in it was shown as escapes."""
    whole = _ESCAPED.sub(lambda it: chr(int(it[1], 16)), unframed(told))
    return json.loads(whole, strict=False)


class FreshMinute(SystemClock):
    """The machine's clock, set forward so that a UTC minute has just begun."""

    def __init__(self) -> None:
        self._ahead_ms = MINUTE_MS - super().now_ms() % MINUTE_MS

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


class Others:
    """All that is outside of Mesh: the model, the providers, and who speaks and is answered."""

    def __init__(self) -> None:
        self.model = Player()
        self.providers = {name: server() for name, server in SERVERS.items()}
        for name, server in self.providers.items():
            server.key = f"canary-key-for-{name}-0123456789abcdef"
        self.receiver = Receiver()
        self.peers = {name: server.on_loopback() for name, server in self.providers.items()}
        self._asked = self.model.on_loopback()

    @property
    def base_url(self) -> str:
        """The model's."""
        return f"http://127.0.0.1:{self._asked.port}/v1"

    @property
    def pairs(self) -> list[str]:
        """What must be let through by its own address."""
        return [self.receiver.pair, f"127.0.0.1:{self._asked.port}"]

    @property
    def stand_ins(self) -> dict[str, str]:
        return {name: f"127.0.0.1:{peer.port}" for name, peer in self.peers.items()}

    def close(self) -> None:
        self.receiver.close()
        for peer in (*self.peers.values(), self._asked):
            peer.close()


@dataclass
class Third:
    """An install, as the other system knows it."""

    gateway: str
    install_id: str
    secret: str = field(repr=False)
    clock: Clock = field(default_factory=SystemClock)

    def say(self, message_id: str, text: str, room: str = "room-of-canasta") -> httpx.Response:
        payload = {
            "message_id": message_id,
            "conversation_key": room,
            "actor_id": "actor-grace",
            "body": text,
        }
        body = json.dumps(payload).encode()
        headers = signed_headers(self.secret, self.install_id, body, self.clock.now_ms() // 1000)
        answer = httpx.post(self.gateway + INGRESS_PATH, headers=headers, content=body)
        assert answer.status_code == 202, answer.text
        return answer


class Mesh:
    """A running Mesh, by its operator API and its ingress, and everybody it deals with."""

    def __init__(
        self, others: Others, gateway: str, token: str, clock: Clock | None = None
    ) -> None:
        self.others = others
        self.gateway = gateway
        self.client = OperatorClient(gateway, token)
        self._clock = clock or SystemClock()
        self._said = 0

    # ---- what an operator does

    def agent(self, slug: str, **limits: int) -> Third:
        """An agent with the scripted model, and an enabled install of its own."""
        model = {"kind": "openai", "name": "m", "base_url": self.others.base_url}
        body = {"slug": slug, "instructions": INSTRUCTIONS, "model": model}
        self.client.call(
            "POST", "/api/agents", body=body | {"limits": limits}, idempotency_key=f"agent-{slug}"
        )
        made = self.client.call(
            "POST",
            f"/api/agents/{slug}/connectors",
            body={"kind": "generic", "delivery_url": self.others.receiver.url},
            idempotency_key=f"install-{slug}",
        )
        reached = self.client.call("POST", f"/api/connectors/{made['install_id']}/enable")
        assert reached["state"] == "enabled", reached
        return Third(self.gateway, made["install_id"], made["secret"], self._clock)

    def sets(
        self,
        provider: str,
        *,
        of: str | None = None,
        key: str | None = None,
        per_minute: int = 1_000,
        per_run: int = 1_000,
    ) -> Any:
        """The instance's connection, or that of an agent, to a provider, with its own key."""
        config = {"account_id": ACCOUNT} if provider == "cloudflare" else {}
        return self.puts(
            CAPABILITY[provider],
            of=of,
            mode="custom",
            provider=provider,
            config=config,
            api_key=key or self.others.providers[provider].key,
            limits={"requests_per_minute": per_minute, "requests_per_run": per_run},
        )

    def puts(self, capability: str, *, of: str | None = None, **settings: Any) -> Any:
        """Replaces the settings that stand."""
        path = ("/api" if of is None else f"/api/agents/{of}") + f"/web-access/{capability}"
        stands = self.client.call("GET", path)["settings"]
        version = 0 if stands is None else stands["version"]
        return self.client.call("PUT", path, body={**settings, "version": version})

    # ---- what a third party does

    def plays(self, third: Third, play: str, *lines: Line, **more: Any) -> Play:
        """Says the utterance that the model answers with these lines, and waits for the reply."""
        return self.begins(third, play, *lines, **more).ends()

    def begins(self, third: Third, play: str, *lines: Line, **more: Any) -> Play:
        """Says the utterance, and waits for nothing."""
        self.others.model.plays[play] = lines
        self._said += 1
        message_id = f"m-{self._said}"
        answer = third.say(message_id, f"please play-{play}", **more)
        return Play(self, third, play, message_id, answer.json()["run_id"])

    def close(self) -> None:
        self.client.close()


@dataclass
class Play:
    """A message, and what becomes of it."""

    mesh: Mesh
    third: Third
    name: str
    message_id: str
    run_id: str

    def ends(self) -> Play:
        """Waits until the signed reply is there."""
        assert self.reply() is not None
        return self

    def reply(self) -> dict[str, Any]:
        """The reply, which verifies under the install's secret."""
        receiver = self.mesh.others.receiver

        def found() -> Any:
            return next(
                (it for it in receiver.deliveries if it.document.get("run_id") == self.run_id), None
            )

        with receiver._came:
            assert receiver._came.wait_for(lambda: found() is not None, WAIT_S), "no reply came"
            delivery = found()
        headers = signing.parse_headers(
            delivery.headers["x-mesh-install"],
            delivery.headers["x-mesh-timestamp"],
            delivery.headers["x-mesh-signature"],
        )
        assert headers is not None
        assert signing.verify_outbound(headers, delivery.body, [self.third.secret])
        document: dict[str, Any] = delivery.document
        assert document["in_reply_to"] == self.message_id
        return document

    def told(self) -> list[str]:
        """What the model was told of its calls, in the frames that it was told it in."""
        return self.mesh.others.model.told(self.name)

    def calls(self) -> list[dict[str, Any]]:
        """The steps of its calls, as an operator reads them."""
        run = self.mesh.client.call("GET", f"/api/runs/{self.run_id}")
        return [step for step in run["steps"] if step["kind"] == "tool"]


class Here(Mesh):
    """`mesh local` in this process, so that the suite's watch over secrets sees all of it."""

    def __init__(
        self, others: Others, running: RunningStack, hurried: Hurried, clock: Clock | None
    ) -> None:
        stack = running.stack
        super().__init__(others, stack.base_url, stack.bootstrap(), clock)
        self.aws = stack.aws
        self.hurried = hurried

    def rows(self, prefix: str) -> list[dict[str, Any]]:
        """Every row whose sort key begins so."""
        return [row for row in self.aws.items() if row["sk"].startswith(prefix)]

    def meters(self) -> dict[str, int]:
        """What was counted: of runs by capability, of minutes by owner and capability."""
        found: dict[str, int] = {}
        for row in self.rows("METER"):
            of = row["sk"] if row["sk"] != "METER" else row["pk"].rpartition("#")[0]
            found[of] = found.get(of, 0) + row["calls"]
        return found


@contextmanager
def here(clock: Clock | None = None) -> Iterator[Here]:
    """A running one, with everybody it deals with, until the end."""
    others = Others()
    running = compose(0, others.pairs, level="ERROR", stand_ins=others.stand_ins, clock=clock)
    hurried = running.stack._egress = Hurried(running.stack._egress)
    mesh = Here(others, running, hurried, clock)
    running.start()
    try:
        yield mesh
    finally:
        mesh.close()
        running.stop()
        others.close()
