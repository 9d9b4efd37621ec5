"""Owns the seam that every message surface fills: `Normalizer` inbound, `Outbound` for replies.

Refuses to know any surface; code after normalization is the same for all of them (seed 000,
Question 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mesh.connectors.http import HttpRequest
from mesh.records.message import NormalizedMessage


class Normalizer(Protocol):
    """Turns a request whose signature has been verified into the utterance that it carries."""

    def __call__(self, request: HttpRequest, /) -> NormalizedMessage:
        """The one utterance of `request`.

        Raises `Invalid` with every problem that was found; reads nothing but its argument.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """What a run says back, before it is bytes. `outcome` is `reply` or `failure`."""

    outbound_id: str
    install_id: str
    conversation_key: str
    epoch: int
    sequence: int
    in_reply_to: str
    run_id: str
    outcome: str
    agent_slug: str
    agent_name: str
    agent_handle: str
    body: str
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundAttempt:
    """One attempt to send, as its headers tell it. `secrets` come current first."""

    secrets: Sequence[str] = field(repr=False)
    install_id: str
    outbound_id: str
    now_ms: int
    number: int
    replay: bool = False


class Outbound(Protocol):
    """Turns what a run says back into what the surface's other side takes."""

    def render(self, reply: Reply, /) -> bytes:
        """The body, made once and sent as it is at every attempt."""
        ...

    def headers(self, attempt: OutboundAttempt, body: bytes, /) -> dict[str, str]:
        """The headers of one attempt, proving that it is from Mesh."""
        ...
