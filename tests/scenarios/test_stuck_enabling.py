"""An enabling that stopped short goes on by itself, and never over what an operator did since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from infra.local.aws import Killed
from mesh.kernel.errors import Phase
from mesh.security.egress import EgressFailureKind
from mesh.storage import keys
from tests.fakes.egress import Call, answer, failure
from tests.fakes.operators import Api, admin
from tests.fakes.system import URL, Reply, System

When = Literal["before", "after"]

WITHIN_S = 125
"""Two minutes, and what the functions themselves take."""


class Story:
    """An install that is made and not enabled."""

    def __init__(self) -> None:
        self.system = System()
        self.api: Api = admin(self.system)
        body = {"kind": "generic", "name": "Support", "delivery_url": URL}
        self.id = self.api.ok("POST", "/api/agents/ada/connectors", body)["install_id"]
        self.path = f"/api/connectors/{self.id}"

    def enable(self) -> None:
        self.api("POST", f"{self.path}/enable", {})

    def dies_at(self, call: int, when: When) -> bool:
        """Whether enabling came to its so-manieth call of AWS, and died there."""
        self.system.aws.kill_at(call, when=when, caller="operator_connectors")
        try:
            self.enable()
        except Killed:
            return True
        finally:
            self.system.aws.spare()
        return False

    def dies_at_ping(self) -> None:
        def dies(_: Call) -> Reply:
            raise Killed("at the ping")

        self.system.receiver(dies, answer(200))
        with pytest.raises(Killed):
            self.enable()
        assert self.shown()["state"] == "enabling"

    def shown(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.api.ok("GET", self.path)
        return shown

    def run(self, seconds: float = WITHIN_S) -> None:
        self.system.run(seconds, step_s=5.0)

    def audited(self, action: str) -> int:
        rows = (row for row in self.system.aws.items() if row["pk"].startswith("AUDIT#"))
        return sum(row["action"] == action for row in rows)

    def has_mark(self) -> bool:
        (row,) = [row for row in self.system.rows(keys.SETTINGS) if "enabling_token" in row] or [{}]
        return "due_pk" in row


@pytest.mark.parametrize("when", ["before", "after"])
def test_wherever_enabling_died_it_is_gone_on_with_within_two_minutes(when: When) -> None:
    went_on = 0
    for call in range(1, 100):
        story = Story()
        if not story.dies_at(call, when):
            break
        begun = story.shown()["state"] == "enabling"
        went_on += begun
        story.run()
        expected = "enabled" if begun or story.audited("connector.enable") else "disabled"
        assert story.shown()["state"] == expected, (call, when)
        assert story.audited("connector.enabled") == (expected == "enabled")
        assert not story.has_mark()
    assert went_on >= 3, "it died between its steps"


def test_wherever_the_one_that_goes_on_dies_it_is_gone_on_with_again() -> None:
    deaths = 0
    for call in range(1, 100):
        story = Story()
        story.dies_at_ping()
        story.system.aws.kill_at(call, caller="chore_worker")
        try:
            story.run()
        except Killed:
            deaths += 1
            story.run(2 * WITHIN_S)  # its ring comes again, or the sweep rings
        finally:
            story.system.aws.spare()
        assert story.shown()["state"] == "enabled", call
        assert story.audited("connector.enabled") == 1
        if deaths < call:
            break
    assert deaths >= 3


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (answer(500), "ping failed: the receiver answered 500, not 2xx"),
        (failure(EgressFailureKind.CONNECT, Phase.BEFORE), "ping failed: connect"),
    ],
)
def test_a_step_that_fails_when_it_is_gone_on_with_ends_in_error_with_its_reason(
    outcome: Any, reason: str
) -> None:
    story = Story()
    story.dies_at_ping()
    story.system.receiver(outcome)
    story.run()
    shown = story.shown()
    assert shown["state"] == "error"
    assert shown["state_reason"] == f"{reason}. Then: mesh connector enable {story.id}"
    assert (story.audited("connector.enable_failed"), story.has_mark()) == (1, False)
    pings = len(story.system.calls())
    story.run(1800)
    assert len(story.system.calls()) == pings, "it is the operator's to try again"


def meanwhile(story: Story, act: Callable[[], object]) -> list[int]:
    """Has `act` done while the going-on waits for the answer of its first ping."""
    done: list[int] = []

    def pings(_: Call) -> Reply:
        if not done:
            done.append(1)
            act()
        return answer(200)

    story.system.receiver(pings)
    return done


def test_two_that_go_on_at_once_open_it_once() -> None:
    story = Story()
    story.dies_at_ping()

    def another() -> None:
        story.system.clock.forward(61)
        story.system.stack.tick()
        assert story.system.stack.poll_once("chores")

    done = meanwhile(story, another)
    story.run()
    assert done
    assert story.shown()["state"] == "enabled"
    assert story.audited("connector.enabled") == 1
    assert not story.has_mark()


@pytest.mark.parametrize("twice", [False, True], ids=["before", "while"])
@pytest.mark.parametrize("action", ["disable", "delete"])
def test_what_an_operator_closed_since_stays_closed(action: str, twice: bool) -> None:
    story = Story()
    story.dies_at_ping()

    def close() -> None:
        if action == "disable":
            story.api.ok("POST", f"{story.path}/disable")
        else:
            story.api.ok("DELETE", story.path)

    if twice:
        done = meanwhile(story, close)
    else:
        close()
    story.run()
    if twice:
        assert done, "it was closed while a worker went on"
    states = [row["state"] for row in story.system.rows(keys.SETTINGS) if "kind" in row]
    assert states == ["disabled" if action == "disable" else "deleted"]
    assert story.audited("connector.enabled") == 0
    assert not story.has_mark()
