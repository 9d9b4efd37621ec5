"""Owns what the stand-ins of model APIs share: what they were asked, what they say next.

Refuses what the real ones refuse: each reads a request by its API's own rules, answers 400 where
one is broken, and says which. What it was asked is kept in the contract's own words, so that one
suite can compare it with what was meant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mesh.models.contract import Opaque, Stop, Text, ToolUse, Turn

Said = Text | ToolUse | Opaque
"""What a stand-in is told to say."""


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request as it came; names of headers in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class WireReply:
    """A reply as it goes out."""

    status: int
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the API understood it."""

    model: str
    system: str
    turns: tuple[Turn, ...]
    tools: tuple[str, ...]
    in_words: bool
    """Whether it was asked to call nothing."""
    max_tokens: int
    credential: str | None


@dataclass(frozen=True, slots=True)
class Counted:
    """The usage that a stand-in tells."""

    read: int = 120
    from_cache: int = 0
    into_cache: int = 0
    written: int = 30


class RuleBroken(Exception):
    """A request that the API refuses, and why."""


def demand(holds: object, rule: str) -> None:
    """Raises RuleBroken with `rule` unless it holds."""
    if not holds:
        raise RuleBroken(rule)


def demand_fields(found: object, required: set[str], optional: set[str], where: str) -> None:
    """Holds that an object has these fields and no others."""
    demand(isinstance(found, dict), f"{where} is an object")
    assert isinstance(found, dict)
    demand(required <= found.keys(), f"{where} has {sorted(required)}")
    demand(found.keys() <= required | optional, f"{where} has nothing beside what is known")


def demand_words(text: object, where: str) -> str:
    """Holds that a text is one, and not blank."""
    demand(isinstance(text, str) and text.strip(), f"{where} is not blank")
    return str(text)


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


class ModelServer:
    """One API: reads requests by its rules, and says what it was told to say next."""

    def __init__(self) -> None:
        self.requests: list[WireRequest] = []
        self.asked: list[Asked] = []
        self.broken: list[str] = []
        """The rules that requests broke."""
        self._next: list[WireReply] = []
        self._last: WireReply | None = None

    # ---- what a stand-in of an API has of its own

    def read(self, request: WireRequest, body: Mapping[str, Any]) -> Asked:
        """What was asked. Raises RuleBroken."""
        raise NotImplementedError

    def answer(self, parts: tuple[Said, ...], stop: Stop, counted: Counted | None) -> Any:
        """The JSON that says these parts."""
        raise NotImplementedError

    def error(self, status: int, code: str) -> WireReply:
        """The API's own answer for an error of that status and code."""
        raise NotImplementedError

    # ---- the script

    def says(
        self, *parts: Said, stop: Stop | None = None, counted: Counted | None = Counted()
    ) -> None:
        """Its next answer; without `stop`, by whether there are calls. The last is repeated."""
        calls = any(isinstance(part, ToolUse) for part in parts)
        why = stop or (Stop.CALLS if calls else Stop.END)
        self.sends(WireReply(200, as_json(self.answer(parts, why, counted))))

    def sends(self, reply: WireReply) -> None:
        """Its next answer, whatever it is."""
        self._next.append(reply)

    def reply(self, request: WireRequest) -> WireReply:
        """What it answers to `request`."""
        self.requests.append(request)
        try:
            body = json.loads(request.body)
            self.asked.append(self.read(request, body))
        except RuleBroken as rule:
            self.broken.append(str(rule))
            return self.error(400, "")
        if self._next:
            self._last = self._next.pop(0)
        assert self._last is not None, "it was told nothing to say"
        return self._last
