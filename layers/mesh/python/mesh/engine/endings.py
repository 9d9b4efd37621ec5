"""Owns what is told of a call that was admitted and came to no result of its own: not waited for,
cancelled, or withheld.

Refuses to say that a call was not made where nobody knows: an effect is uncertain then, and what
counts has been counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mesh.records.run import StepStatus
from mesh.tools.contract import Observation, ObservationKind, Replay


def no(kind: ObservationKind, text: str) -> Observation:
    """An observation of Mesh's own, without a result."""
    return Observation(kind=kind, text=text)


CANCELLED: Final = no(
    ObservationKind.REVOKED,
    "what a call that was made at the same time rests on changed, so this one was cancelled with "
    "it",
)
TOO_LONG: Final = no(ObservationKind.FAILED, "the tool took too long, and was not waited for")
_REVOKED_AFTER: Final = no(
    ObservationKind.REVOKED,
    "what this tool was offered on changed while it was called, so what came of it is withheld",
)
_UNKNOWN: Final = no(
    ObservationKind.UNCERTAIN,
    "the call was not waited for to its end: it may have been done, or not, and it is not done "
    "again",
)
_UNCERTAIN_REVOKED: Final = no(
    ObservationKind.UNCERTAIN,
    "what this tool was offered on changed while it was called: it may have been done, or not, and "
    "it is not done again",
)
_COUNTED: Final = "; it was counted when it was admitted, and is not made again by itself"


def not_waited_for(replay: Replay, told: Observation) -> Observation:
    """What is told of a call that nobody waits for any more."""
    match replay:
        case Replay.EFFECT:
            return _UNKNOWN
        case Replay.METERED:
            return replace(told, text=told.text + _COUNTED)
        case Replay.OBSERVE:
            return told


def withheld(replay: Replay) -> Observation:
    """What is told in place of what came in a race with a change of its offer."""
    if replay is Replay.EFFECT:
        return _UNCERTAIN_REVOKED
    return not_waited_for(replay, _REVOKED_AFTER)


def status_of(kind: ObservationKind) -> StepStatus:
    """How the step of an admitted call ends."""
    return {
        ObservationKind.RESULT: StepStatus.COMPLETED,
        ObservationKind.REVOKED: StepStatus.REFUSED,
        ObservationKind.UNCERTAIN: StepStatus.UNCERTAIN,
    }.get(kind, StepStatus.FAILED)
