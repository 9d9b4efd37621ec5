"""Owns the botocore sessions of the embedded AWS: no socket, made-up credentials, and back-off
that waits on the injected clock.

Refuses to read the machine's AWS settings: region and credentials are this module's own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final

import botocore.session
from botocore.awsrequest import AWSResponse
from botocore.hooks import BaseEventHooks
from botocore.loaders import Loader

from mesh.kernel.clock import Clock

REGION: Final = "eu-west-1"

_LOADER: Final = Loader()
"""Shared, so that a test's hundredth session does not read the service models again."""
_MAKING: Final = threading.Lock()


class _Waiting:
    """An emitter that waits out a retry's delay on our clock, and tells botocore to wait no more.

    botocore itself sleeps with the machine's clock for as long as the answer to `needs-retry` says.
    """

    def __init__(self, inner: BaseEventHooks, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    def emit(self, event_name: str, **kwargs: Any) -> list[tuple[Any, Any]]:
        answers: list[tuple[Any, Any]] = self._inner.emit(event_name, **kwargs)
        if not event_name.startswith("needs-retry."):
            return answers
        delays = [delay for _, delay in answers if delay is not None and delay is not False]
        if not delays:
            return answers
        self._clock.sleep(float(delays[0]))
        return [(None, 0)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _LocalSession(botocore.session.Session):  # type: ignore[misc]
    """A session whose clients wait on `local_clock`."""

    local_clock: Clock

    def get_scoped_config(self) -> dict[str, Any]:
        """No profile's settings: one that the environment names need not exist here."""
        return {}

    def create_client(self, *args: Any, **kwargs: Any) -> Any:
        with _MAKING:
            client = super().create_client(*args, **kwargs)
        # botocore has no public seam for the clock that its back-off sleeps on.
        endpoint = client._endpoint  # noqa: SLF001
        emitter = _Waiting(endpoint._event_emitter, self.local_clock)  # noqa: SLF001
        endpoint._event_emitter = emitter  # noqa: SLF001
        return client


def session_on(clock: Clock, answer: Callable[..., AWSResponse]) -> botocore.session.Session:
    """A session that `answer` (botocore's `before-send` hook) answers."""
    session = _LocalSession()
    session.local_clock = clock
    session.register_component("data_loader", _LOADER)
    session.set_config_variable("config_file", os.devnull)
    session.set_config_variable("credentials_file", os.devnull)
    session.set_config_variable("region", REGION)
    session.set_credentials("local", "local")
    session.register("before-send", answer)
    return session
