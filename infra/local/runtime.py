"""Owns what Lambda does with a function: instances, an invocation at a time in each, its context.

Refuses to share an instance between two invocations at once, as Lambda does; a document travels as
JSON both ways, so that nothing but JSON can pass between a trigger and a function.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from infra import topology
from infra.local.aws.recorder import calling
from mesh.kernel.clock import Clock
from mesh.kernel.ids import Ids
from mesh.kernel.log import Log, error_name


class Handler(Protocol):
    """A function's entry point, as `mesh.app` builds it."""

    def __call__(self, event: dict[str, Any], context: Any, /) -> Any: ...


Build = Callable[[str], Handler]
"""Makes one instance of the function of that name."""


class FunctionError(Exception):
    """A function raised, or answered with what is not JSON. Its log alone says why."""


@dataclass(frozen=True, slots=True)
class Context:
    """The Lambda context of one invocation."""

    function_name: str
    aws_request_id: str
    memory_limit_in_mb: int
    clock: Clock
    ends_at: float
    """When the function's time is up, on the clock's monotonic scale."""
    function_version: str = "$LATEST"

    @property
    def invoked_function_arn(self) -> str:
        return f"arn:aws:lambda:local:000000000000:function:{self.function_name}"

    @property
    def log_group_name(self) -> str:
        return f"/aws/lambda/{self.function_name}"

    @property
    def log_stream_name(self) -> str:
        return f"local/{self.aws_request_id}"

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda would end the function; never below 0."""
        return max(0, int((self.ends_at - self.clock.monotonic()) * 1000))


class Runtime:
    """Every function of the topology, invoked by name."""

    def __init__(self, build: Build, clock: Clock, ids: Ids, log: Log) -> None:
        self._build = build
        self._clock = clock
        self._ids = ids
        self._log = log
        self._lock = threading.Lock()
        self._idle: dict[str, list[Handler]] = {f.name: [] for f in topology.FUNCTIONS}

    def invoke(self, name: str, event: dict[str, Any]) -> Any:
        """The function's answer to `event`. Raises FunctionError when it crashed.

        A crash of the whole process in a test (any BaseException) passes through, and the instance
        is not used again.
        """
        function = topology.function(name)
        context = Context(
            function_name=name,
            aws_request_id=self._ids.mint("inv"),
            memory_limit_in_mb=function.memory_mb,
            clock=self._clock,
            ends_at=self._clock.monotonic() + function.timeout_s,
        )
        try:
            with calling(name):
                handler = self._take(name)
                answer = handler(json.loads(json.dumps(event)), context)
            answer = json.loads(json.dumps(answer))  # what is not JSON cannot leave a function
        except Exception as error:
            self._log("function_failed", function=name, error=error_name(error))
            raise FunctionError(name) from error
        self._give_back(name, handler)
        return answer

    def _take(self, name: str) -> Handler:
        with self._lock:
            if self._idle[name]:
                return self._idle[name].pop()
        return self._build(name)

    def _give_back(self, name: str, handler: Handler) -> None:
        with self._lock:
            self._idle[name].append(handler)
