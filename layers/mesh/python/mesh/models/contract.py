"""Owns the contract of a language-model connector: what a turn asks, and what it gets.

Refuses streams, retries and prompts: a connector turns one request into one answer, or a typed
failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Speaker(StrEnum):
    """Whose words a line of context is."""

    ACTOR = "actor"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Line:
    """One message of the agent's perspective. `observed` ones were not addressed to the agent."""

    speaker: Speaker
    name: str
    text: str
    observed: bool = False


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model: instructions, the perspective, and the message to answer (the last
    line)."""

    instructions: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """What one answer cost, in tokens of the model's own counting."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model said, and what that cost."""

    text: str
    usage: Usage


class ModelConnector(Protocol):
    """One language model."""

    def answer(self, request: ModelRequest, timeout_s: float) -> ModelAnswer:
        """One answer within `timeout_s`. Raises Failed with a phase, and Refused where a policy
        says no."""
        ...
