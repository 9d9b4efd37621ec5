"""Each connector once over a real connection: the guard's own TLS, and the SDK's own HTTP."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest
import trustme

from mesh.models.anthropic import AnthropicModel
from mesh.models.bedrock import BedrockModel
from mesh.models.contract import ModelConnector, ModelFailure, ModelFailureKind, Text, Usage
from mesh.models.openai import OpenAiModel
from mesh.storage.bedrock import BedrockConverse
from mesh.storage.clients import SessionClients, new_session
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.converse_server import ConverseServer
from tests.fakes.model_servers import ModelServer, WireReply, WireRequest
from tests.fakes.openai_server import OpenAiServer
from tests.fakes.time import SimulatedClock
from tests.unit.models.apis import KEY, request
from tests.unit.security.peer import HOST, Peer, Script, egress_to, hangs, policy_for

Connect = Callable[[Peer], ModelConnector]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def served(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(context)
    return context


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    authority.configure_trust(context)
    return context


@pytest.fixture(params=["anthropic", "openai", "bedrock"])
def line(
    request: pytest.FixtureRequest,
    served: ssl.SSLContext,
    trusting: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Line]:
    line = Line(request.param, served, trusting, monkeypatch)
    yield line
    line.close()


class Line:
    """A connector and a stand-in, with a connection of their own for each request."""

    def __init__(
        self,
        name: str,
        served: ssl.SSLContext,
        trusting: ssl.SSLContext,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.server: ModelServer
        self.peers: list[Peer] = []
        self._name, self._served, self._trusting = name, served, trusting
        self._monkeypatch = monkeypatch
        match name:
            case "anthropic":
                self.server = AnthropicServer()
            case "openai":
                self.server = OpenAiServer(own=False)
            case _:
                self.server = ConverseServer()

    def model(self, script: Script | None = None) -> ModelConnector:
        """The connector, led to a peer that lets the stand-in answer unless it has a script."""
        tls = None if self._name == "bedrock" else self._served
        peer = Peer(script or self._answers, tls)
        self.peers.append(peer)
        if self._name == "bedrock":
            url = f"http://127.0.0.1:{peer.port}"
            self._monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", url)
            session = new_session()
            session.set_config_variable("region", "eu-west-1")
            session.set_credentials("AKIDEXAMPLE", KEY)
            converse = BedrockConverse(SessionClients(session).bedrock)
            return BedrockModel(converse, clock=SimulatedClock())
        egress, policy = egress_to(peer.port, self._trusting), policy_for(peer.port)
        base, clock = f"https://{HOST}:{peer.port}", SimulatedClock()
        if self._name == "anthropic":
            return AnthropicModel(egress, policy, key=lambda: KEY, clock=clock, base_url=base)
        return OpenAiModel(egress, policy, key=lambda: KEY, clock=clock, base_url=f"{base}/v1")

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        assert self.server.broken == []

    def _answers(self, sock: socket.socket, _over: threading.Event) -> None:
        head, _, body = self.peers[-1].requests[-1].partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        method, path, _ = first.split(" ")
        named = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in named}
        reply = self.server.reply(WireRequest(method, path, headers, body))
        more = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        length = f"content-length: {len(reply.body)}\r\n"
        sock.sendall(f"HTTP/1.1 {reply.status} So\r\n{more}{length}\r\n".encode() + reply.body)


def test_an_answer_comes_over_a_real_connection(line: Line) -> None:
    line.server.says(Text("A wild goat. 🐐"))
    answer = line.model().answer(request(), 20.0)
    assert (answer.text, answer.usage) == ("A wild goat. 🐐", Usage(120, 30))


def test_an_error_comes_over_a_real_connection_and_is_not_asked_for_again(line: Line) -> None:
    error = line.server.error(429, "")
    line.server.sends(WireReply(429, error.body, {**error.headers, "Retry-After": "7"}))
    with pytest.raises(ModelFailure) as caught:
        line.model().answer(request(), 20.0)
    assert caught.value.kind is ModelFailureKind.THROTTLED
    assert caught.value.retry_after_s == 7.0
    assert line.peers[0].connections == 1


def test_an_api_that_says_nothing_is_given_up_in_time(line: Line) -> None:
    with pytest.raises(ModelFailure) as caught:
        line.model(hangs).answer(request(), 0.3)
    assert caught.value.kind is ModelFailureKind.UNREACHABLE
    assert line.peers[0].connections == 1


def test_an_answer_that_breaks_off_is_none(line: Line) -> None:
    def breaks_off(sock: socket.socket, _over: threading.Event) -> None:
        sock.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{"content"')

    with pytest.raises(ModelFailure) as caught:
        line.model(breaks_off).answer(request(), 20.0)
    assert caught.value.kind is ModelFailureKind.UNREACHABLE
    assert line.peers[0].connections == 1
