"""One install's receiver cannot slow another's deliveries, whatever waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from infra.settings import environments
from mesh.kernel.limits import (
    DEGRADED_AFTER_FAILURES,
    EGRESS_TOTAL_S,
    RETRY_DELAYS_S,
    RETRY_JITTER,
    SLOTS_PER_INSTALL,
)
from mesh.security.egress import EgressFailureKind, Reply
from mesh.storage import keys
from mesh.storage.queues import Bell
from tests.fakes.egress import Call, Outcome, answer, failure
from tests.fakes.time import CrowdClock
from tests.simulation.crowd import Crowd
from tests.simulation.world import World

HANGING = "https://hanging.example/hook"
CONVERSATIONS = 1_000
LATE_MS = 5_000
"""How long after its commit an entry's first attempt must have begun, whatever a neighbour does."""


@dataclass
class Street:
    """Two installs on the workers of the smallest environment; one's receiver takes requests and
    answers none."""

    world: World = field(default_factory=lambda: World(clock=CrowdClock(), watching=False))
    begun: list[int] = field(default_factory=list)
    """When requests to the hanging receiver began."""

    def __post_init__(self) -> None:
        world = self.world
        self.crowd = Crowd(world, environments({})["dev"].worker_concurrency)
        self.good = world.made
        self.hanging = world.make_install(HANGING)
        world.egress.script(HANGING, self._hang)

    def _hang(self, _: Call) -> Reply:
        self.begun.append(self.world.clock.ms)
        self.crowd.wait(EGRESS_TOTAL_S)
        raise failure(EgressFailureKind.TIMEOUT)

    def fill(self, conversations: int) -> None:
        """Commits a reply to the hanging receiver in so many conversations, and rings for each.

        One of them is played, and its rows are copied: a thousand turns are no part of this.
        """
        world = self.world
        world.made = self.hanging
        world.say("first", "first")
        while world.poll("turns"):
            pass
        world.made = self.good
        first = keys.conversation_id(self.hanging.install_id, "first")
        rows = world.aws.dynamo._rows
        played = [row for row in rows.all() if row["pk"]["S"] == keys.conversation(first)]
        bell = Bell(world.clients.sqs, world.settings.queue_urls, world.ids)
        for number in range(conversations):
            conversation = keys.conversation_id(self.hanging.install_id, str(number))
            for row in played:
                pk = keys.conversation(conversation)
                copy = row | {"pk": {"S": pk}}
                if "conversation_id" in row:
                    copy["conversation_id"] = {"S": conversation}
                if "due_pk" in row:
                    copy["due_pk"] = {"S": keys.due(conversation)}
                rows.put((pk, row["sk"]["S"]), copy)
            bell.delivery(conversation)

    def talk(self, messages: int) -> None:
        """The neighbour is told something every second, each time in another conversation."""
        for number in range(messages):
            self.world.say(f"room-{number}", f"m-{number}")
            self.crowd.run(1)

    def waited_ms(self) -> list[int]:
        """How long each of the neighbour's replies waited for its first request."""
        committed = {
            f"out_{row['story']}": row["created_at"]
            for row in self.world.entries()
            if row["install_id"] == self.good.install_id
        }
        began: dict[str, int] = {}
        for got in self.world.receiver.received:
            began.setdefault(got.outbound_id, got.at)
        assert began.keys() == committed.keys(), "everything was tried"
        return [began[out] - committed[out] for out in committed]


@pytest.mark.behaviour("deploy:co-tenancy")
def test_a_thousand_conversations_whose_receiver_hangs_delay_no_neighbours_delivery() -> None:
    street = Street()
    street.fill(CONVERSATIONS)
    street.talk(24)
    waited = street.waited_ms()
    assert len(waited) == 24
    assert max(waited) <= LATE_MS, "the first stands behind a thousand rings, each looked at once"
    assert sorted(waited)[12] < 100, "the others are begun at once, while eight workers are held"
    assert len(street.begun) <= SLOTS_PER_INSTALL + DEGRADED_AFTER_FAILURES


def test_a_neighbours_retry_is_not_delayed_either() -> None:
    street = Street()
    tried: set[str] = set()

    def half_fail_once(_: int, body: dict[str, Any]) -> Outcome:
        key = body["conversation_key"]
        again = key in tried or int(key.removeprefix("room-")) % 2 == 0
        tried.add(key)
        return answer(200 if again else 503)

    street.world.receiver.answers = half_fail_once
    street.fill(CONVERSATIONS)
    street.talk(16)
    street.crowd.run(12)
    assert max(street.waited_ms()) <= LATE_MS
    at: dict[str, list[int]] = {}
    for got in street.world.receiver.received:
        at.setdefault(got.outbound_id, []).append(got.at)
    retried = [moments for moments in at.values() if len(moments) > 1]
    assert len(retried) == 8
    due_ms = RETRY_DELAYS_S[0] * (1 + RETRY_JITTER) * 1000
    assert max(second - first for first, second in retried) <= due_ms + LATE_MS
