"""How long words are kept: the agent's number, else the instance's, else the environment's."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.kernel.clock import DAY_MS
from mesh.kernel.limits import CLAIM_KEPT_MS, ENTRY_AGE_MS_MAX, INSTANCE_KEY_KEPT_MS
from mesh.storage import keys
from mesh.storage.writes import delete
from tests.fakes.egress import answer
from tests.fakes.operators import admin
from tests.fakes.system import Made, System

SETTINGS = "/api/instance/settings"
ENVIRONMENT_DAYS = 90
WORDS = ("MSG#", "STORY", "STEP#")
"""The rows of a story that hold what was said, or what came of it."""


class Instance:
    """An instance with one agent and one install of it."""

    def __init__(self) -> None:
        self.system = System()
        self.admin = admin(self.system)
        self.made = self.system.make_install()
        self._said = 0

    def set_agent(self, days: int | None) -> None:
        version = self.admin.ok("GET", "/api/agents/ada")["version"]
        body = {"name": "Ada", "handle": "ada", "retention_days": days, "version": version}
        assert self.admin.ok("PUT", "/api/agents/ada", body)["retention_days"] == days

    def set_instance(self, days: int | None) -> None:
        version = self.admin.ok("GET", SETTINGS)["version"]
        self.admin.ok("PUT", SETTINGS, {"retention_days": days, "version": version})
        self.system.clock.forward(INSTANCE_KEY_KEPT_MS / 1000 + 1)

    def kept_ms(self, made: Made | None = None) -> dict[str, set[int]]:
        """Says something; how long each kind of row that came of it is kept, in ms."""
        self._said += 1
        self.system.clock.ms = self.system.clock.ms // 1000 * 1000 + 1000  # on a whole second
        before = {(row["pk"], row["sk"]) for row in self.system.aws.items()}
        said = self.system.say(made or self.made, "hello", f"m-{self._said}")
        assert said.status == 202
        self.system.settle()
        now = self.system.clock.now_ms()
        found: dict[str, set[int]] = {}
        for row in self.system.aws.items():
            if (row["pk"], row["sk"]) in before or "ttl" not in row:
                continue
            kind = row["sk"].partition("#")[0] + ("#" if "#" in row["sk"] else "")
            found.setdefault(kind, set()).add(row["ttl"] * 1000 - now)
        return found

    def days(self, made: Made | None = None) -> int:
        """For how many days the words of what is said now are kept; all of them as long."""
        kept = self.kept_ms(made)
        (ms,) = {each for kind in WORDS for each in kept[kind]}
        return ms // DAY_MS


@pytest.fixture
def instance() -> Instance:
    return Instance()


def test_the_agents_number_comes_before_the_instances_and_that_before_the_environments(
    instance: Instance,
) -> None:
    assert instance.days() == ENVIRONMENT_DAYS
    instance.set_instance(30)
    assert instance.days() == 30
    instance.set_agent(400)
    assert instance.days() == 400, "at once: ingress reads it with the install"
    instance.set_instance(20)
    assert instance.days() == 400
    instance.set_agent(None)
    assert instance.days() == 20
    instance.set_instance(None)
    assert instance.days() == ENVIRONMENT_DAYS


def test_an_install_that_is_made_later_has_its_agents_number(instance: Instance) -> None:
    instance.set_agent(12)
    ada = instance.system.agents.by_slug("ada")
    assert instance.days(instance.system.make_install(agent=ada)) == 12


def test_a_whole_story_goes_by_the_number_that_stood_when_its_message_came(
    instance: Instance,
) -> None:
    system = instance.system
    instance.set_agent(12)
    system.say(instance.made, "hello", "m-1")
    instance.set_agent(40)
    system.settle()
    ttls = {row["ttl"] for kind in WORDS for row in system.rows(kind)}
    assert max(ttls) - min(ttls) < 3600
    (entry,) = system.rows("ENTRY#")
    assert abs(entry["ttl"] * 1000 - system.clock.now_ms() - 12 * DAY_MS) < 60_000


@pytest.mark.parametrize("days", [1, 6, 8, 3650])
def test_a_claim_outlives_every_retry_and_an_entry_every_attempt_however_short_words_are_kept(
    instance: Instance, days: int
) -> None:
    instance.set_agent(days)
    kept = instance.kept_ms()
    assert {ms for kind in WORDS for ms in kept[kind]} == {days * DAY_MS}
    assert kept["CLAIM"] == {max(days * DAY_MS, CLAIM_KEPT_MS)}
    assert CLAIM_KEPT_MS >= 7 * DAY_MS
    (entry,) = kept["ENTRY#"]
    assert entry >= max(days * DAY_MS, ENTRY_AGE_MS_MAX + 1)


def test_a_reply_whose_words_are_gone_before_it_was_delivered_is_dead_and_not_lost(
    instance: Instance,
) -> None:
    system = instance.system
    instance.set_agent(1)
    system.receiver(answer(503))
    system.say(instance.made, "hello", "m-1")
    system.settle()
    forget(system, after_days=2)
    assert not system.rows("MSG#") + system.rows("STORY")
    system.run(300, step_s=60)
    (entry,) = system.rows("ENTRY#")
    assert (entry["state"], entry["state_reason"]) == ("dead", "reply_deleted")
    assert len(system.calls()) == 1


def test_a_reply_that_is_held_for_longer_than_anything_is_kept_is_not_passed_by(
    instance: Instance,
) -> None:
    system = instance.system
    instance.set_agent(1)
    system.receiver(answer(503), answer(204))
    system.say(instance.made, "hello", "m-1")
    system.settle()
    instance.admin.ok("POST", f"/api/connectors/{instance.made.install_id}/disable")
    forget(system, after_days=30)
    path = f"/api/connectors/{instance.made.install_id}/enable"
    instance.admin.ok("POST", path, {"skip_ping": True})
    system.say(instance.made, "hello again", "m-2")
    system.run(300, step_s=60)
    first, second = system.rows("ENTRY#")
    assert (first["state"], first["state_reason"]) == ("dead", "reply_deleted")
    assert second["state"] == "delivered"
    assert [body["sequence"] for body in system.delivered()] == [1, 2]


@pytest.mark.parametrize("end", ["delivered", "dead", "discarded", "undeliverable"])
def test_an_entry_is_kept_from_its_end_on_whatever_ended_it(instance: Instance, end: str) -> None:
    system = instance.system
    instance.set_agent(12)
    system.receiver(answer(503))
    system.say(instance.made, "hello", "m-1")
    system.settle()
    (entry,) = system.rows("ENTRY#")
    assert "ttl" not in entry, "what is pending never goes of itself"
    system.clock.forward(3600)
    if end == "discarded":
        instance.admin.ok("POST", f"/api/outbox/out_{entry['story']}/discard")
    elif end == "undeliverable":
        shown = instance.admin.ok("GET", f"/api/connectors/{instance.made.install_id}")
        path = f"/api/connectors/{instance.made.install_id}"
        body = {"name": "Support", "delivery_url": None, "version": shown["version"]}
        instance.admin.ok("PUT", path, body)
    elif end == "dead":
        system.table.write(delete(keys.message(entry["pk"][5:], entry["reply_order"])))
    else:
        system.receiver(answer(204))
    system.run(120, step_s=60)
    (entry,) = system.rows("ENTRY#")
    assert entry["state"] == end
    assert abs(entry["ttl"] * 1000 - system.clock.now_ms() - 12 * DAY_MS) < 300_000


def test_a_run_that_waited_for_longer_than_its_story_is_told_ends_once_and_leaves_no_piece_of_it(
    instance: Instance,
) -> None:
    system = instance.system
    system.say(instance.made, "hello", "m-1")
    (story,) = system.rows("STORY")
    system.table.write(delete(keys.story(story["story"])))
    system.settle()
    assert not system.rows("PEND#") + system.rows("STORY")
    assert len(system.delivered()) == 1


def test_a_run_that_waited_for_longer_than_its_message_is_kept_expires_without_a_word(
    instance: Instance,
) -> None:
    system = instance.system
    instance.set_agent(400)
    system.say(instance.made, "earlier", "m-0")
    system.settle()
    instance.set_agent(1)
    system.say(instance.made, "hello", "m-1")
    instance.admin.ok("POST", "/api/agents/ada/pause")
    system.settle()
    forget(system, after_days=2)
    instance.admin.ok("POST", "/api/agents/ada/resume")
    system.run(60, step_s=30)
    assert not system.rows("PEND#")
    assert len(system.rows("STORY")) == 1, "no piece of what is not told any more"
    assert len(system.delivered()) == 1
    ended = [fields for event, fields in system.log.events if event == "turn.ended"]
    assert (ended[-1]["status"], ended[-1]["reason"]) == ("expired", "message_deleted")


def forget(system: System, *, after_days: int) -> None:
    """Lets time pass at once, and deletes what DynamoDB would have deleted by then."""
    system.clock.forward(after_days * DAY_MS / 1000)
    for row in list(system.aws.items()):
        if row.get("ttl", 1e12) * 1000 < system.clock.now_ms():
            system.table.write(delete(keys.Key(row["pk"], row["sk"])))


@pytest.mark.parametrize(("days", "status"), [(0, 422), (3651, 422), (3650, 200), (None, 200)])
def test_an_agents_number_is_of_one_day_to_ten_years(
    instance: Instance, days: Any, status: int
) -> None:
    response = instance.admin("PUT", "/api/agents/ada", {"retention_days": days, "version": 1})
    assert response.status == status
