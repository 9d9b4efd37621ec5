"""Owns what Mesh logs: one JSON object an event, with a name and allow-listed fields.

Refuses everything else: no body, header, prompt, address or secret has a field to stand in, and an
error is told by its class and code, because exceptions of the SDK carry whole items.
"""

from __future__ import annotations

import sys
from typing import Final, Protocol, TextIO

from aws_lambda_powertools import Logger

ALLOWED: Final = frozenset(
    {
        "action",
        "age_s",
        "agent_id",
        "attempt",
        "chore_id",
        "code",
        "conversation_id",
        "count",
        "duration_ms",
        "error",
        "function",
        "host",
        "install_id",
        "lease",
        "outbound_id",
        "pages",
        "phase",
        "reason",
        "request_id",
        "run_id",
        "sequence",
        "shard",
        "skew_s",
        "status",
        "state",
        "try_number",
        "verdict",
    }
)
"""Every field that a log line may have. A name that is missing here raises, in tests and in
production."""


class Log(Protocol):
    """Where events are told."""

    def __call__(self, event: str, /, **fields: str | int | float | bool | None) -> None: ...


class JsonLog:
    """Writes events as JSON lines through Powertools' Logger, with a function's name on each."""

    def __init__(self, function: str, level: str = "INFO", stream: TextIO | None = None) -> None:
        self._logger = Logger(
            service=function,
            level=level,
            stream=stream or sys.stderr,
            log_record_order=["timestamp", "level", "message"],
            location=None,  # None leaves the key out
            utc=True,
        )

    def __call__(self, event: str, /, **fields: str | int | float | bool | None) -> None:
        unknown = fields.keys() - ALLOWED
        if unknown:
            raise ValueError(f"a log line has no field {min(unknown)}")
        self._logger.info(event, extra={k: v for k, v in fields.items() if v is not None})


def error_name(error: BaseException) -> str:
    """What a log may say of an exception: its class, never its text."""
    return type(error).__name__
