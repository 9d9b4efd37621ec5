"""Owns the daily budgets of an agent: turns and tokens of a UTC day, as a hard stop.

Refuses to count beside the work: a turn is counted in the transaction that takes its run's first
lease, and tokens in the one that keeps the answer they paid for, so that a crash neither loses nor
doubles them. (An answer that was never kept is not counted; its call is made again, and counts.)
What has no budget is not counted and costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from mesh.control.notices import notice_write, write_and_tell
from mesh.kernel.clock import DAY_MS, Clock
from mesh.kernel.errors import Failed, Phase
from mesh.kernel.ids import Ids
from mesh.kernel.limits import BUDGET_PARTS, DAY_ROW_KEPT_DAYS, TRANSACTION_TRIES
from mesh.outbox.commit import LostLease
from mesh.records.agent import Agent
from mesh.records.notice import NoticeKind
from mesh.records.running import Day
from mesh.storage import keys
from mesh.storage.table import Cancelled, ConditionFailed, Table, Why
from mesh.storage.writes import Write, update

TURNS: Final = "turns_per_day_reached"
TOKENS: Final = "tokens_per_day_reached"
"""Why a run ends that a budget stops."""


def read_day(table: Table, agent_id: str, at_ms: int) -> Day:
    """What an agent used on the UTC day of `at_ms`, read consistently. Raises Failed."""
    return _day_of(table.get(keys.day(agent_id, at_ms)))


def read_days(table: Table, agents: Sequence[Agent], at_ms: int) -> dict[str, Day]:
    """The same of many agents, by id: of those alone that have a daily budget and used any of it.

    Raises Failed.
    """
    wanted = {
        keys.day(agent.agent_id, at_ms): agent.agent_id
        for agent in agents
        if (agent.limits.turns_per_day, agent.limits.tokens_per_day) != (None, None)
    }
    found = table.get_many(wanted) if wanted else {}
    return {wanted[key]: _day_of(item) for key, item in found.items()}


@dataclass(frozen=True, slots=True)
class _Meter:
    """One budget of one agent: the attribute that counts it, and its limit."""

    counts: Literal["turns", "tokens"]
    limit: int

    @property
    def told(self) -> str:
        """The attribute that says of which percent the operator was told."""
        return f"{self.counts}_told"

    def used_of(self, day: Day) -> int:
        """How much of it is used."""
        return day.turns if self.counts == "turns" else day.tokens

    def told_of(self, day: Day) -> int:
        """The highest percent that was told."""
        return day.turns_told if self.counts == "turns" else day.tokens_told

    def at(self, percent: int) -> int:
        """From which use on `percent` of it are reached."""
        return -(-self.limit * percent // 100)


class Budgets:
    """Counts what agents use. One per function."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def take_turn(self, agent: Agent, limit: int, taking: Write) -> bool:
        """Applies `taking`, which takes a run's first lease, and counts it among the `limit` turns
        of the day, in one transaction; False, and nothing was taken, when they are used up.

        Raises LostLease where the lease was another's, Failed.
        """
        return self._add(agent, _Meter("turns", limit), taking, 1, capped=True)

    def tokens_reached(self, agent: Agent) -> bool:
        """Whether the agent may make no call of its model any more today. Raises Failed."""
        limit = agent.limits.tokens_per_day
        if limit is None:
            return False
        now, meter = self._clock.now_ms(), _Meter("tokens", limit)
        day = read_day(self._table, agent.agent_id, now)
        if meter.used_of(day) < limit:
            return False
        self._tell_reached(agent, meter, day, now)
        return True

    def keep_answer(self, agent: Agent, limit: int, keeping: Write, tokens: int) -> None:
        """Applies `keeping`, which keeps an answer, and counts what it cost among the `limit`
        tokens of the day, in one transaction. What is spent is counted, also beyond the limit.

        Raises LostLease where the condition of `keeping` did not hold, Failed.
        """
        self._add(agent, _Meter("tokens", limit), keeping, tokens, capped=False)

    def _add(self, agent: Agent, meter: _Meter, write: Write, amount: int, *, capped: bool) -> bool:
        now = self._clock.now_ms()
        day = read_day(self._table, agent.agent_id, now)
        for attempt in range(TRANSACTION_TRIES):
            if attempt:
                self._table.back_off()
            if capped and meter.used_of(day) >= meter.limit:
                self._tell_reached(agent, meter, day, now)
                return False
            writes = [write, *self._adding(agent, meter, day, amount, now, capped=capped)]
            try:
                self._table.transact(writes, self._ids.token())
            except Cancelled as cancelled:
                first, second = cancelled.reasons[:2]
                if first.why is Why.CONDITION:
                    raise LostLease from None
                if second.why is Why.CONDITION:
                    day = _day_of(second.old)
            else:
                return True
        raise Failed("unavailable", "the day's budget is contended; try again", Phase.BEFORE)

    def _adding(
        self, agent: Agent, meter: _Meter, day: Day, amount: int, now: int, *, capped: bool
    ) -> list[Write]:
        """The writes that count. What crosses a part is held to the very use that was read, and
        tells of it; what crosses none, to staying below the next, so that many add at once."""
        used, told = meter.used_of(day), meter.told_of(day)
        untold = [part for part in BUDGET_PARTS if part > told]
        crossed = max((part for part in untold if used + amount >= meter.at(part)), default=0)
        sets = f"#{meter.counts} = if_not_exists(#{meter.counts}, :zero) + :n, #ttl = :ttl, #v = :v"
        values: dict[str, Any] = {
            "zero": 0,
            "n": amount,
            "ttl": _ttl(now),
            "v": keys.ITEM_VERSION,
        }
        absent = f"attribute_not_exists(#{meter.counts})"
        condition = ""
        if crossed:
            sets += f", #{meter.told} = :told"
            condition = f"#{meter.counts} = :seen" + (f" OR {absent}" if used == 0 else "")
            values |= {"told": crossed, "seen": used}
        elif untold or capped:
            # Where all was told already, a limit that was raised since is left to hold.
            condition = f"{absent} OR #{meter.counts} <= :most"
            most = meter.at(untold[0]) - 1 if untold else meter.limit
            values["most"] = most - amount
        key = keys.day(agent.agent_id, now)
        writes = [update(key, f"SET {sets}", condition, **values)]
        return writes + ([self._notice(agent, meter, crossed, now)] if crossed else [])

    def _tell_reached(self, agent: Agent, meter: _Meter, day: Day, now: int) -> None:
        """Tells of a budget that no use has crossed: its limit was lowered below what is used."""
        if meter.told_of(day) >= 100:
            return
        told = update(
            keys.day(agent.agent_id, now),
            f"SET #{meter.told} = :all, #ttl = :ttl, #v = :v",
            f"attribute_not_exists(#{meter.told}) OR #{meter.told} < :all",
            all=100,
            ttl=_ttl(now),
            v=keys.ITEM_VERSION,
        )
        with suppress(ConditionFailed):  # another told of it
            write_and_tell(self._table, told, [self._notice(agent, meter, 100, now)])

    def _notice(self, agent: Agent, meter: _Meter, percent: int, now: int) -> Write:
        return notice_write(
            self._ids.ulid(),
            NoticeKind.BUDGET_REACHED,
            now,
            agent_id=agent.agent_id,
            subject=agent.agent_id,
            reason=f"{meter.counts}_per_day",
            figures={"percent": percent},
        )


def _day_of(item: dict[str, Any] | None) -> Day:
    return Day() if item is None else msgspec.convert(item, Day)


def _ttl(now_ms: int) -> int:
    return (now_ms + DAY_ROW_KEPT_DAYS * DAY_MS) // 1000
