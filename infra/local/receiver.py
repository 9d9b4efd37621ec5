"""Owns a third party's web server on loopback, as the demonstration and tests need one.

Refuses to verify anything: it keeps what came, byte for byte, for whoever holds the secret.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

WAIT_S: Final = 20.0


class NothingCameError(Exception):
    """What was waited for did not come in time."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request that the receiver got, as it came."""

    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def document(self) -> dict[str, Any]:
        """The body, read."""
        document: dict[str, Any] = json.loads(self.body)
        return document


class Receiver:
    """A third party's web server on a loopback port: keeps what is posted, answers 204."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self._came = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", "0"))
                delivery = Delivery(
                    {name.lower(): value for name, value in self.headers.items()},
                    self.rfile.read(length),
                )
                self.send_response(204)
                self.end_headers()
                receiver.keep(delivery)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.pair = f"127.0.0.1:{self._http.server_address[1]}"
        self.url = f"http://{self.pair}/from-mesh"
        threading.Thread(
            # How often it looks whether it is to end: closing waits for that.
            target=self._http.serve_forever,
            kwargs={"poll_interval": 0.05},
            daemon=True,
        ).start()

    def keep(self, delivery: Delivery) -> None:
        """Keeps a delivery, and wakes who waits for one."""
        with self._came:
            self.deliveries.append(delivery)
            self._came.notify_all()

    def wait_for(self, kind: str, timeout_s: float = WAIT_S) -> Delivery:
        """The first delivery of that type. NothingCameError when none comes."""

        def found() -> Delivery | None:
            return next((d for d in self.deliveries if d.document.get("type") == kind), None)

        with self._came:
            self._came.wait_for(lambda: found() is not None, timeout_s)
            delivery = found()
        if delivery is None:
            raise NothingCameError(f"no {kind} came within {timeout_s:.0f} s")
        return delivery

    def close(self) -> None:
        """Stops listening."""
        self._http.shutdown()
        self._http.server_close()
