"""Owns the way of a job through all conversations of an agent, from the day of its order back to
the first.

Refuses to hold more than a place: a day, the last sort key seen there, and the conversation that is
under way. The lists lag, so a job begins a little after its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from mesh.jobs.contract import Progress
from mesh.jobs.erasure import Erased
from mesh.kernel.clock import DAY_MS, Clock
from mesh.kernel.limits import LISTS_LAG_MS
from mesh.records.job import Job
from mesh.storage import keys
from mesh.storage.happened import Place, Walk
from mesh.storage.table import Table

_WALK: Final = "walk"
"""Under which name a job's place holds where it is."""


class _Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a job is: the place in the lists, None before the first, and the conversation that it
    is at."""

    day: int | None = None
    before: str = ""
    under_way: str | None = None
    order: int = 0
    """How far that one was read, for who reads it message by message."""


Erase = Callable[[str, int], tuple[Erased, int]]
"""Erases a part of the conversation of that id, read up to that order; and how far it is then."""


class Rounds:
    """Takes jobs from conversation to conversation."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    def step(self, job: Job, erase: Erase) -> Progress:
        """Erases a part of the conversation that is under way, or of the next.

        `job.wanted["since"]` is when the first can have begun (Unix ms). The place is None at the
        end. Raises Failed.
        """
        early_ms = job.started_at + LISTS_LAG_MS - self._clock.now_ms()
        if early_ms > 0:
            return Progress(place={}, wait_s=early_ms // 1000 + 1)
        place = msgspec.convert(job.place.get(_WALK, {}), _Place)
        if place.under_way is None:
            found = self._next(job, place)
            if found is None or found.under_way is None:
                return Progress(place=None if found is None else _kept(found))
            place = found
        assert place.under_way is not None
        erased, order = erase(place.under_way, place.order)
        if erased.over:
            place = _Place(day=place.day, before=place.before)
        else:
            place = msgspec.structs.replace(place, order=order)
        return Progress(place=_kept(place), done=erased.done, wait_s=erased.wait_s)

    def _next(self, job: Job, place: _Place) -> _Place | None:
        """The place of the next conversation, or behind as many days as a step looks at; None at
        the end."""
        agent_id = job.agent_id
        assert agent_id is not None, "only an agent has conversations"
        walk = Walk(
            self._table,
            lambda at_ms: keys.conversations_lists(agent_id, at_ms),
            # A day more at each end: the clock that dated a conversation may have differed.
            newest_ms=job.started_at + DAY_MS,
            oldest_ms=job.wanted["since"] - DAY_MS,
            place=None if place.day is None else Place(place.day, place.before),
            ahead=1,
        )
        for found in walk:
            return _Place(
                day=found.place.day,
                before=found.place.before,
                under_way=keys.conversation_of(found.key),
            )
        if walk.place is None:
            return None
        return _Place(day=walk.place.day, before=walk.place.before)


def _kept(place: _Place) -> dict[str, object]:
    return {_WALK: msgspec.to_builtins(place)}
