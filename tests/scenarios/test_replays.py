"""A replay that may not be sent yet goes out soon after it may, and blocks nothing meanwhile."""

from __future__ import annotations

import pytest

from mesh.storage import keys
from tests.fakes.egress import answer
from tests.fakes.operators import Api, admin
from tests.fakes.system import System

WAITS_S = 3600
"""So long that the sweep would look again only after a quarter of an hour."""
SOON_S = 125


class Story:
    """A delivered entry whose replay is ordered while nothing may be sent."""

    def __init__(self) -> None:
        self.system = System()
        self.api: Api = admin(self.system)
        self.made = self.system.make_install()
        self.path = f"/api/connectors/{self.made.install_id}"
        self.system.say(self.made, "hello", "m-1", conversation_key="first")
        self.system.settle()

    def order(self) -> None:
        rows = self.system.rows(keys.ENTRY)
        (entry,) = [row for row in rows if row["state"] == "delivered"]
        self.api.ok("POST", f"/api/outbox/out_{entry['story']}/replay")
        self.system.settle()

    def replays(self) -> int:
        """How many attempts there were beside the order."""
        return sum("X-Mesh-Replay" in call.headers for call in self.system.calls())

    def wait(self) -> None:
        self.system.run(WAITS_S, step_s=30)
        (row,) = self.system.rows(keys.REPLAY)
        assert row["due_pk"] == keys.held(self.made.install_id), "it is out of the sweep's way"


def test_where_no_conversation_waits_a_replay_finds_out_that_the_endpoint_is_well() -> None:
    story = Story()
    story.system.receiver(answer(500))
    for number in range(5):
        story.system.say(story.made, "hello", f"n-{number}", conversation_key=f"room-{number}")
    story.system.run(20)
    job = story.api.ok("POST", f"{story.path}/outbox/discard")
    story.system.run(20)
    assert story.api.ok("GET", f"/api/jobs/{job['job_id']}")["done"] == 5
    assert story.api.ok("GET", story.path)["delivery"]["state"] == "degraded"
    story.order()
    story.wait()
    tried = story.replays()
    assert 50 <= tried <= WAITS_S / 60 + 1, "one probe a minute, and it counts to no tries"
    story.system.receiver(answer(200))
    story.api.ok("POST", f"{story.path}/outbox/replay", {"status": "discarded"})
    story.system.run(60 + SOON_S)  # the probe, and the minute over which all is spread
    assert story.api.ok("GET", story.path)["delivery"]["state"] == "ok"
    assert (story.replays(), story.system.rows(keys.REPLAY)) == (tried + 6, [])
    states = [row["state"] for row in story.system.rows(keys.ENTRY)]
    assert states == ["delivered"] * 6


def test_a_replay_for_a_disabled_connector_goes_out_soon_after_it_is_enabled() -> None:
    story = Story()
    story.api.ok("POST", f"{story.path}/disable")
    story.order()
    story.wait()
    story.api.ok("POST", f"{story.path}/enable", {"skip_ping": True})
    story.system.run(SOON_S)
    assert (story.replays(), story.system.rows(keys.REPLAY)) == (1, [])


@pytest.mark.parametrize("status", [410, 500])
def test_a_replay_goes_out_soon_after_delivery_is_resumed(status: int) -> None:
    story = Story()
    story.system.receiver(answer(status))
    for number in range(5):
        story.system.say(story.made, "hello", f"n-{number}", conversation_key=f"room-{number}")
    story.system.run(20)
    assert story.api.ok("GET", story.path)["delivery"]["state"] in ("paused", "degraded")
    story.order()
    story.wait()
    story.system.receiver(answer(200))
    story.api.ok("POST", f"{story.path}/resume-delivery")
    story.system.run(SOON_S)
    assert story.replays() in (1, 2), "at most one was a probe"
    assert story.system.rows(keys.REPLAY) == []


def test_a_replay_goes_out_soon_after_a_probe_found_the_endpoint_well() -> None:
    story = Story()
    story.system.receiver(answer(500))
    for number in range(5):
        story.system.say(story.made, "hello", f"n-{number}", conversation_key=f"room-{number}")
    story.system.run(20)
    story.order()
    story.wait()
    story.system.receiver(answer(200))
    story.system.run(60 + 60 + SOON_S)  # the probe, and the minute over which all is spread
    assert story.replays() in (1, 2), "at most one was a probe itself"
    assert story.system.rows(keys.REPLAY) == []
    states = [row["state"] for row in story.system.rows(keys.ENTRY)]
    assert states == ["delivered"] * 6
