"""The listening socket: HTTP/1.1 as clients really send it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from infra.local.gateway import Request, Response
from infra.local.server import Server


def quiet(event: str, /, **fields: str | int | float | bool | None) -> None:
    raise AssertionError(f"{event} {fields}")


class Echo:
    """Answers with what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Response:
        self.requests.append(request)
        body = json.dumps({"method": request.method, "target": request.target}).encode()
        return Response(200, (("Content-Type", "application/json"),), body)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def port(echo: Echo) -> Iterator[int]:
    server = Server(0, quiet)
    server.start(echo)
    yield server.port
    server.stop()


def talk(port: int, sent: bytes) -> bytes:
    """Everything that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received = bytearray()
        while chunk := connection.recv(65_536):
            received += chunk
    return bytes(received)


def test_a_body_of_known_length_arrives_as_it_was_sent(port: int, echo: Echo) -> None:
    talk(port, b"POST /a?b=%20 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n\xff\x00a")
    (request,) = echo.requests
    assert (request.method, request.target, request.body) == ("POST", "/a?b=%20", b"\xff\x00a")


def test_a_chunked_body_is_put_together(port: int, echo: Echo) -> None:
    sent = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    talk(port, sent + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n")
    assert echo.requests[0].body == b"abcde"


def test_repeated_headers_are_handed_on_apart(port: int, echo: Echo) -> None:
    talk(port, b"GET / HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: 2\r\n\r\n")
    assert [value for name, value in echo.requests[0].headers if name.lower() == "x-a"] == [
        "1",
        "2",
    ]


def test_one_connection_carries_many_requests(port: int, echo: Echo) -> None:
    received = talk(
        port,
        b"POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na"
        b"POST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    )
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert [request.target for request in echo.requests] == ["/1", "/2"]


def test_the_servers_own_name_is_told_to_nobody(port: int) -> None:
    received = talk(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"server:" not in received.lower()


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nshort",
        b"POST / HTTP/1.1\r\nContent-Length: 1_0\r\n\r\n0123456789",
        b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\na",
        b"POST / HTTP/1.1\r\nno header\r\nContent-Length: 1\r\n\r\na",
        b"POST / HTTP/1.1\r\nContent-Length : 1\r\n\r\na",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_in_the_gateways_form(
    port: int, echo: Echo, sent: bytes
) -> None:
    received = talk(port, sent)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body) == {"message": "Bad Request"}
    assert echo.requests == []


def test_slashes_at_the_beginning_of_a_path_are_handed_on_as_they_came(
    port: int, echo: Echo
) -> None:
    talk(port, b"GET //a//b?c HTTP/1.1\r\nHost: x\r\n\r\n")
    assert echo.requests[0].target == "//a//b?c"


def test_head_gets_no_body(port: int) -> None:
    received = talk(port, b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert received.endswith(b"\r\n\r\n")


def test_a_port_in_use_is_an_os_error(port: int) -> None:
    with pytest.raises(OSError):
        Server(port, quiet)


def test_only_loopback_is_listened_on() -> None:
    server = Server(0, quiet)
    try:
        assert server.url == f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()
