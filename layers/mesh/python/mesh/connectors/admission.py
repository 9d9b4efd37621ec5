"""Owns the transaction that takes an utterance in: claim, message, verdict, counters and run, or
nothing.

Refuses to decide by reading: conditions decide, and what they answer (the old item) is what a
further try learns. The first try bets on a known actor in a known conversation, which costs one
call. One row is read, as a hint: that of an actor who is new to a conversation, because a wrong bet
on it costs a whole transaction.

Reasons of a cancelled transaction come mixed, so they are judged in a fixed order: claim, caps,
rate, actor, conversation, contention. A duplicate in a conversation that moved on fails both its
claim and its order; whoever looked at the order first would try for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mesh.control.engagement import OBSERVED_AS_BUSY, Judgement, Verdict
from mesh.kernel.clock import DAY_MS, MINUTE_MS, Clock, Deadline
from mesh.kernel.errors import Conflict, Failed, Phase, Refused
from mesh.kernel.ids import Random
from mesh.kernel.limits import (
    ACTIVE_KEPT_MS,
    ACTIVE_PERIOD_MS,
    CAP_SHARD_SIZE,
    CAP_SHARDS_MAX,
    CLAIM_KEPT_MS,
    DUE_AFTER_MS,
    KNOWN_ACTORS_MAX,
    RATE_ROW_KEPT_MS,
    RATE_SHARD_SIZE,
    RATE_SHARDS_MAX,
    TRANSACTION_TRIES,
)
from mesh.records.install import Install
from mesh.records.message import NormalizedMessage
from mesh.records.run import Claim, RunStatus
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.table import Cancelled, Reason, Table, Why, Write, put, update

DigestOf = Callable[[NormalizedMessage, int], str]
"""A message's digest by a digest version, hex SHA-256."""


class Arrival(msgspec.Struct, frozen=True):
    """A verified, parsed and judged utterance, ready to be taken in."""

    install: Install
    secret_version: int
    message: NormalizedMessage
    judgement: Judgement
    story: str
    """The ULID of this request, and of all that comes of it."""
    received_at: int
    digest: str
    digest_version: int


class Admitted(msgspec.Struct, frozen=True):
    """What was taken in, now or when the message first came."""

    duplicate: bool
    story: str
    verdict: Verdict
    reason: str
    conversation_id: str

    @property
    def engaged(self) -> bool:
        """Whether a run exists for it."""
        return self.verdict is Verdict.ENGAGE


class _Role(StrEnum):
    """What a write of the transaction is for, in the order in which reasons are judged."""

    CLAIM = "claim"
    CAP_ACTORS = "cap_actors"
    CAP_CONVERSATIONS = "cap_conversations"
    RATE = "rate"
    ACTOR = "actor"
    ACTIVE_CONVERSATION = "active_conversation"
    CONVERSATION = "conversation"
    OTHER = "other"


class _Place(StrEnum):
    """What a try believes of an actor's or a conversation's place under its cap."""

    TAKEN_THIS_PERIOD = "taken_this_period"
    TAKEN = "taken"
    NEW = "new"


class _Bet(msgspec.Struct, frozen=True):
    """What one try believes; a failed try's old items make the next bet."""

    order: int
    judgement: Judgement
    conversation_exists: bool = True
    known_actors: frozenset[str] | None = None
    """The actor tags to be kept beside this actor's; None leaves the set alone."""
    actor: _Place = _Place.TAKEN_THIS_PERIOD
    conversation: _Place = _Place.TAKEN_THIS_PERIOD
    actor_looked_up: bool = False
    actor_shards: tuple[int, ...] = ()
    conversation_shards: tuple[int, ...] = ()
    rate_shards: tuple[int, ...] = ()


class _Writes(msgspec.Struct):
    """The transaction of one bet, with each write's role."""

    roles: list[_Role] = msgspec.field(default_factory=list)
    writes: list[Write] = msgspec.field(default_factory=list)

    def add(self, role: _Role, write: Write) -> None:
        self.roles.append(role)
        self.writes.append(write)


