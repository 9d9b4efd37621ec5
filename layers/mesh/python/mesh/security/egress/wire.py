"""Owns one connection and the one exchange on it: dial, secure, send, read, close.

Refuses to be kept waiting or to be fed: its deadlines are wall-clock, held by a watchdog that shuts
the socket down from another thread however busily the peer drips, and its reading is bounded in
bytes, headers and interim answers.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import h11

from mesh.kernel.errors import Phase
from mesh.security.egress.contract import EgressFailure, EgressFailureKind, EgressLimits, Reply
from mesh.security.urls import Target

_RECV_BYTES: Final = 4096
_INSTANT_S: Final = 0.001
"""The shortest time-out: 0 would mean not to block at all."""
_OWN_HEADERS: Final = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "accept-encoding", "expect",
        "upgrade", "te", "trailer", "keep-alive", "proxy-authorization", "proxy-connection",
    }
)  # fmt: skip
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_HEADER_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?\Z")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([2-5][0-9][0-9])(?: [^\r\n]*)?\r?\n")

_TEXTS: Final = {
    EgressFailureKind.CONNECT: "no connection",
    EgressFailureKind.TLS: "no secure connection: the certificate or the protocol is not accepted",
    EgressFailureKind.TIMEOUT: "no answer in time",
    EgressFailureKind.CLOSED: "the connection was closed before the answer was complete",
    EgressFailureKind.PROTOCOL: "the answer is not HTTP",
    EgressFailureKind.HEAD_TOO_LARGE: "the headers of the answer are too large",
    EgressFailureKind.BODY_TOO_LARGE: "the answer is too large",
}


def dial(address: str, port: int, seconds: float) -> socket.socket:
    """A TCP connection. Raises EgressFailure CONNECT or TIMEOUT; nothing was sent then."""
    sock = None
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(max(_INSTANT_S, seconds))
        sock.connect((address, port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        if sock is not None:
            sock.close()
        late = isinstance(error, TimeoutError)
        kind = EgressFailureKind.TIMEOUT if late else EgressFailureKind.CONNECT
        raise _failure(kind, Phase.BEFORE, address) from None
    return sock


def message_of(method: str, target: Target, headers: Mapping[str, str], body: bytes) -> h11.Request:
    """The head of the request. Raises ValueError, which never quotes it, on a wrong header."""
    for name, value in headers.items():
        if name.lower() in _OWN_HEADERS or _HEADER_NAME.match(name) is None:
            raise ValueError("a header that the egress sets itself, or no header name")
        if _HEADER_VALUE.match(value) is None:
            raise ValueError(f"the value of {name} is no header value")
    own = {"Host": target.authority, "Accept-Encoding": "identity", "Connection": "close"}
    if body or method not in ("GET", "HEAD"):
        own["Content-Length"] = str(len(body))
    return h11.Request(method=method, target=target.path, headers=[*own.items(), *headers.items()])


class Wire:
    """One connection and the one exchange on it."""

    def __init__(self, sock: socket.socket, address: str, limits: EgressLimits) -> None:
        self.address = address
        self._sock = sock
        self._limits = limits
        self._watchdog = _Watchdog(sock)
        # The bound on the head is ours to hold (`read_head`): this one looks at it too late.
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self._received_bytes = 0
        self._ended = False

    def give_up(self) -> None:
        """Ends the exchange now, from any thread: nobody waits for it any more."""
        self._watchdog.give_up()

    def arm(self, seconds: float) -> None:
        """Gives the exchange so long from now."""
        # Only a belt: a time-out of the socket begins anew with every byte.
        self._sock.settimeout(max(_INSTANT_S, seconds))
        self._watchdog.arm(seconds)

    def secure(self, tls: ssl.SSLContext, host: str, seconds: float) -> None:
        """Speaks TLS for `host`. Raises EgressFailure TLS or TIMEOUT."""
        self.arm(seconds)
        try:
            self._sock = wrapped = tls.wrap_socket(
                self._sock,
                server_hostname=host,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,
            )
            self._watchdog.watch(wrapped)
            wrapped.do_handshake()
        except TimeoutError:
            raise self._failure(EgressFailureKind.TIMEOUT, Phase.BEFORE) from None
        except OSError:  # every error of TLS is one
            raise self._failure(EgressFailureKind.TLS, Phase.BEFORE) from None

    def send(self, message: h11.Request, body: bytes) -> None:
        """Sends the request. A peer that closes early may have answered: that is no error yet."""
        data = b"".join(
            part or b""
            for part in (
                self._http.send(message),
                self._http.send(h11.Data(data=body)) if body else b"",
                self._http.send(h11.EndOfMessage()),
            )
        )
        if self._watchdog.expired:
            raise self._failure(EgressFailureKind.TIMEOUT, Phase.BEFORE)
        with suppress(OSError):
            self._sock.sendall(data)

    def read_head(self) -> h11.Response:
        """The head of the answer, interim ones passed over. Raises EgressFailure."""
        interim = 0
        while True:
            event = self._next_event(Phase.DURING)
            match event:
                case h11.InformationalResponse():
                    interim += 1
                    if interim > self._limits.informational_max:
                        raise self._failure(EgressFailureKind.PROTOCOL, Phase.DURING)
                case h11.Response():
                    if self._head_bytes() > self._limits.head_bytes_max or (
                        len(event.headers) > self._limits.headers_max
                    ):
                        raise self._failure(EgressFailureKind.HEAD_TOO_LARGE, Phase.AFTER)
                    return event
                case h11.NEED_DATA:
                    if self._head_bytes() > self._limits.head_bytes_max:
                        raise self._failure(EgressFailureKind.HEAD_TOO_LARGE, Phase.DURING)
                    self._receive(Phase.DURING)
                case _:
                    raise self._failure(EgressFailureKind.CLOSED, Phase.DURING)

    def status_so_far(self) -> int | None:
        """The status line of a head that broke off; None when not even that had come."""
        match = _STATUS_LINE.match(self._http.trailing_data[0])
        return int(match[1]) if match else None

    def read_some(self, bytes_max: int) -> bytes:
        """The first bytes of the body, as far as they come; never an error."""
        got = bytearray()
        with suppress(EgressFailure):
            for data in self._body():
                got += data
                if len(got) >= bytes_max:
                    break
        return bytes(got[:bytes_max])

    def read_whole(self, bytes_max: int) -> bytes:
        """All of the body. Raises EgressFailure when it is too large or breaks off."""
        got = bytearray()
        for data in self._body():
            got += data
            if len(got) > bytes_max:
                raise self._failure(EgressFailureKind.BODY_TOO_LARGE, Phase.AFTER)
        return bytes(got)

    def reply(self, head: h11.Response, body: bytes) -> Reply:
        headers = tuple(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers
        )
        return Reply(head.status_code, self.address, headers, body)

    def close(self) -> None:
        self._watchdog.disarm()
        self._sock.close()

    def _body(self) -> Iterator[bytes]:
        while True:
            event = self._next_event(Phase.AFTER)
            match event:
                case h11.Data():
                    yield bytes(event.data)
                case h11.EndOfMessage():
                    return
                case h11.NEED_DATA:
                    self._receive(Phase.AFTER)
                case _:
                    raise self._failure(EgressFailureKind.CLOSED, Phase.AFTER)

    def _next_event(self, phase: Phase) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError:
            # Its text may quote the peer.
            kind = EgressFailureKind.CLOSED if self._ended else EgressFailureKind.PROTOCOL
            raise self._failure(kind, phase) from None

    def _receive(self, phase: Phase) -> None:
        try:
            data = self._sock.recv(_RECV_BYTES)
        except TimeoutError:
            raise self._failure(EgressFailureKind.TIMEOUT, phase) from None
        except ssl.SSLEOFError:
            raise self._failure(EgressFailureKind.CLOSED, phase) from None
        except ssl.SSLError:
            raise self._failure(EgressFailureKind.TLS, phase) from None
        except OSError:
            raise self._failure(EgressFailureKind.CLOSED, phase) from None
        if not data and (self._watchdog.expired or phase is Phase.DURING):
            raise self._failure(EgressFailureKind.CLOSED, phase)
        self._ended = not data
        self._received_bytes += len(data)
        self._http.receive_data(data)

    def _head_bytes(self) -> int:
        """How much the heads took, interim ones included; what follows the last is not counted."""
        if self._http.their_state is h11.SEND_RESPONSE:
            return self._received_bytes
        return self._received_bytes - len(self._http.trailing_data[0])

    def _failure(self, kind: EgressFailureKind, phase: Phase) -> EgressFailure:
        if self._watchdog.expired:
            # Whatever the error looks like: it is the watchdog's doing.
            kind = EgressFailureKind.TIMEOUT
        return _failure(kind, phase, self.address)


class _Watchdog:
    """Shuts a socket down when its time is over, from outside, whatever the socket is doing."""

    def __init__(self, sock: socket.socket) -> None:
        self.expired = False
        self._lock = threading.Lock()
        self._sock = sock
        self._timer: threading.Timer | None = None

    def watch(self, sock: socket.socket) -> None:
        """From now on it is this socket."""
        with self._lock:
            self._sock = sock

    def arm(self, seconds: float) -> None:
        """The time is over in `seconds`; an earlier order no longer holds."""
        self.disarm()
        timer = threading.Timer(max(0.0, seconds), lambda: self._expire(timer))
        timer.daemon = True
        with self._lock:
            self._timer = timer
        timer.start()

    def disarm(self) -> None:
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def give_up(self) -> None:
        """The time is over now, whatever it was armed for."""
        with self._lock:
            self._end()

    def _expire(self, timer: threading.Timer) -> None:
        with self._lock:
            if self._timer is timer:  # neither disarmed nor armed anew in the meantime
                self._end()

    def _end(self) -> None:
        self.expired = True
        with suppress(OSError):
            # Past the TLS layer, which the other thread is in the middle of using.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


def _failure(kind: EgressFailureKind, phase: Phase, address: str) -> EgressFailure:
    return EgressFailure(kind, phase, f"{address}: {_TEXTS[kind]}")
