"""Owns the local stack's only listening socket: HTTP/1.1 on loopback, in front of the gateway.

Refuses every other interface. It hands on each header line as it came, repeated ones apart: how
they are joined is the gateway's affair.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from infra.local.gateway import BODY_BYTES_MAX, Request, Response
from mesh.kernel.log import Log, error_name

HOST: Final = "127.0.0.1"
IDLE_S: Final = 30.0
_CHUNK_LINE_BYTES_MAX: Final = 256
# What `int` takes beside digits (signs, underscores, `0x`, white space) is no HTTP.
_LENGTH: Final = re.compile(r"[0-9]{1,19}\Z")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?\r?\n\Z")

Answer = Callable[[Request], Response]


class _BadRequest(Exception):
    """The request cannot be read as HTTP/1.1."""


class Server:
    """Listens on 127.0.0.1. OSError when the port is in use."""

    def __init__(self, port: int, log: Log) -> None:
        self._http = _HttpServer((HOST, port), _Connection, log)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )

    @property
    def port(self) -> int:
        """The port, also where 0 was asked for."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """Scheme, host and port, without a slash at the end."""
        return f"http://{HOST}:{self.port}"

    def start(self, answer: Answer) -> None:
        """Starts answering with `answer`, in a thread for each connection."""
        self._http.answer = answer
        self._thread.start()

    def stop(self) -> None:
        """Takes no connection any more. Those that are open end with the process."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    answer: Answer

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], log: Log
    ) -> None:
        super().__init__(address, handler)
        self._log = log

    def server_bind(self) -> None:
        # HTTPServer would look up the host's name here, which may ask a name server.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = HOST, int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, (ConnectionError, TimeoutError)):
            self._log("connection_failed", error=error_name(error))


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _HttpServer

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Every method is served; which ones a route knows is the gateway's affair."""
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        try:
            body = self._read_body()
        except _BadRequest:
            self.close_connection = True
            self._write(_refusal(400, "Bad Request"))
            return
        request = Request(
            method=self.command,
            # As it came: the base class makes one slash of several at the beginning of `path`.
            target=self.requestline.split()[1],
            headers=tuple(self.headers.items()),
            body=body,
            source_ip=str(self.client_address[0]),
        )
        self._write(self.server.answer(request))

    def _write(self, response: Response) -> None:
        self.send_response_only(response.status)
        for name, value in response.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Connection", "close" if self.close_connection else "keep-alive")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)
        self.wfile.flush()

    def _read_body(self) -> bytes:
        """The whole body, or one byte more than the gateway takes, for it to refuse."""
        if self.headers.defects:  # a line that is no header ended them early, and hid the rest
            raise _BadRequest
        codings = [value.strip().lower() for value in self.headers.get_all("transfer-encoding", [])]
        if codings:
            if codings != ["chunked"]:
                raise _BadRequest
            return self._read_chunks()
        lengths = {value.strip() for value in self.headers.get_all("content-length", ["0"])}
        text = lengths.pop()
        if lengths or _LENGTH.match(text) is None:
            raise _BadRequest
        length = int(text)
        if length > BODY_BYTES_MAX:
            self.close_connection = True
            return self._read_exactly(BODY_BYTES_MAX + 1)
        return self._read_exactly(length)

    def _read_chunks(self) -> bytes:
        body = bytearray()
        while True:
            said = _CHUNK_SIZE.match(self.rfile.readline(_CHUNK_LINE_BYTES_MAX))
            if said is None:
                raise _BadRequest
            size = int(said[1], 16)
            if size == 0:
                break
            body += self._read_exactly(min(size, BODY_BYTES_MAX + 1 - len(body)))
            if len(body) > BODY_BYTES_MAX:
                self.close_connection = True
                return bytes(body)
            if self.rfile.readline(3) not in (b"\r\n", b"\n"):
                raise _BadRequest
        while self.rfile.readline(_CHUNK_LINE_BYTES_MAX) not in (b"\r\n", b"\n", b""):
            pass  # trailers say nothing here
        return bytes(body)

    def _read_exactly(self, length: int) -> bytes:
        data = self.rfile.read(length)
        if len(data) != length:
            raise _BadRequest
        return data

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is not even HTTP is answered in the gateway's own form, without quoting it."""
        self.close_connection = True
        if not hasattr(self, "command") or self.command is None:
            self.command = ""
        self.request_version = "HTTP/1.1"
        self._write(_refusal(int(code), HTTPStatus(code).phrase))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing: a path may hold what must not be logged; functions log their own events."""


def _refusal(status: int, message: str) -> Response:
    body = json.dumps({"message": message}, separators=(",", ":")).encode()
    return Response(status, (("Content-Type", "application/json"),), body)
