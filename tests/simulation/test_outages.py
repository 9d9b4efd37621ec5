"""What a receiver can do to its own replies, and only to its own: outages, poison, refusals."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from infra.local.aws import Killed
from mesh.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS
from mesh.kernel.errors import Phase
from mesh.kernel.limits import ATTEMPTS_ON_ENTRY_MAX, DEGRADED_AFTER_FAILURES, PROBE_EVERY_MS
from mesh.security.egress import EgressFailureKind
from mesh.storage import keys
from tests.fakes.egress import Outcome, answer, failure
from tests.simulation.direct import Site
from tests.simulation.receiver import always_ok
from tests.simulation.world import World


def endpoint(world: World) -> dict[str, Any]:
    return world.rows()[keys.delivery(world.made.install_id)]


def during(world: World, until_ms: int, outcome: Outcome) -> None:
    """Until then every request comes to `outcome`, and to a success from then on."""
    world.receiver.answers = lambda *_: outcome if world.clock.ms < until_ms else answer(200)


def test_a_receiver_that_was_down_for_six_hours_gets_everything_within_minutes() -> None:
    world = World()
    began = world.clock.ms
    back = began + 6 * HOUR_MS
    during(world, back, failure(EgressFailureKind.CONNECT, Phase.BEFORE))
    for number in range(1, 4):
        for conversation in "ABCDEF":
            world.say(conversation, f"{conversation}-{number}")
    world.run(900)
    assert endpoint(world)["state"] == "degraded"
    degraded_after = world.receiver.requests
    assert degraded_after <= DEGRADED_AFTER_FAILURES + 8 + 15

    world.run((back - world.clock.ms) / 1000 - 1)
    requests = world.receiver.received[degraded_after:]
    assert all(
        later.at - earlier.at >= PROBE_EVERY_MS - 10_000 for earlier, later in pairwise(requests)
    ), "one probe a minute"
    probes = (back - began) // MINUTE_MS - 15
    assert 0.9 * probes <= len(requests) <= probes + 1
    tried = {got.reply["conversation_key"] for got in requests[-6:]}
    assert tried == set("ABCDEF"), "the waiting heads in turn"

    took = world.run_until_done(600)
    world.check()
    assert took <= 60 + 60 + 120
    assert endpoint(world)["state"] == "ok"
    assert all(entry["state"] == "delivered" for entry in world.entries())


def test_one_conversation_alone_is_probed_every_minute_once_its_endpoint_is_degraded() -> None:
    world = World()
    began = world.clock.ms
    during(world, began + HOUR_MS, answer(503))
    world.say("A", "a-1")
    world.run(3600 - 1)
    failed = world.receiver.received
    # The fifth failure in a row comes at 5 s + 30 s + 2 min + 10 min, give or take ten per cent.
    fifth = failed[DEGRADED_AFTER_FAILURES - 1].at
    assert 11 * MINUTE_MS < fifth - began < 15 * MINUTE_MS
    assert len(failed) - DEGRADED_AFTER_FAILURES >= 0.9 * (HOUR_MS - (fifth - began)) / MINUTE_MS
    took = world.run_until_done(300)
    world.check()
    assert took <= 130


def test_a_success_begun_while_all_was_well_brings_back_what_was_parked_meanwhile() -> None:
    """Its worker read a healthy endpoint; by the time it is answered, others have been parked."""
    world = World()
    bad = failure(EgressFailureKind.TIMEOUT)
    world.receiver.answers = lambda _, body: (
        answer(200) if body["conversation_key"] == "slow" else bad
    )
    world.say("c0", "c-0")
    world.drain()
    world.say("slow", "s-1")
    for number in range(1, 7):
        world.say(f"c{number}", f"c-{number}")

    def meanwhile(_: int) -> None:
        if world.receiver.received[-1].reply["conversation_key"] != "slow":
            return
        world.receiver.after = lambda _: None
        world.run(20)
        assert endpoint(world)["state"] == "degraded"
        world.receiver.answers = always_ok

    world.receiver.after = meanwhile
    world.run_until_done(300)
    world.check()


def test_a_poisoned_entry_dies_after_five_attempts_and_holds_its_own_conversation_alone() -> None:
    world = World()
    world.receiver.answers = lambda _, body: answer(404 if body["in_reply_to"] == "a-1" else 200)
    for number in range(1, 4):
        world.say("A", f"a-{number}")
        world.say("B", f"b-{number}")
    world.drain()
    assert [reply["in_reply_to"] for reply in world.receiver.replies] == ["b-1", "b-2", "b-3"]
    took = world.run_until_done(3600)
    assert took < 900, "minutes, not days"
    dead, *rest = world.entries_of("A")
    assert (dead["state"], dead["state_reason"], dead["attempts"]) == ("dead", "client_errors", 5)
    assert [entry["state"] for entry in rest] == ["delivered", "delivered"]


def test_a_gone_receiver_ends_one_entry_and_pauses_the_rest_until_it_is_resumed() -> None:
    world = World()
    world.receiver.answers = lambda number, _: answer(410 if number == 1 else 200)
    world.say("A", "a-1")
    world.say("A", "a-2")
    world.say("B", "b-1")
    world.run(2 * 3600)
    assert world.receiver.requests == 1
    first, second = world.entries_of("A")
    assert (first["state"], first["state_reason"]) == ("dead", "gone")
    assert second["state"] == "pending"
    assert endpoint(world)["state"] == "paused"
    assert world.say("C", "c-1").answered, "ingress stays open whatever delivery does"
    world.run(60)
    world.resume_delivery()
    assert world.run_until_done(300) <= 130
    assert [entry["state"] for entry in world.entries()].count("delivered") == 3


def test_an_endpoint_that_fails_for_a_day_is_paused_after_two_notices() -> None:
    world = World(answers=lambda *_: answer(500))
    began = world.clock.ms
    world.say("A", "a-1")
    world.run(900)
    for hours in (12, 21.6, 24):
        world.clock.ms = began + int(hours * HOUR_MS) - MINUTE_MS  # the probes between are left out
        world.run(240)
    assert endpoint(world)["state"] == "paused"
    told = [event for event, _ in world.log.events if event.startswith("endpoint.")]
    assert told == ["endpoint.failing", "endpoint.failing", "endpoint.paused"]
    requests = world.receiver.requests
    world.run(4 * 3600)
    assert world.receiver.requests == requests
    world.clock.ms += 8 * DAY_MS
    world.receiver.answers = always_ok
    world.resume_delivery()
    world.run_until_done(300)
    assert [entry["state"] for entry in world.entries()] == ["delivered"], "a pause ages nothing"


def test_a_url_that_turns_private_is_refused_three_times_and_no_more() -> None:
    world = World()
    world.egress.resolves["receiver.example"] = ["10.0.0.7"]
    world.say("A", "a-1")
    world.run_until_done(600)
    (entry,) = world.entries()
    assert (entry["state"], entry["state_reason"]) == ("dead", "refused_address")
    assert (entry["attempts"], world.receiver.requests) == (3, 0)
    assert {attempt["end"] for attempt in entry["recent"]} == {"refused_address"}


def test_an_entry_dies_after_seven_days() -> None:
    world = World()
    world.receiver.answers = lambda *_: answer(500)
    world.say("A", "a-1")
    world.say("A", "a-2")
    world.run(60)
    world.clock.ms += 7 * DAY_MS  # nothing runs for a week; what runs then must not send it
    requests = world.receiver.requests
    world.run_until_done(600)
    assert world.receiver.requests == requests
    assert [(e["state"], e["state_reason"]) for e in world.entries()] == [("dead", "too_old")] * 2


def test_attempts_beyond_a_page_are_kept_and_no_write_grows_with_them() -> None:
    world = World()
    during(world, world.clock.ms + 100 * MINUTE_MS, failure(EgressFailureKind.DNS, Phase.BEFORE))
    world.say("A", "a-1")
    world.run_until_done(4 * 3600)
    world.check()
    (entry,) = world.entries()
    assert entry["attempts"] > 2 * ATTEMPTS_ON_ENTRY_MAX
    assert entry["pages"] == (entry["attempts"] - 1) // ATTEMPTS_ON_ENTRY_MAX
    assert len(entry["recent"]) <= ATTEMPTS_ON_ENTRY_MAX


def test_a_receiver_that_asks_for_an_hour_does_not_starve_the_others_of_probes() -> None:
    world = World()
    patient = answer(429, retry_after="3600")
    world.receiver.answers = lambda _, body: (
        patient if body["conversation_key"] == "A" else answer(500)
    )
    world.say("A", "a-1")
    for number in range(1, 6):
        world.say(f"c{number}", f"c-{number}")
    world.run(120)
    assert endpoint(world)["state"] == "degraded"
    world.receiver.answers = lambda _, body: (
        patient if body["conversation_key"] == "A" else answer(200)
    )
    world.run(300)
    assert {reply["conversation_key"] for reply in world.receiver.replies} == {
        f"c{number}" for number in range(1, 6)
    }


def deadly(world: World, message_id: str) -> Callable[[Site], None]:
    """A worker dies wherever it thinks about that message: after the step's row, before its end."""

    def die(site: Site) -> None:
        row = site.body.get("Item", {})
        if (
            site.function == "turn_worker"
            and row.get("sk", {}).get("S", "").startswith("STEP#")
            and row["status"]["S"] != "running"
            and world.story_of(message_id) in row["pk"]["S"]
        ):
            raise Killed(message_id)

    return die


