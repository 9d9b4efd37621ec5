"""Owns what one try of admission writes: the claim, the places, the message, its story and its run.

Refuses to decide: each write carries the condition under which it holds.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mesh.connectors.admission.arrival import (
    Arrival,
    Bet,
    Place,
    Role,
    actor_tag,
    cap_shards,
    conversation_id_of,
    rate_shards_of,
    share,
)
from mesh.control.engagement import Judgement, Verdict
from mesh.kernel.clock import DAY_MS
from mesh.kernel.limits import (
    ACTIVE_KEPT_MS,
    ACTIVE_PERIOD_MS,
    CLAIM_KEPT_MS,
    DUE_AFTER_MS,
    KNOWN_ACTORS_MAX,
    RATE_ROW_KEPT_MS,
)
from mesh.records.run import Claim, RunStatus
from mesh.storage import keys
from mesh.storage.writes import Write, put, update


class Writes(msgspec.Struct):
    """The transaction of one bet, with each write's role."""

    roles: list[Role] = msgspec.field(default_factory=list)
    writes: list[Write] = msgspec.field(default_factory=list)

    def add(self, role: Role, write: Write) -> None:
        self.roles.append(role)
        self.writes.append(write)


class AdmissionWrites:
    """Makes the transaction of a bet."""

    def of(self, arrival: Arrival, bet: Bet) -> Writes:
        """All writes of one try, each with its role."""
        writes = Writes()
        verdict = bet.judgement.verdict
        writes.add(Role.CLAIM, self._claim(arrival, bet.judgement))
        if verdict is not Verdict.REFUSE:
            self._add_activity(writes, arrival, bet)
        writes.add(Role.RATE, self._rate(arrival, bet.rate_shards[0]))
        if verdict is not Verdict.REFUSE:
            writes.add(Role.CONVERSATION, self._conversation(arrival, bet))
            writes.add(Role.OTHER, self._message(arrival, bet))
        writes.add(Role.OTHER, self._story(arrival, bet))
        if verdict is Verdict.ENGAGE:
            writes.add(Role.OTHER, self._pending(arrival, bet))
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
            {
                **msgspec.to_builtins(claim),
                # Callers are promised their first answer for so long, however short words are kept.
                "ttl": max(_ttl(arrival), (arrival.received_at + CLAIM_KEPT_MS) // 1000),
            },
            "attribute_not_exists(#pk) OR #claimed_at < :cutoff",
            cutoff=arrival.received_at - CLAIM_KEPT_MS,
        )

    def _add_activity(self, writes: Writes, arrival: Arrival, bet: Bet) -> None:
        """The places under the two caps; none are touched in a period in which they are known."""
        install = arrival.install
        for role, cap, place, kind, row, shards, limit in (
            (
                Role.ACTOR,
                Role.CAP_ACTORS,
                bet.actor,
                "actor",
                keys.active_actor(install.install_id, arrival.message.actor_id),
                bet.actor_shards,
                install.caps.actors,
            ),
            (
                Role.ACTIVE_CONVERSATION,
                Role.CAP_CONVERSATIONS,
                bet.conversation,
                "conversation",
                keys.active_conversation(install.install_id, conversation_id_of(arrival)),
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
                case Place.TAKEN_THIS_PERIOD:
                    continue
                case Place.TAKEN:
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
                case Place.NEW:
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
                            limit=share(limit, cap_shards(limit), shard),
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
            limit=share(limit, rate_shards_of(limit), shard),
        )

    def _conversation(self, arrival: Arrival, bet: Bet) -> Write:
        """The order key, held by a condition, so that no two functions' clocks turn messages
        round."""
        conversation_id = conversation_id_of(arrival)
        engaged = bet.judgement.verdict is Verdict.ENGAGE
        tag = actor_tag(arrival)
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
                "#list_pk = :list_pk",
                "#list_sk = :list_sk",
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
                "list_pk": keys.conversations_list(
                    arrival.install.agent_id, arrival.received_at, arrival.story
                ),
                "list_sk": arrival.story,  # no later message changes it, so the index stays
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
                values |= {"one": 1, "waiting": arrival.waiting_max}
        return update(
            keys.order(conversation_id),
            "SET " + ", ".join(sets),
            " AND ".join(conditions),
            **values,
        )

    def _message(self, arrival: Arrival, bet: Bet) -> Write:
        message = arrival.message
        return put(
            keys.message(conversation_id_of(arrival), bet.order),
            {
                **msgspec.to_builtins(message),
                "conversation_key": None,  # the conversation item has it
                "story": arrival.story,
                "order": bet.order,
                "role": "utterance",
                "at": arrival.received_at,
                "verdict": bet.judgement.verdict.value,
                "ttl": _ttl(arrival),
            },
        )

    def _story(self, arrival: Arrival, bet: Bet) -> Write:
        engaged = bet.judgement.verdict is Verdict.ENGAGE
        agent_id = arrival.install.agent_id
        item: dict[str, Any] = {
            "story": arrival.story,
            "conversation_id": conversation_id_of(arrival),
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
            "ttl": _ttl(arrival),
        }
        if engaged:
            item |= {
                "status": RunStatus.QUEUED.value,
                "list_pk": keys.runs_list(agent_id, arrival.received_at, arrival.story),
                "list_sk": arrival.story,
            }
        return put(keys.story(arrival.story), item)

    def _pending(self, arrival: Arrival, bet: Bet) -> Write:
        return put(
            keys.pending(conversation_id_of(arrival), bet.order),
            {
                "story": arrival.story,
                "order": bet.order,
                "created_at": arrival.received_at,
                "message_id": arrival.message.message_id,
                "install_id": arrival.install.install_id,
                "agent_id": arrival.install.agent_id,
                "kept_days": arrival.kept_days,
                "lease_no": 0,
                "lease_until": 0,
            },
        )


def _ttl(arrival: Arrival) -> int:
    """When DynamoDB may delete what is written of the arrival (Unix seconds)."""
    return (arrival.received_at + arrival.kept_days * DAY_MS) // 1000
