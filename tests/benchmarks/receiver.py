"""Owns a third party's endpoint on loopback, and the bare POST that a delivery is held against.

Refuses nothing: every request is read whole and answered with 200.
"""

from __future__ import annotations

import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class Receiver:
    """Listens while it is entered. `bodies` are what arrived."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        receiver = self

        class Answering(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                receiver._arrived(self.rfile.read(length))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = True
        self._changed = threading.Condition()
        self.port: int = self._server.server_address[1]
        self.pair = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.pair}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, count: int, timeout_s: float) -> bool:
        """Whether that many bodies arrived in time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.bodies) >= count, timeout_s)

    def bare_post(self, body: bytes) -> None:
        """One POST on a connection of its own, with nothing around it."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        connection.request("POST", "/hook", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        reply.read()
        connection.close()
        assert reply.status == 200

    def _arrived(self, body: bytes) -> None:
        with self._changed:
            self.bodies.append(body)
            self._changed.notify_all()
