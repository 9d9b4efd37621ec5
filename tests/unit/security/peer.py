"""Owns the other end of the wire in tests: a server on loopback that does what a script says.

Refuses to know HTTP beyond reading one request: scripts write the bytes themselves.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from mesh.kernel.clock import SystemClock
from mesh.security.egress import (
    EgressLimits,
    EgressPolicy,
    GuardedEgress,
    Resolver,
    StrictJudge,
)
from mesh.security.urls import Allowlist, Target

Script = Callable[[socket.socket, threading.Event], None]
"""Given the connection, with the request read, and an event that is set when the test is over."""

HOST = "receiver.example"
LIMITS = EgressLimits()
SHORT = EgressLimits(dns_s=0.2, connect_s=1.2, total_s=1.2, drain_s=0.2)
"""For tests that wait until a time is over; the others need none of it. A handshake must be over
within it on a busy machine, where two threads share what is left of a core."""


class Peer:
    """Listens on loopback until it is closed, and keeps the requests that it read."""

    def __init__(
        self,
        script: Script,
        tls: ssl.SSLContext | None = None,
        *,
        address: tuple[str, int] = ("127.0.0.1", 0),
        reads_request: bool = True,
    ) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._script = script
        self._tls = tls
        self._reads_request = reads_request
        self._over = threading.Event()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(address)
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        self._over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(5)
        self._listener.close()
        for sock in self._open:
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
                self._threads.append(thread)
                self._open.append(sock)
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError):  # the other side closes when it likes
            try:
                if self._tls is not None:
                    sock = self._tls.wrap_socket(sock, server_side=True)
                    self._open.append(sock)
                if self._reads_request:
                    self.requests.append(read_request(sock))
                self._script(sock, self._over)
            finally:
                sock.close()


class AdmitPeer(StrictJudge):
    """The strict judgement of URLs, with loopback addresses let through for the peer's port."""

    def __init__(self, port: int) -> None:
        self._port = port

    def judge_address(self, target: Target, address: str) -> str | None:
        if target.port == self._port and address.startswith("127."):
            return None
        return super().judge_address(target, address)


def egress_to(
    port: int,
    tls: ssl.SSLContext,
    *,
    resolver: Resolver | None = None,
    addresses: Sequence[str] = ("127.0.0.1",),
    limits: EgressLimits = LIMITS,
) -> GuardedEgress:
    """The real client, let through to the peer's port, with every name leading to `addresses`."""
    return GuardedEgress(
        SystemClock(),
        judge=AdmitPeer(port),
        resolver=resolver or (lambda host, port: addresses),
        tls=tls,
        limits=limits,
    )


def policy_for(port: int) -> EgressPolicy:
    """A policy whose allowlist names the peer's port."""
    return EgressPolicy(allow=(Allowlist.parse([f"*.example:{port}"]),))


def says(*parts: bytes) -> Script:
    """Sends these and closes."""

    def script(sock: socket.socket, _over: threading.Event) -> None:
        for part in parts:
            sock.sendall(part)

    return script


def drips(first: bytes, endless: bytes) -> Script:
    """Sends `first`, then `endless` again and again, with little pauses, until the test is over."""

    def script(sock: socket.socket, over: threading.Event) -> None:
        sock.sendall(first)
        while not over.wait(0.02):
            sock.sendall(endless)

    return script


def ends_properly(said: bytes) -> Script:
    """Sends this, then TLS's own end, which tells a whole answer from one that was cut."""

    def script(sock: socket.socket, _over: threading.Event) -> None:
        assert isinstance(sock, ssl.SSLSocket)
        sock.sendall(said)
        sock.unwrap()

    return script


def hangs(sock: socket.socket, over: threading.Event) -> None:
    """Says nothing until the test is over."""
    over.wait(10)


def resets(sock: socket.socket, over: threading.Event) -> None:
    """Breaks the connection off with a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def read_request(sock: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(sock)
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        body += _some(sock)
    return head + b"\r\n\r\n" + body


def _some(sock: socket.socket) -> bytes:
    data = sock.recv(65_536)
    if not data:
        raise ConnectionError("closed in the middle of a request")
    return data
