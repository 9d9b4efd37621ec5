"""Owns the connectors as tests reach them: each with the stand-in that speaks its API behind it.

Refuses to be met half way: requests go through the product's egress contract, or through botocore's
own serializer, signer and parser, and only the wire is the stand-in's.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import EndpointConnectionError
from botocore.session import Session

from mesh.models.anthropic import AnthropicModel
from mesh.models.bedrock import BedrockModel
from mesh.models.contract import (
    ModelAnswer,
    ModelConnector,
    ModelRequest,
    Side,
    Text,
    ToolChoice,
    ToolSpec,
    Turn,
)
from mesh.models.openai import OpenAiModel
from mesh.security.egress import EgressFailureKind, EgressPolicy, Reply
from mesh.storage.bedrock import BedrockConverse
from mesh.storage.clients import SessionClients, new_session
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.converse_server import ConverseServer
from tests.fakes.egress import PUBLIC_ADDRESS, Call, ScriptedEgress, failure
from tests.fakes.model_servers import ModelServer, WireRequest
from tests.fakes.openai_server import OpenAiServer
from tests.fakes.time import SimulatedClock

KEY = "sk-SECRET-0123456789"
TIMEOUT_S = 30.0
COMPATIBLE_URL = "https://models.example/v1"

LOOK_UP = ToolSpec(
    "look_up",
    "Looks a word up.",
    {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
SHOOT = ToolSpec("screenshot", "Takes a picture of the page.", {"type": "object", "properties": {}})


def user(*parts: Any) -> Turn:
    """A turn of the user's; texts may be plain strings."""
    return Turn(Side.USER, tuple(Text(p) if isinstance(p, str) else p for p in parts))


def assistant(*parts: Any) -> Turn:
    """A turn of the assistant's; texts may be plain strings."""
    return Turn(Side.ASSISTANT, tuple(Text(p) if isinstance(p, str) else p for p in parts))


def request(
    *turns: Turn,
    system: str = "You are Ada.",
    tools: tuple[ToolSpec, ...] = (LOOK_UP, SHOOT),
    tool_choice: ToolChoice = ToolChoice.AUTO,
    model: str | None = "a-model",
    max_output_tokens: int = 800,
) -> ModelRequest:
    return ModelRequest(
        model=model,
        system=system,
        turns=turns or (user("What is an ibex?"),),
        question="What is an ibex?",
        max_output_tokens=max_output_tokens,
        tools=tools,
        tool_choice=tool_choice,
    )


@dataclass
class Api:
    """A connector, the stand-in behind it, and the one switch between them."""

    name: str
    server: ModelServer
    model: ModelConnector
    clock: SimulatedClock
    break_network: Callable[[], None] = field(repr=False)
    """From now on no request gets an answer."""

    def ask(self, asked: ModelRequest | None = None, timeout_s: float = TIMEOUT_S) -> ModelAnswer:
        """The connector's answer; the stand-in must have found no rule broken."""
        answer = self.model.answer(asked or request(), timeout_s)
        assert self.server.broken == []
        return answer


def anthropic(**options: Any) -> Api:
    return _over_egress(
        "anthropic",
        AnthropicServer(),
        AnthropicModel,
        "https://api.anthropic.com/v1/messages",
        **options,
    )


def openai(**options: Any) -> Api:
    return _over_egress(
        "openai",
        OpenAiServer(),
        OpenAiModel,
        "https://api.openai.com/v1/chat/completions",
        **options,
    )


def compatible(**options: Any) -> Api:
    return _over_egress(
        "compatible",
        OpenAiServer(own=False),
        OpenAiModel,
        f"{COMPATIBLE_URL}/chat/completions",
        **{"base_url": COMPATIBLE_URL} | options,
    )


def bedrock(**options: Any) -> Api:
    server, clock = ConverseServer(), SimulatedClock()
    session, line = _session()
    line.server = server
    model = BedrockModel(BedrockConverse(SessionClients(session).bedrock, **options), clock=clock)
    return Api("bedrock", server, model, clock, line.cut)


class _Line:
    """Where the one session of these tests leads to."""

    server: ModelServer | None = None

    def cut(self) -> None:
        self.server = None

    def send(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        if self.server is None:
            raise EndpointConnectionError(endpoint_url=request.url)
        headers = {name.lower(): _as_text(value) for name, value in request.headers.items()}
        path = "/" + request.url.split("/", 3)[3]
        asked = WireRequest(request.method or "", path, headers, _as_bytes(request.body))
        reply = self.server.reply(asked)
        return AWSResponse(request.url, reply.status, dict(reply.headers), _Raw(reply.body))


@cache
def _session() -> tuple[Session, _Line]:
    """One for all tests: reading the SDK's models takes most of their time."""
    session, line = new_session(), _Line()
    session.set_config_variable("region", "eu-west-1")
    session.set_credentials("AKIDEXAMPLE", KEY)
    session.register("before-send.bedrock-runtime.Converse", line.send)
    return session, line


def _over_egress(
    name: str, server: ModelServer, connector: Callable[..., Any], url: str, **options: Any
) -> Api:
    egress, clock = ScriptedEgress(), SimulatedClock()
    egress.script(url, lambda call: _reply(server, call))
    given = {"key": lambda: KEY, "clock": clock} | options
    model = connector(egress, EgressPolicy(), **given)
    return Api(
        name,
        server,
        model,
        clock,
        lambda: egress.script(url, failure(EgressFailureKind.CLOSED)),
    )


def _reply(server: ModelServer, call: Call) -> Reply:
    path = "/" + call.url.split("/", 3)[3]
    headers = {name.lower(): value for name, value in call.headers.items()}
    reply = server.reply(WireRequest(call.method, path, headers, call.body))
    return Reply(reply.status, PUBLIC_ADDRESS, tuple(reply.headers.items()), reply.body)


class _Raw(io.BytesIO):
    """What botocore reads a body from."""

    def stream(self, **_: Any) -> Any:
        yield self.read()


def _as_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _as_bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else str(body).encode()


BUILDERS: Mapping[str, Callable[..., Api]] = {
    "anthropic": anthropic,
    "openai": openai,
    "compatible": compatible,
    "bedrock": bedrock,
}