def test_a_run_that_kills_its_worker_three_times_ends_with_an_honest_reply() -> None:
    world = World()
    world.hooks.on_before = deadly(world, "a-1")
    world.say("A", "a-1")
    world.say("A", "a-2")
    world.say("B", "b-1")
    world.run_until_done(3600)
    world.check()
    assert world.kills == 3
    story = world.rows()["STORY#" + world.story_of("a-1"), "STORY"]
    assert story["status"] == "failed"
    assert story["run_reason"] in ("poisoned", "deadline")
    outcomes = {reply["in_reply_to"]: reply["outcome"] for reply in world.receiver.replies}
    assert outcomes == {"a-1": "failure", "a-2": "reply", "b-1": "reply"}


def test_a_run_whose_end_kills_its_worker_ends_all_the_same() -> None:
    """Its step has a result, so nothing is thought again; the bound on leases holds."""
    world = World()

    def die(site: Site) -> None:
        if site.function != "turn_worker" or site.operation != "TransactWriteItems":
            return
        if "offline model" in str(site.body):
            raise Killed("the end")

    world.hooks.on_before = _decoded(die)
    world.say("A", "a-1")
    world.run_until_done(7200)
    (reply,) = world.receiver.replies
    assert reply["outcome"] == "failure"
    assert world.kills <= 5


def _decoded(look: Callable[[Site], None]) -> Callable[[Site], None]:
    """Shows `look` a call's blobs in the clear."""
    import base64

    def opened(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: base64.b64decode(each).decode("utf-8", "replace")
                if name == "B" and isinstance(each, str)
                else opened(each)
                for name, each in value.items()
            }
        return [opened(each) for each in value] if isinstance(value, list) else value

    return lambda site: look(Site(site.function, site.service, site.operation, opened(site.body)))
