"""Owns what the stand-ins of web providers share: what they were asked, what they answer next, and
how they answer over a socket.

Refuses what the real ones refuse: each reads a request by its API's own rules, answers as the API
does where one is broken, and says which. Refuses to be believed by courtesy: what it answers holds
fields nobody documented, and its errors hold words that must go no further.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from tests.fakes.model_servers import RuleBroken, WireReply, WireRequest, as_json, demand
from tests.unit.security.peer import Peer, Script, read_request

PRIVATE: Final = "PRIVATE words of the provider"
"""Stands in every error: it must reach neither a model nor a log."""
JSON: Final = {"Content-Type": "application/json; charset=utf-8"}
_KNOWN_HEADERS: Final = frozenset(
    {"host", "connection", "content-length", "content-type", "accept", "accept-encoding"}
    | {"user-agent"}
)

Line = WireReply | Script
"""What a stand-in does next: an answer, or whatever a script does with the connection."""
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the API understood it."""

    about: str
    """The query, or the URL of the page."""
    credential: str = field(repr=False)
    options: Mapping[str, Any]
    """Everything else that was asked for, by its name on the wire."""


class WebServer:
    """One API: reads requests by its rules, and does what it was told to do next.

    Safe to be asked from many threads at once.
    """

    key = "canary-key-of-a-provider-0123456789abcdef"
    """The one key that it takes."""
    own_headers: frozenset[str] = frozenset()
    """The headers that the API has beside those that every request has."""

    def __init__(self) -> None:
        self.requests: list[WireRequest] = []
        self.asked: list[Asked] = []
        self.broken: list[str] = []
        """The rules that requests broke."""
        self._next: list[Line] = []
        self._last: Line | None = None
        self._lock = threading.Lock()

    # ---- what a stand-in of an API has of its own

    def read(self, request: WireRequest) -> Asked:
        """What was asked. Raises RuleBroken, and Unauthorized."""
        raise NotImplementedError

    def answer(self, asked: Asked) -> Any:
        """The JSON of a good answer, where nothing else was scripted."""
        raise NotImplementedError

    def invalid(self) -> WireReply:
        """The API's answer to a request that breaks a rule."""
        raise NotImplementedError

    def unauthorized(self) -> WireReply:
        """The API's answer to a key that is not its own."""
        raise NotImplementedError

    # ---- the script

    def sends(self, *lines: Line) -> None:
        """What it does next, one after the other; the last is repeated."""
        with self._lock:
            self._next += lines

    def says(self, document: Any, status: int = 200, **headers: str) -> None:
        """Its next answer, as JSON; headers such as `retry_after="7"`."""
        self.sends(told(document, status, **headers))

    def line(self, request: WireRequest) -> Line:
        """What it does about a request."""
        with self._lock:
            self.requests.append(request)
        try:
            strange = request.headers.keys() - _KNOWN_HEADERS - self.own_headers
            demand(not strange, f"the headers {sorted(strange)} are known")
            demand(request.headers.get("accept-encoding") == "identity", "nothing is compressed")
            asked = self.read(request)
        except Unauthorized:
            return self.unauthorized()
        except RuleBroken as rule:
            with self._lock:
                self.broken.append(str(rule))
            return self.invalid()
        with self._lock:
            self.asked.append(asked)
            if self._next:
                self._last = self._next.pop(0)
            found = self._last
        return told(self.answer(asked)) if found is None else found

    def reply(self, request: WireRequest) -> WireReply:
        """Its answer, without a socket."""
        found = self.line(request)
        assert isinstance(found, WireReply), "a script needs a connection"
        return found

    def serve(self, sock: socket.socket, over: threading.Event) -> None:
        """Reads one request of a connection and does something about it."""
        found = self.line(wire_request(read_request(sock)))
        if isinstance(found, WireReply):
            sock.sendall(on_the_wire(found))
        else:
            found(sock, over)

    def on_loopback(self, tls: ssl.SSLContext | None = None) -> Peer:
        """Listens on a port of its own until it is closed."""
        return Peer(self.serve, tls, reads_request=False)

    def held(self, key: str) -> str:
        """The key, where it is the one. Raises Unauthorized."""
        if key != self.key:
            raise Unauthorized
        return key


class Unauthorized(Exception):
    """A key that the API does not know."""


def told(document: Any, status: int = 200, **headers: str) -> WireReply:
    """An answer of JSON; headers such as `retry_after="7"`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return WireReply(status, as_json(document), {**JSON, **named})


def on_the_wire(reply: WireReply) -> bytes:
    """A reply's bytes. Its length is told unless its headers tell how it is framed."""
    headers = dict(reply.headers)
    if not {"transfer-encoding", "content-length"} & {name.lower() for name in headers}:
        headers["Content-Length"] = str(len(reply.body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} So\r\n{lines}\r\n".encode() + reply.body


def wire_request(data: bytes) -> WireRequest:
    """A request from its bytes."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    method, path, version = first.split(" ")
    assert version == "HTTP/1.1"
    headers: dict[str, str] = {}
    for name, _, value in (line.partition(":") for line in lines):
        assert name.lower() not in headers, "a header is there once"
        headers[name.lower()] = value.strip()
    return WireRequest(method, path, headers, body)


# ---- reading what was asked


def bearer(request: WireRequest) -> str:
    """The token of an Authorization header; empty where there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme == "Bearer" else ""


def parameters(path: str) -> tuple[str, dict[str, str]]:
    """The path of a request, and its parameters. Raises RuleBroken."""
    path, _, query = path.partition("?")
    try:
        pairs = parse_qsl(query, True, True, encoding="utf-8", errors="strict") if query else []
    except ValueError:  # UnicodeDecodeError is one
        raise RuleBroken("the query is one") from None
    demand(len(dict(pairs)) == len(pairs), "each parameter is there once")
    return path, dict(pairs)


def json_body(request: WireRequest) -> dict[str, Any]:
    """The JSON object of a body, no key of it twice. Raises RuleBroken."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    demand(kind == "application/json", "the body is called JSON")
    try:
        body = json.loads(request.body.decode("utf-8"), object_pairs_hook=_once)
    except ValueError:
        raise RuleBroken("the body is JSON") from None
    demand(isinstance(body, dict), "the body is an object")
    assert isinstance(body, dict)
    return body


def demand_known(given: Mapping[str, Any], rules: Mapping[str, Callable[[Any], object]]) -> None:
    """Holds that every field is known, and is what its rule wants."""
    for name, value in given.items():
        demand(name in rules, f"there is a field {name}")
        demand(rules[name](value), f"{name} is as it has to be")


def a_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def a_bool(value: Any) -> bool:
    return isinstance(value, bool)


def a_number(low: int, high: int) -> Callable[[Any], bool]:
    """A rule: a whole number between these."""
    return lambda value: type(value) is int and low <= value <= high


def one_of(*values: str) -> Callable[[Any], bool]:
    """A rule: one of these words."""
    return lambda value: isinstance(value, str) and value in values


def a_list(rule: Callable[[Any], object], most: int = 1000) -> Callable[[Any], bool]:
    """A rule: a list of what another rule wants."""
    return lambda value: isinstance(value, list) and len(value) <= most and all(map(rule, value))


def a_web_url(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://"))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    demand(len(dict(pairs)) == len(pairs), "each field is there once")
    return dict(pairs)