class Admission:
    """Takes utterances in. One per function; holds no state between messages."""

    def __init__(
        self,
        table: Table,
        clock: Clock,
        random: Random,
        digest_of: DigestOf,
        *,
        kept_days: int,
        deadline: Deadline,
    ) -> None:
        self._table = table
        self._clock = clock
        self._random = random
        self._digest_of = digest_of
        self._kept_days = kept_days
        self._deadline = deadline

    def admit(self, arrival: Arrival) -> Admitted:
        """Commits the utterance, or finds what it was committed as.

        Tries while the deadline allows. Raises Conflict (`idempotency_conflict`),
        Refused (`conversation_cap_reached`, `actor_cap_reached`, `rate_limited`) with nothing
        written, and Failed (`unavailable`), whose `outcome_unknown` says that the claim could not
        be read either.
        """
        bet = _Bet(
            order=self._clock.now_ms() * 1000,
            judgement=arrival.judgement,
            rate_shards=self._shards(_rate_shards(arrival.install.caps.messages_per_minute))[:2],
        )
        for attempt in range(TRANSACTION_TRIES):
            if attempt == 0:
                self._deadline.demand_a_call()
            elif not self._deadline.allows_a_call():
                break
            writes = self._writes(arrival, bet)
            try:
                self._table.transact(writes.writes, self._random.bytes(16).hex())
            except Cancelled as cancelled:
                outcome = self._judge(arrival, bet, writes.roles, cancelled.reasons)
                if isinstance(outcome, Admitted):
                    return outcome
                bet = outcome
            except Failed:
                # Whatever it says, it says of the SDK's last attempt; an earlier one may have been
                # applied and its answer lost.
                return self._resolve(arrival)
            else:
                return self._admitted(arrival, bet.judgement)
        return self._resolve(arrival)

    # ---- what one try writes

    def _writes(self, arrival: Arrival, bet: _Bet) -> _Writes:
        writes = _Writes()
        verdict = bet.judgement.verdict
        writes.add(_Role.CLAIM, self._claim(arrival, bet.judgement))
        if verdict is not Verdict.REFUSE:
            self._add_activity(writes, arrival, bet)
        writes.add(_Role.RATE, self._rate(arrival, bet.rate_shards[0]))
        if verdict is not Verdict.REFUSE:
            writes.add(_Role.CONVERSATION, self._conversation(arrival, bet))
            writes.add(_Role.OTHER, self._message(arrival, bet))
        writes.add(_Role.OTHER, self._story(arrival, bet))
        if verdict is Verdict.ENGAGE:
            writes.add(_Role.OTHER, self._pending(arrival, bet))
        return writes

    def _claim(self, arrival: Arrival, judgement: Judgement) -> Write:
        message = arrival.message
        claim = Claim(
            story=arrival.story,
            digest=arrival.digest,
            digest_version=arrival.digest_version,
            claimed_at=arrival.received_at,
            verdict=judgement.verdict.value,
            reason=judgement.reason.value,
        )
        return put(
            keys.claim(arrival.install.install_id, message.conversation_key, message.message_id),
            {**msgspec.to_builtins(claim), "ttl": self._ttl(arrival.received_at)},
            "attribute_not_exists(#pk) OR #claimed_at < :cutoff",
            cutoff=arrival.received_at - CLAIM_KEPT_MS,
        )

    def _add_activity(self, writes: _Writes, arrival: Arrival, bet: _Bet) -> None:
        """The places under the two caps; none are touched in a period in which they are known."""
        install = arrival.install
        for role, cap, place, kind, row, shards, limit in (
            (
                _Role.ACTOR,
                _Role.CAP_ACTORS,
                bet.actor,
                "actor",
                keys.active_actor(install.install_id, arrival.message.actor_id),
                bet.actor_shards,
                install.caps.actors,
            ),
            (
                _Role.ACTIVE_CONVERSATION,
                _Role.CAP_CONVERSATIONS,
                bet.conversation,
                "conversation",
                keys.active_conversation(install.install_id, _conversation_id(arrival)),
                bet.conversation_shards,
                install.caps.conversations,
            ),
        ):
            period = arrival.received_at // ACTIVE_PERIOD_MS
            due = {
                "due_pk": keys.idle(row.sk),
                "due_at": (period + 1) * ACTIVE_PERIOD_MS + ACTIVE_KEPT_MS,
            }
            match place:
                case _Place.TAKEN_THIS_PERIOD:
                    continue
                case _Place.TAKEN:
                    writes.add(
                        role,
                        update(
                            row,
                            "SET #period = :period, #due_pk = :due_pk, #due_at = :due_at",
                            "attribute_exists(#pk)",
                            period=period,
                            **due,
                        ),
                    )
                case _Place.NEW:
                    shard = shards[0]
                    writes.add(
                        role,
                        put(
                            row,
                            {"period": period, "shard": shard, "kind": kind, **due},
                            "attribute_not_exists(#pk)",
                        ),
                    )
                    writes.add(
                        cap,
                        update(
                            keys.cap_count(install.install_id, kind, shard),
                            "SET #n = if_not_exists(#n, :zero) + :one",
                            "attribute_not_exists(#n) OR #n < :limit",
                            zero=0,
                            one=1,
                            limit=_share(limit, _cap_shards(limit), shard),
                        ),
                    )

    def _rate(self, arrival: Arrival, shard: int) -> Write:
        limit = arrival.install.caps.messages_per_minute
        return update(
            keys.rate(arrival.install.install_id, arrival.received_at, shard),
            "SET #n = if_not_exists(#n, :zero) + :one, #ttl = :ttl",
            "attribute_not_exists(#n) OR #n < :limit",
            zero=0,
            one=1,
            ttl=(arrival.received_at + RATE_ROW_KEPT_MS) // 1000,
            limit=_share(limit, _rate_shards(limit), shard),
        )

    def _conversation(self, arrival: Arrival, bet: _Bet) -> Write:
        """The order key, held by a condition, so that no two functions' clocks turn messages
        round."""
        conversation_id = _conversation_id(arrival)
        engaged = bet.judgement.verdict is Verdict.ENGAGE
        tag = _tag(arrival)
        values: dict[str, Any] = {"order": bet.order}
        sets = ["#last_order = :order"]
        conditions = []
        if bet.conversation_exists:
            conditions += ["attribute_exists(#pk)", "#last_order < :order"]
            if bet.known_actors is None:
                conditions.append("contains(#actors, :tag)")
                values["tag"] = tag
            elif len(bet.known_actors) < KNOWN_ACTORS_MAX:
                sets.append("#actors = :actors")
                values["actors"] = bet.known_actors | {tag}
        else:
            conditions.append("attribute_not_exists(#pk)")
            sets += [
                "#v = :v",
                "#conversation_id = :conversation_id",
                "#install_id = :install_id",
                "#agent_id = :agent_id",
                "#conversation_key = :conversation_key",
                "#kind = :kind",
                "#actors = :actors",
                "#pending = :pending",
            ]
            values |= {
                "v": keys.ITEM_VERSION,
                "conversation_id": conversation_id,
                "install_id": arrival.install.install_id,
                "agent_id": arrival.install.agent_id,
                "conversation_key": arrival.message.conversation_key,
                "kind": arrival.install.kind,
                "actors": frozenset({tag}),
                "pending": int(engaged),
            }
        if engaged:
            sets += ["#due_pk = :due_pk", "#due_at = :due_at"]
            values |= {
                "due_pk": keys.due(conversation_id),
                "due_at": arrival.received_at + DUE_AFTER_MS,
            }
            if bet.conversation_exists:
                sets.append("#pending = #pending + :one")
                conditions.append("#pending < :waiting")
                values |= {"one": 1, "waiting": arrival.install.caps.waiting}
        return update(
            keys.order(conversation_id),
            "SET " + ", ".join(sets),
            " AND ".join(conditions),
            **values,
        )

    def _message(self, arrival: Arrival, bet: _Bet) -> Write:
        message = arrival.message
        return put(
            keys.message(_conversation_id(arrival), bet.order),
            {
                **msgspec.to_builtins(message),
                "conversation_key": None,  # the conversation item has it
                "story": arrival.story,
                "order": bet.order,
                "role": "utterance",
                "at": arrival.received_at,
                "verdict": bet.judgement.verdict.value,
                "ttl": self._ttl(arrival.received_at),
            },
        )

    def _story(self, arrival: Arrival, bet: _Bet) -> Write:
        engaged = bet.judgement.verdict is Verdict.ENGAGE
        agent_id = arrival.install.agent_id
        item: dict[str, Any] = {
            "story": arrival.story,
            "conversation_id": _conversation_id(arrival),
            "conversation_key": arrival.message.conversation_key,
            "order": bet.order if bet.judgement.verdict is not Verdict.REFUSE else None,
            "install_id": arrival.install.install_id,
            "agent_id": agent_id,
            "message_id": arrival.message.message_id,
            "actor_id": arrival.message.actor_id,
            "received_at": arrival.received_at,
            "secret_version": arrival.secret_version,
            "verdict": bet.judgement.verdict.value,
            "reason": bet.judgement.reason.value,
            "ttl": self._ttl(arrival.received_at),
        }
        if engaged:
            item |= {
                "status": RunStatus.QUEUED.value,
                "list_pk": keys.runs_list(agent_id, arrival.received_at, arrival.story),
                "list_sk": arrival.story,
            }
        return put(keys.story(arrival.story), item)

    def _pending(self, arrival: Arrival, bet: _Bet) -> Write:
        return put(
            keys.pending(_conversation_id(arrival), bet.order),
            {
                "story": arrival.story,
                "order": bet.order,
                "created_at": arrival.received_at,
                "message_id": arrival.message.message_id,
                "install_id": arrival.install.install_id,
                "agent_id": arrival.install.agent_id,
                "lease_no": 0,
                "lease_until": 0,
            },
        )

    # ---- what a failed try teaches

    def _judge(
        self, arrival: Arrival, bet: _Bet, roles: list[_Role], reasons: tuple[Reason, ...]
    ) -> Admitted | _Bet:
        failed = {
            role: reason
            for role, reason in zip(roles, reasons, strict=True)
            if reason.why is not Why.PASSED
        }
        claim = failed.get(_Role.CLAIM)
        if claim is not None:
            old = claim.old if claim.why is Why.CONDITION else self._read_claim(arrival)
            if old is not None and old["claimed_at"] >= arrival.received_at - CLAIM_KEPT_MS:
                return self._claimed(arrival, old)
        conditions = {role: r.old for role, r in failed.items() if r.why is Why.CONDITION}
        bet = replace(bet, order=max(self._clock.now_ms() * 1000, bet.order + 1))
        bet = self._next_shards(bet, arrival, conditions)
        if _Role.ACTOR in conditions:
            bet = replace(bet, actor=_seen(conditions[_Role.ACTOR]))
            bet = self._with_cap_shards(bet, arrival)
        if _Role.ACTIVE_CONVERSATION in conditions:
            bet = replace(bet, conversation=_seen(conditions[_Role.ACTIVE_CONVERSATION]))
            bet = self._with_cap_shards(bet, arrival)
        if _Role.CONVERSATION in conditions:
            bet = self._after_conversation(bet, arrival, conditions[_Role.CONVERSATION])
        if not conditions:
            self._table.back_off()
        return bet

    def _next_shards(
        self, bet: _Bet, arrival: Arrival, conditions: dict[_Role, Item | None]
    ) -> _Bet:
        """Goes on to the next shard of a full counter; refuses where none is left."""
        # A place that is taken already needs no other: then a full cap says nothing.
        if (
            _Role.CAP_CONVERSATIONS in conditions
            and conditions.get(_Role.ACTIVE_CONVERSATION) is None
        ):
            bet = replace(bet, conversation_shards=bet.conversation_shards[1:])
            if not bet.conversation_shards:
                raise Refused(
                    "conversation_cap_reached",
                    "this install has as many active conversations as its operator allows",
                )
        if _Role.CAP_ACTORS in conditions and conditions.get(_Role.ACTOR) is None:
            bet = replace(bet, actor_shards=bet.actor_shards[1:])
            if not bet.actor_shards:
                raise Refused(
                    "actor_cap_reached",
                    "this install has as many active actors as its operator allows",
                )
        if _Role.RATE in conditions:
            bet = replace(bet, rate_shards=bet.rate_shards[1:])
            if not bet.rate_shards:
                left_ms = MINUTE_MS - arrival.received_at % MINUTE_MS
                raise Refused(
                    "rate_limited",
                    "too many messages this minute; send it again after the time in Retry-After",
                    retry_after_s=-(-left_ms // 1000),
                )
        return bet

    def _after_conversation(self, bet: _Bet, arrival: Arrival, old: Item | None) -> _Bet:
        """One old item answers absent, order, busy and actor."""
        if old is None:
            bet = replace(
                bet,
                conversation_exists=False,
                known_actors=frozenset(),
                conversation=_Place.NEW,
            )
            return self._with_cap_shards(self._with_actor(bet, arrival), arrival)
        bet = replace(
            bet, conversation_exists=True, order=max(bet.order, int(old["last_order"]) + 1)
        )
        if (
            bet.judgement.verdict is Verdict.ENGAGE
            and old.get("pending", 0) >= arrival.install.caps.waiting
        ):
            bet = replace(bet, judgement=OBSERVED_AS_BUSY)
        tag = _tag(arrival)
        actors = frozenset(old.get("actors") or ())
        if tag in actors:
            return replace(
                bet,
                known_actors=None,
                actor=_Place.TAKEN_THIS_PERIOD,
                conversation=_Place.TAKEN_THIS_PERIOD,
            )
        period, _, actor = tag.partition(":")
        this_period = frozenset(each for each in actors if each.startswith(f"{period}:"))
        if any(each.endswith(f":{actor}") for each in actors) and not bet.actor_looked_up:
            bet = replace(bet, actor=_Place.TAKEN, actor_looked_up=True)
        bet = self._with_actor(bet, arrival)
        if bet.conversation is _Place.TAKEN_THIS_PERIOD or not this_period:
            bet = replace(
                bet, conversation=_Place.TAKEN_THIS_PERIOD if this_period else _Place.TAKEN
            )
        elif bet.conversation is _Place.NEW:
            # another first message of this conversation won, and took its place under the cap
            bet = replace(bet, conversation=_Place.TAKEN_THIS_PERIOD)
        bet = replace(bet, known_actors=this_period)
        return self._with_cap_shards(bet, arrival)

    def _with_actor(self, bet: _Bet, arrival: Arrival) -> _Bet:
        """Where an actor stands who is new to the conversation: looked up once, as a hint."""
        if bet.actor_looked_up:
            return bet
        key = keys.active_actor(arrival.install.install_id, arrival.message.actor_id)
        try:
            row = self._table.get(key)
        except Failed:
            row = None  # the transaction's own condition says it if this is wrong
        place = _Place.NEW if row is None else _Place.TAKEN
        if row is not None and row["period"] == arrival.received_at // ACTIVE_PERIOD_MS:
            place = _Place.TAKEN_THIS_PERIOD
        return replace(bet, actor=place, actor_looked_up=True)

    def _with_cap_shards(self, bet: _Bet, arrival: Arrival) -> _Bet:
        caps = arrival.install.caps
        if bet.actor is _Place.NEW and not bet.actor_shards:
            bet = replace(bet, actor_shards=self._shards(_cap_shards(caps.actors)))
        if bet.conversation is _Place.NEW and not bet.conversation_shards:
            bet = replace(bet, conversation_shards=self._shards(_cap_shards(caps.conversations)))
        return bet

    def _claimed(self, arrival: Arrival, old: Item) -> Admitted:
        """What an existing claim says: our own earlier try, a duplicate, or another message."""
        claim = msgspec.convert(old, Claim)
        ours = claim.story == arrival.story
        if not ours and claim.digest != self._digest_of(arrival.message, claim.digest_version):
            raise Conflict(
                "idempotency_conflict",
                "this message_id was used in this conversation for another message",
            )
        return Admitted(
            duplicate=not ours,
            story=claim.story,
            verdict=Verdict(claim.verdict),
            reason=claim.reason,
            conversation_id=_conversation_id(arrival),
        )

    def _resolve(self, arrival: Arrival) -> Admitted:
        """An outcome that is not known is resolved by one consistent read of the claim."""
        old = self._read_claim(arrival)
        if old is not None and old["claimed_at"] >= arrival.received_at - CLAIM_KEPT_MS:
            return self._claimed(arrival, old)
        raise Failed("unavailable", "the message was not taken; send it again", Phase.BEFORE)

    def _read_claim(self, arrival: Arrival) -> Item | None:
        """The claim as it stands. Raises Failed (outcome_unknown): without it nobody can say."""
        message = arrival.message
        key = keys.claim(arrival.install.install_id, message.conversation_key, message.message_id)
        try:
            return self._table.get(key)
        except Failed:
            raise Failed(
                "unavailable",
                "it is not known whether the message was taken; send it again as it is",
                outcome_unknown=True,
            ) from None

    def _admitted(self, arrival: Arrival, judgement: Judgement) -> Admitted:
        return Admitted(
            duplicate=False,
            story=arrival.story,
            verdict=judgement.verdict,
            reason=judgement.reason.value,
            conversation_id=_conversation_id(arrival),
        )

    def _shards(self, count: int) -> tuple[int, ...]:
        """All shards of a counter, from a random one on."""
        start = int(self._random.uniform(0, count)) % count
        return tuple((start + step) % count for step in range(count))

    def _ttl(self, at_ms: int) -> int:
        return (at_ms + self._kept_days * DAY_MS) // 1000


def _conversation_id(arrival: Arrival) -> str:
    return keys.conversation_id(arrival.install.install_id, arrival.message.conversation_key)


_TAG_CHARACTERS: Final = 14


def _tag(arrival: Arrival) -> str:
    """The actor in this ten-day period: a member of the conversation's set of known actors."""
    actor = keys.actor_id(arrival.install.install_id, arrival.message.actor_id)
    return f"{arrival.received_at // ACTIVE_PERIOD_MS}:{actor[-_TAG_CHARACTERS:]}"


def _seen(old: Item | None) -> _Place:
    """What a failed bet on an activity row teaches: it is there after all, or it is not."""
    return _Place.NEW if old is None else _Place.TAKEN


def _cap_shards(limit: int) -> int:
    return max(1, min(CAP_SHARDS_MAX, limit // CAP_SHARD_SIZE))


def _rate_shards(limit: int) -> int:
    return max(1, min(RATE_SHARDS_MAX, limit // RATE_SHARD_SIZE))


def _share(limit: int, shards: int, shard: int) -> int:
    """The part of a limit that one shard holds; the parts add up to the limit exactly."""
    return limit // shards + (1 if shard < limit % shards else 0)
