"""Owns what every model API demands of an exchange: who begins, who is next, what answers what.

Refuses turns that an API would refuse, before they are sent. The rules are those of the strictest
(Anthropic's and Bedrock's); the others take such turns too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mesh.models.contract import Image, Opaque, Part, Side, Text, ToolResult, ToolUse, Turn

NO_WORDS: Final = "(empty)"
"""What the model is told of a result that holds nothing: blank texts are refused."""


@dataclass(frozen=True, slots=True)
class Given:
    """A turn of the user's side: results stand first, as the APIs demand, then the rest."""

    results: tuple[ToolResult, ...]
    rest: tuple[Text | Image, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """A turn of the assistant's side."""

    parts: tuple[Text | ToolUse | Opaque, ...]

    @property
    def calls(self) -> tuple[ToolUse, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolUse))


def exchange_of(turns: Sequence[Turn], *, gave: Callable[[Opaque], bool]) -> list[Given | Said]:
    """The turns as they may be sent: sides alternate, and blank words are left out.

    `gave` knows the opaque blocks that this API gave; another's are left out, and neighbours of
    one side become one turn. Raises ValueError where no API takes them.
    """
    sendable = [
        (turn.side, kept)
        for turn in turns
        if (kept := [part for part in turn.parts if _is_sendable(part, gave)])
    ]
    merged: list[tuple[Side, list[Part]]] = []
    for side, parts in sendable:
        if merged and merged[-1][0] is side:
            merged[-1][1].extend(parts)
        else:
            merged.append((side, parts))
    if not merged or merged[0][0] is not Side.USER or merged[-1][0] is not Side.USER:
        raise ValueError("an exchange begins and ends with the user's side")
    exchange = [_given(parts) if side is Side.USER else _said(parts) for side, parts in merged]
    _demand_results(exchange)
    return exchange


def call_ids(turns: Iterable[Turn]) -> set[str]:
    """The ids of all calls in these turns."""
    return {part.call_id for turn in turns for part in turn.parts if isinstance(part, ToolUse)}


def _is_sendable(part: Part, gave: Callable[[Opaque], bool]) -> bool:
    match part:
        case Text(text=words):
            return bool(words.strip())
        case Opaque():
            return gave(part)
        case _:
            return True


def _given(parts: Iterable[Part]) -> Given:
    results: list[ToolResult] = []
    rest: list[Text | Image] = []
    for part in parts:
        match part:
            case ToolResult():
                blank = not part.text.strip() and part.image is None
                results.append(replace(part, text=NO_WORDS) if blank else part)
            case Text() | Image():
                rest.append(part)
            case _:
                raise ValueError("only the assistant's side calls and thinks")
    return Given(tuple(results), tuple(rest))


def _said(parts: Iterable[Part]) -> Said:
    kept: list[Text | ToolUse | Opaque] = []
    for part in parts:
        match part:
            case Text() | ToolUse() | Opaque():
                kept.append(part)
            case _:
                raise ValueError("only the user's side has results and pictures")
    return Said(tuple(kept))


def _demand_results(exchange: Sequence[Given | Said]) -> None:
    """Holds that the calls of each turn are answered by the next one, once each, and nothing
    else."""
    open_ids: list[str] = []
    for turn in exchange:
        if isinstance(turn, Said):
            open_ids = [call.call_id for call in turn.calls]
        elif sorted(open_ids) != sorted(result.call_id for result in turn.results):
            raise ValueError("the calls of a turn are answered by the next one, once each")
