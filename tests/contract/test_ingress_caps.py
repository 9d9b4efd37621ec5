"""What a caller can make Mesh hold and do is bounded, and what is known goes on."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from mesh.app import Handler
from mesh.kernel.clock import DAY_MS, MINUTE_MS
from mesh.records.install import Caps, Engagement
from mesh.storage import keys
from mesh.storage.writes import put
from tests.fakes.door import INSTALL, OTHER, OTHER_SECRET, Answer, Door, utterance


@pytest.fixture(scope="module")
def shared() -> Door:
    return Door()


@pytest.fixture
def door(shared: Door) -> Door:
    shared.forget_everything()
    shared.clock.ms += 3_600_000 - shared.clock.ms % MINUTE_MS
    return shared


def _taken(door: Door, kind: str) -> int:
    """Places under a cap by its counters, which must agree with the rows that they count."""
    counted = sum(int(row["n"]) for row in door.rows(f"COUNT#{kind}#"))
    assert counted == len(door.rows(f"{kind.upper()}#"))
    return counted


_numbers = iter(range(10**9))


def _say(door: Door, actor: str, conversation: str, install: str | None = None) -> Answer:
    payload = utterance(
        message_id=f"m-{next(_numbers)}", actor_id=actor, conversation_key=conversation
    )
    if install is None:
        return door.post(payload)
    return door.post(payload, install=install, secret=OTHER_SECRET)


@pytest.mark.behaviour("caps:conversations")
def test_the_third_conversation_of_two_is_refused_and_the_known_go_on(door: Door) -> None:
    door.install(caps=Caps(conversations=2))
    assert _say(door, "u", "a").status == 202
    assert _say(door, "u", "b").status == 202
    rows = door.kept()
    refused = _say(door, "u", "c")
    assert (refused.status, refused.code) == (403, "conversation_cap_reached")
    assert rows == door.kept()
    (row,) = [row for row in door.everything() if row["pk"].startswith("REFUSED#")]
    assert row["reason"] == "conversation_cap_reached"
    assert [_say(door, "u", key).status for key in ("a", "b")] == [202, 202]
    assert _taken(door, "conversation") == 2


@pytest.mark.behaviour("caps:actors")
def test_the_third_actor_of_two_is_refused_and_the_known_go_on(door: Door) -> None:
    door.install(caps=Caps(actors=2))
    assert _say(door, "u1", "a").status == 202
    assert _say(door, "u2", "a").status == 202
    refused = _say(door, "u3", "a")
    assert (refused.status, refused.code) == (403, "actor_cap_reached")
    assert [_say(door, actor, "a").status for actor in ("u1", "u2")] == [202, 202]
    assert _taken(door, "actor") == 2


def test_an_actor_who_is_known_is_known_in_every_conversation(door: Door) -> None:
    door.install(caps=Caps(actors=2))
    assert _say(door, "u1", "a").status == 202
    assert _say(door, "u2", "a").status == 202
    assert [_say(door, actor, "b").status for actor in ("u1", "u2")] == [202, 202]
    assert _say(door, "u3", "b").code == "actor_cap_reached"
    assert _taken(door, "actor") == 2


def test_both_caps_full_a_known_actor_in_a_known_conversation_that_never_met_goes_on(
    door: Door,
) -> None:
    door.install(caps=Caps(actors=2, conversations=2))
    assert _say(door, "u1", "a").status == 202
    assert _say(door, "u2", "b").status == 202
    assert _say(door, "u1", "b").status == 202
    assert _say(door, "u2", "a").status == 202
    assert (_taken(door, "actor"), _taken(door, "conversation")) == (2, 2)


def test_one_installs_caps_do_not_touch_anothers(door: Door) -> None:
    door.install(caps=Caps(actors=1, conversations=1))
    door.install(OTHER, OTHER_SECRET, caps=Caps(actors=1, conversations=1))
    assert _say(door, "u", "a").status == 202
    assert _say(door, "v", "b", OTHER).status == 202
    assert _say(door, "v", "b").status == 403


def test_a_cap_that_was_raised_lets_more_in(door: Door) -> None:
    door.install(caps=Caps(conversations=1))
    assert _say(door, "u", "a").status == 202
    assert _say(door, "u", "b").status == 403
    door.install(caps=Caps(conversations=2))
    assert _say(door, "u", "b").status == 202


def test_a_cap_in_shards_is_used_up_whole_and_never_passed(door: Door) -> None:
    """2,500 places are two shards; the one that fills first hands over to the other."""
    door.install(caps=Caps(conversations=2_500, messages_per_minute=100_000))
    from mesh.storage import keys
    from mesh.storage.writes import put
    from tests.fakes.door import INSTALL

    for shard, taken in ((0, 1_250), (1, 1_248)):
        door.table.write(put(keys.cap_count(INSTALL, "conversation", shard), {"n": taken}))
    assert [_say(door, "u", f"room {n}").status for n in range(6)] == [202, 202, *[403] * 4]


@pytest.mark.parametrize("caps", [Caps(conversations=5), Caps(actors=5)], ids=["rooms", "actors"])
def test_of_32_new_ones_at_once_exactly_as_many_as_the_cap_are_admitted(
    door: Door, caps: Caps
) -> None:
    door.install(caps=caps)
    if caps.actors == 5:
        assert _say(door, "u", "known room").status == 202

    def one(number: int, handler: Handler) -> Answer:
        rooms = caps.conversations == 5
        payload = utterance(
            message_id=f"at once {number}",
            actor_id="u" if rooms else f"u{number}",
            conversation_key=f"room {number}" if rooms else f"any {number}",
        )
        return door.post(payload, handler=handler)

    answers = door.at_once(32, one)
    admitted = 5 if caps.conversations == 5 else 4
    assert Counter(answer.status for answer in answers) == {202: admitted, 403: 32 - admitted}
    assert _taken(door, "conversation" if caps.conversations == 5 else "actor") == 5


def _sweep(door: Door) -> None:
    door.clock.forward(4)  # longer than the index lags
    door.system.stack.tick()


def test_a_place_comes_back_after_thirty_idle_days_and_not_before(door: Door) -> None:
    door.install(caps=Caps(conversations=1, actors=1))
    assert _say(door, "u1", "a").status == 202
    door.clock.ms += 30 * DAY_MS - 60_000
    _sweep(door)
    assert _say(door, "u1", "b").code == "conversation_cap_reached"
    assert _say(door, "u2", "a").code == "actor_cap_reached"
    door.clock.ms += 11 * DAY_MS  # a period of ten days is the grain
    _sweep(door)
    assert (_taken(door, "conversation"), _taken(door, "actor")) == (0, 0)
    assert _say(door, "u2", "b").status == 202
    assert _say(door, "u1", "a").status == 403
    assert (_taken(door, "conversation"), _taken(door, "actor")) == (1, 1)


def test_one_who_is_active_keeps_the_place_for_ever(door: Door) -> None:
    door.install(caps=Caps(conversations=1, actors=1))
    for _ in range(5):
        assert _say(door, "u1", "a").status == 202
        door.clock.ms += 9 * DAY_MS
        _sweep(door)
        assert (_taken(door, "conversation"), _taken(door, "actor")) == (1, 1)


def test_who_comes_back_after_the_place_was_given_away_is_counted_anew(door: Door) -> None:
    door.install(caps=Caps(conversations=2, actors=2))
    assert _say(door, "u1", "a").status == 202
    door.clock.ms += 45 * DAY_MS
    _sweep(door)
    assert _taken(door, "actor") == 0
    assert _say(door, "u1", "a").status == 202
    assert (_taken(door, "conversation"), _taken(door, "actor")) == (1, 1)
    assert _say(door, "u2", "b").status == 202
    assert _say(door, "u3", "a").code == "actor_cap_reached"


# ---- rates


def test_ten_a_minute_admits_ten_and_says_when_the_next_may_come(door: Door) -> None:
    door.install(caps=Caps(messages_per_minute=10))
    door.clock.forward(17)
    answers = [_say(door, "u", "a") for _ in range(12)]
    assert [answer.status for answer in answers] == [202] * 10 + [429] * 2
    assert answers[-1].code == "rate_limited"
    assert answers[-1].headers["Retry-After"] == "43"
    door.clock.forward(43)
    assert _say(door, "u", "a").status == 202


def test_duplicates_and_refusals_count_to_no_rate(door: Door) -> None:
    door.install(caps=Caps(messages_per_minute=3))
    assert door.say("one").status == 202
    assert [door.say("one").status for _ in range(5)] == [200] * 5
    assert [door.say("one", body="other").status for _ in range(5)] == [409] * 5
    assert [door.post(b"{}").status for _ in range(5)] == [422] * 5
    assert [door.post(b"{}", secret="whsec_no").status for _ in range(5)] == [401] * 5
    assert [door.say(f"m-{n}").status for n in range(3)] == [202, 202, 429]


def test_a_duplicate_is_answered_although_the_rate_is_used_up(door: Door) -> None:
    door.install(caps=Caps(messages_per_minute=1))
    first = door.say("one")
    assert door.say("two").status == 429
    assert door.say("one").json() == first.json() | {"status": "duplicate"}


def test_a_rate_in_shards_is_off_by_at_most_15_percent(door: Door) -> None:
    """Four shards of 150, filled as unevenly as chance fills them, are used up to the end."""
    door.install(caps=Caps(messages_per_minute=600))
    for shard, taken in enumerate((139, 104, 121, 116)):
        door.table.write(put(keys.rate(INSTALL, door.clock.now_ms(), shard), {"n": taken}))
    statuses = []
    for n in range(140):
        door.clock.ms += 1
        statuses.append(_say(door, "u", f"room {n % 7}").status)
    assert set(statuses) == {202, 429}
    assert 510 <= 480 + statuses.count(202) <= 600
    assert 480 + statuses.index(429) >= 510


def test_no_counter_is_written_by_every_request_of_an_install(door: Door) -> None:
    door.install(caps=Caps(messages_per_minute=600))
    for n in range(40):
        assert _say(door, "u", f"room {n % 5}").status == 202
    counters = [row["n"] for row in door.everything() if row["pk"].startswith("RATE#")]
    assert sum(counters) == 40
    assert len(counters) == 4


# ---- who is refused by the gate


def test_denied_actors_count_to_no_cap_and_leave_no_body(door: Door) -> None:
    door.install(
        caps=Caps(actors=1, conversations=1), engagement=Engagement(deny_actors=("bad", "worse"))
    )
    assert _say(door, "u", "a").status == 202
    word = "what a denied actor said"
    for actor, room in (("bad", "a"), ("worse", "b"), ("bad", "c")):
        payload = utterance(
            message_id=f"{actor} {room}", actor_id=actor, conversation_key=room, body=word
        )
        answer = door.post(payload)
        assert answer.status == 202
        assert answer.json()["engagement"] == {"verdict": "refuse", "reason": "actor_denied"}
        assert answer.json()["run_id"] is None
        assert door.post(payload).json() == answer.json() | {"status": "duplicate"}
    assert (_taken(door, "conversation"), _taken(door, "actor")) == (1, 1)
    assert len(door.rows("MSG#")) == 1
    assert word not in json.dumps(door.everything(), default=str)
    verdicts = [(row["verdict"], row["reason"]) for row in door.rows("STORY")]
    assert verdicts.count(("refuse", "actor_denied")) == 3


# ---- what waits


def test_one_over_the_waiting_cap_is_observed_as_busy(door: Door) -> None:
    door.install(caps=Caps(waiting=3))
    door.doorbells()
    answers = [_say(door, "u", "a") for _ in range(5)]
    assert [answer.status for answer in answers] == [202] * 5
    gates = [answer.json()["engagement"] for answer in answers]
    assert (
        gates
        == [{"verdict": "engage", "reason": "direct_message"}] * 3
        + [{"verdict": "observe", "reason": "busy"}] * 2
    )
    assert [answer.json()["run_id"] is None for answer in answers] == [False] * 3 + [True] * 2
    assert len(door.rows("PEND#")) == 3
    assert len(door.rows("MSG#")) == 5
    assert door.doorbells() == 3
    assert _say(door, "u", "b").json()["engagement"]["verdict"] == "engage"
    (conversation,) = [r for r in door.rows("ORDER") if r["conversation_key"] == "a"]
    assert conversation["pending"] == 3


def test_once_work_is_done_the_next_is_engaged_again(door: Door) -> None:
    door.install(caps=Caps(waiting=1))
    door.doorbells()
    assert _say(door, "u", "a").json()["engagement"]["verdict"] == "engage"
    assert _say(door, "u", "a").json()["engagement"]["reason"] == "busy"
    door.system.settle()
    assert _say(door, "u", "a").json()["engagement"]["verdict"] == "engage"
