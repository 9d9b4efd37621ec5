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

import msgspec

from mesh.connectors.admission.arrival import (
    Admitted,
    Arrival,
    Bet,
    Role,
    conversation_id_of,
    rate_shards_of,
)
from mesh.connectors.admission.lessons import Lessons
from mesh.connectors.admission.writes import AdmissionWrites
from mesh.control.engagement import Judgement, Verdict
from mesh.kernel.clock import Clock, Deadline
from mesh.kernel.errors import Conflict, Failed, Phase
from mesh.kernel.ids import Random
from mesh.kernel.limits import CLAIM_KEPT_MS, TRANSACTION_TRIES
from mesh.records.message import NormalizedMessage
from mesh.records.run import Claim
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.table import Cancelled, Reason, Table, Why

DigestOf = Callable[[NormalizedMessage, int], str]
"""A message's digest by a digest version, hex SHA-256."""


class Admission:
    """Takes utterances in. One per function; holds no state between messages."""

    def __init__(
        self,
        table: Table,
        clock: Clock,
        random: Random,
        digest_of: DigestOf,
        *,
        deadline: Deadline,
    ) -> None:
        self._table = table
        self._clock = clock
        self._random = random
        self._digest_of = digest_of
        self._writes = AdmissionWrites()
        self._lessons = Lessons(table, clock, random)
        self._deadline = deadline

    def admit(self, arrival: Arrival) -> Admitted:
        """Commits the utterance, or finds what it was committed as.

        Tries while the deadline allows. Raises Conflict (`idempotency_conflict`),
        Refused (`conversation_cap_reached`, `actor_cap_reached`, `rate_limited`) with nothing
        written, and Failed (`unavailable`), whose `outcome_unknown` says that the claim could not
        be read either.
        """
        bet = Bet(
            order=self._clock.now_ms() * 1000,
            judgement=arrival.judgement,
            rate_shards=self._lessons.shards(
                rate_shards_of(arrival.install.caps.messages_per_minute)
            )[:2],
        )
        for attempt in range(TRANSACTION_TRIES):
            if attempt == 0:
                self._deadline.demand_a_call()
            elif not self._deadline.allows_a_call():
                break
            writes = self._writes.of(arrival, bet)
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

    def _judge(
        self, arrival: Arrival, bet: Bet, roles: list[Role], reasons: tuple[Reason, ...]
    ) -> Admitted | Bet:
        failed = {
            role: reason
            for role, reason in zip(roles, reasons, strict=True)
            if reason.why is not Why.PASSED
        }
        claim = failed.get(Role.CLAIM)
        if claim is not None:
            old = claim.old if claim.why is Why.CONDITION else self._read_claim(arrival)
            if old is not None and old["claimed_at"] >= arrival.received_at - CLAIM_KEPT_MS:
                return self._claimed(arrival, old)
        olds = {role: r.old for role, r in failed.items() if r.why is Why.CONDITION}
        bet = self._lessons.learn(bet, arrival, olds)
        if not olds:
            self._table.back_off()
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
            conversation_id=conversation_id_of(arrival),
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
            conversation_id=conversation_id_of(arrival),
        )
