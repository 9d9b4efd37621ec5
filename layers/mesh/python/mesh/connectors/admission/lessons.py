"""Owns what a failed try teaches: the old items of its conditions make the next bet.

Refuses to read what a condition can tell. One row is read, as a hint: that of an actor who is new
to a conversation, because a wrong bet on it costs a whole transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from mesh.connectors.admission.arrival import Arrival, Bet, Place, Role, actor_tag, cap_shards
from mesh.control.engagement import OBSERVED_AS_BUSY, Verdict
from mesh.kernel.clock import MINUTE_MS, Clock
from mesh.kernel.errors import Failed, Refused
from mesh.kernel.ids import Random
from mesh.kernel.limits import ACTIVE_PERIOD_MS
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.table import Table


class Lessons:
    """Makes the next bet of one that failed."""

    def __init__(self, table: Table, clock: Clock, random: Random) -> None:
        self._table = table
        self._clock = clock
        self._random = random

    def learn(self, bet: Bet, arrival: Arrival, olds: Mapping[Role, Item | None]) -> Bet:
        """The next bet. `olds` has the old item (None when absent) of each condition that failed.

        Raises Refused where a cap or the rate is reached.
        """
        bet = replace(bet, order=max(self._clock.now_ms() * 1000, bet.order + 1))
        bet = self._next_shards(bet, arrival, olds)
        if Role.ACTOR in olds:
            bet = replace(bet, actor=_seen(olds[Role.ACTOR]))
            bet = self._with_cap_shards(bet, arrival)
        if Role.ACTIVE_CONVERSATION in olds:
            bet = replace(bet, conversation=_seen(olds[Role.ACTIVE_CONVERSATION]))
            bet = self._with_cap_shards(bet, arrival)
        if Role.CONVERSATION in olds:
            bet = self._after_conversation(bet, arrival, olds[Role.CONVERSATION])
        return bet

    def shards(self, count: int) -> tuple[int, ...]:
        """All shards of a counter, from a random one on."""
        start = int(self._random.uniform(0, count)) % count
        return tuple((start + step) % count for step in range(count))

    def _next_shards(self, bet: Bet, arrival: Arrival, olds: Mapping[Role, Item | None]) -> Bet:
        """Goes on to the next shard of a full counter; refuses where none is left."""
        # A place that is taken already needs no other: then a full cap says nothing.
        if Role.CAP_CONVERSATIONS in olds and olds.get(Role.ACTIVE_CONVERSATION) is None:
            bet = replace(bet, conversation_shards=bet.conversation_shards[1:])
            if not bet.conversation_shards:
                raise Refused(
                    "conversation_cap_reached",
                    "this install has as many active conversations as its operator allows",
                )
        if Role.CAP_ACTORS in olds and olds.get(Role.ACTOR) is None:
            bet = replace(bet, actor_shards=bet.actor_shards[1:])
            if not bet.actor_shards:
                raise Refused(
                    "actor_cap_reached",
                    "this install has as many active actors as its operator allows",
                )
        if Role.RATE in olds:
            bet = replace(bet, rate_shards=bet.rate_shards[1:])
            if not bet.rate_shards:
                left_ms = MINUTE_MS - arrival.received_at % MINUTE_MS
                raise Refused(
                    "rate_limited",
                    "too many messages this minute; send it again after the time in Retry-After",
                    retry_after_s=-(-left_ms // 1000),
                )
        return bet

    def _after_conversation(self, bet: Bet, arrival: Arrival, old: Item | None) -> Bet:
        """One old item answers absent, order, busy and actor."""
        if old is None:
            bet = replace(
                bet,
                conversation_exists=False,
                known_actors=frozenset(),
                conversation=Place.NEW,
            )
            return self._with_cap_shards(self._with_actor(bet, arrival), arrival)
        bet = replace(
            bet, conversation_exists=True, order=max(bet.order, int(old["last_order"]) + 1)
        )
        if bet.judgement.verdict is Verdict.ENGAGE and old.get("pending", 0) >= arrival.waiting_max:
            bet = replace(bet, judgement=OBSERVED_AS_BUSY)
        tag = actor_tag(arrival)
        actors = frozenset(old.get("actors") or ())
        if tag in actors:
            return replace(
                bet,
                known_actors=None,
                actor=Place.TAKEN_THIS_PERIOD,
                conversation=Place.TAKEN_THIS_PERIOD,
            )
        period, _, actor = tag.partition(":")
        this_period = frozenset(each for each in actors if each.startswith(f"{period}:"))
        if any(each.endswith(f":{actor}") for each in actors) and not bet.actor_looked_up:
            bet = replace(bet, actor=Place.TAKEN, actor_looked_up=True)
        bet = self._with_actor(bet, arrival)
        if bet.conversation is Place.TAKEN_THIS_PERIOD or not this_period:
            bet = replace(bet, conversation=Place.TAKEN_THIS_PERIOD if this_period else Place.TAKEN)
        elif bet.conversation is Place.NEW:
            # another first message of this conversation won, and took its place under the cap
            bet = replace(bet, conversation=Place.TAKEN_THIS_PERIOD)
        bet = replace(bet, known_actors=this_period)
        return self._with_cap_shards(bet, arrival)

    def _with_actor(self, bet: Bet, arrival: Arrival) -> Bet:
        """Where an actor stands who is new to the conversation: looked up once, as a hint."""
        if bet.actor_looked_up:
            return bet
        key = keys.active_actor(arrival.install.install_id, arrival.message.actor_id)
        try:
            row = self._table.get(key)
        except Failed:
            row = None  # the transaction's own condition says it if this is wrong
        place = Place.NEW if row is None else Place.TAKEN
        if row is not None and row["period"] == arrival.received_at // ACTIVE_PERIOD_MS:
            place = Place.TAKEN_THIS_PERIOD
        return replace(bet, actor=place, actor_looked_up=True)

    def _with_cap_shards(self, bet: Bet, arrival: Arrival) -> Bet:
        caps = arrival.install.caps
        if bet.actor is Place.NEW and not bet.actor_shards:
            bet = replace(bet, actor_shards=self.shards(cap_shards(caps.actors)))
        if bet.conversation is Place.NEW and not bet.conversation_shards:
            bet = replace(bet, conversation_shards=self.shards(cap_shards(caps.conversations)))
        return bet


def _seen(old: Item | None) -> Place:
    """What a failed bet on an activity row teaches: it is there after all, or it is not."""
    return Place.NEW if old is None else Place.TAKEN
