"""A change of the receiver's host: what waited for the old one never reaches the new one."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.storage import keys
from tests.fakes.egress import answer
from tests.fakes.operators import Api, admin
from tests.fakes.system import Made, System

NEW = "https://other.example/hook"


class Story:
    """An install whose receiver fails, with two replies waiting in a conversation."""

    def __init__(self) -> None:
        self.system = System()
        self.api: Api = admin(self.system)
        self.made: Made = self.system.make_install()
        self.path = f"/api/connectors/{self.made.install_id}"
        self.system.receiver(answer(500))
        self.system.receiver(answer(200), url=NEW)
        self.say("m-1")
        self.say("m-2")

    def say(self, message_id: str) -> None:
        self.system.say(self.made, "hello", message_id)
        self.system.settle()
        self.system.clock.forward(4)  # longer than an index lags

    def move(self, pending: str) -> None:
        put = {"name": "x", "delivery_url": NEW, "version": 1, "pending": pending}
        self.api.ok("PUT", self.path, put)

    def entries(self) -> list[tuple[str, str | None]]:
        rows = self.system.rows(keys.ENTRY)
        return [(row["state"], row.get("state_reason")) for row in rows]

    def arrived(self) -> list[str]:
        return [body["in_reply_to"] for body in self.system.delivered(NEW)]

    def run(self) -> None:
        self.system.run(1200, step_s=30)


def test_the_new_host_gets_what_is_made_after_the_change_and_nothing_before() -> None:
    story = Story()
    story.move("discard")
    story.system.clock.forward(1)
    story.say("m-3")
    story.run()
    assert story.arrived() == ["m-3"]
    assert story.entries() == [("discarded", "operator")] * 2 + [("delivered", None)]


def test_delivery_discards_by_itself_where_the_job_comes_late() -> None:
    story = Story()
    story.move("discard")
    del story.system.stack.sources["chores"]  # the job's ring is never answered
    story.run()
    assert story.entries() == [("discarded", "operator")] * 2
    assert story.arrived() == []


def test_what_waits_is_discarded_though_the_connector_is_disabled() -> None:
    story = Story()
    story.api.ok("POST", f"{story.path}/disable")
    story.move("discard")
    story.system.settle()
    assert story.entries() == [("discarded", "operator")] * 2
    story.api.ok("POST", f"{story.path}/enable", {"skip_ping": True})
    story.system.clock.forward(1)
    story.say("m-3")
    story.run()
    assert story.arrived() == ["m-3"]


def test_what_is_to_be_sent_goes_to_the_new_host_in_order() -> None:
    story = Story()
    story.move("send")
    story.run()
    assert story.arrived() == ["m-1", "m-2"]


@pytest.mark.parametrize("pending", ["discard", "send"])
def test_a_change_that_somebody_else_came_before_discards_nothing(pending: str) -> None:
    story = Story()
    story.api.ok("PUT", story.path, {"name": "y", "version": 1})
    put: dict[str, Any] = {"name": "x", "delivery_url": NEW, "version": 1, "pending": pending}
    assert story.api("PUT", story.path, put).status == 409
    story.system.settle()
    assert [state for state, _ in story.entries()] == ["pending", "pending"]
    assert story.system.rows(keys.JOB) == []
