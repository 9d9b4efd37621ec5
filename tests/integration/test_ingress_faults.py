"""Under AWS's own faults every answer is true: what was accepted is stored, once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from infra.local.aws import Faults
from infra.local.aws.faults import Kind
from mesh.records.install import Caps, Engagement
from tests.fakes.door import Answer, Door, utterance

RATES = {Kind.CONFLICT: 0.25, Kind.THROTTLE: 0.1, Kind.LOST: 0.12, Kind.UNREACHABLE: 0.06}
MESSAGES = 80


@dataclass
class Told:
    """What the caller knows of one message: the last answer to it, and whether it was accepted."""

    answer: Answer
    accepted: str | None = None
    unknown: bool = False


def _run(door: Door, seed: int) -> dict[tuple[str, str], Told]:
    """A caller who says many things in a few rooms, and at times the same again."""
    dice = random.Random(seed)
    told: dict[tuple[str, str], Told] = {}
    for number in range(MESSAGES):
        room, message_id = f"room {dice.randrange(5)}", f"m-{number}"
        actor = dice.choice(("u-1", "u-2", "u-3", "denied"))
        for _ in range(1 + (dice.random() < 0.3)):
            payload = utterance(
                message_id=message_id, conversation_key=room, actor_id=actor, body=message_id
            )
            _note(told, (room, message_id), door.post(payload))
            door.clock.ms += dice.randrange(2_000)
    return told


def _note(told: dict[tuple[str, str], Told], key: tuple[str, str], answer: Answer) -> None:
    seen = told.setdefault(key, Told(answer))
    assert answer.status in (200, 202, 503), answer.body
    if answer.status == 503:
        seen.unknown |= answer.json()["error"].get("outcome") == "unknown"
    else:
        if seen.accepted is not None:
            assert answer.status == 200, "accepted twice"
            assert answer.json()["id"] == seen.accepted
        elif not seen.unknown:
            assert answer.status == 202, "a duplicate of what was said not to be stored"
        seen.accepted = answer.json()["id"]
    seen.answer = answer


@pytest.mark.parametrize("seed", range(3))
def test_every_202_is_stored_once_and_every_503_as_it_says(seed: int) -> None:
    faults = Faults(seed, rates=RATES)
    door = Door(seed=seed, faults=faults)
    door.install(
        caps=Caps(waiting=10_000, messages_per_minute=100_000),
        engagement=Engagement(deny_actors=("denied",)),
    )
    told = _run(door, seed)
    assert set(faults.counts) >= set(RATES)
    statuses = Counter(each.answer.status for each in told.values())
    assert statuses[503] < MESSAGES / 4

    stories = {(row["conversation_key"], row["message_id"]): row for row in door.rows("STORY")}
    assert len(stories) == len(door.rows("STORY")), "stored twice"
    for key, each in told.items():
        if each.accepted is not None:
            assert f"msg_{stories[key]['story']}" == each.accepted
        elif not each.unknown:
            assert key not in stories, "stored, and the caller was told that it is not"
    _assert_whole(door, list(stories.values()))


def _assert_whole(door: Door, stories: list[dict[str, object]]) -> None:
    """Claim, message, verdict, run and counters exist together or not at all."""
    by_id = {story["story"]: story for story in stories}
    welcome = {each for each, story in by_id.items() if story["verdict"] != "refuse"}
    engaged = {each for each, story in by_id.items() if story["verdict"] == "engage"}
    assert {row["story"] for row in door.rows("CLAIM")} == set(by_id)
    assert {row["story"] for row in door.rows("MSG#")} == welcome
    assert len(door.rows("MSG#")) == len(welcome)
    assert {row["story"] for row in door.rows("PEND#")} == engaged
    waiting = sum(int(row["pending"]) for row in door.rows("ORDER"))
    assert waiting == len(engaged) == len(door.rows("PEND#"))
    counted = sum(int(r["n"]) for r in door.everything() if r["pk"].startswith("RATE#"))
    assert counted == len(by_id)
    for kind in ("actor", "conversation"):
        places = sum(int(row["n"]) for row in door.rows(f"COUNT#{kind}#"))
        assert places == len(door.rows(f"{kind.upper()}#"))


def test_a_caller_who_tries_again_gets_everything_in_exactly_once() -> None:
    door = Door(seed=9, faults=Faults(9, rates=RATES))
    door.install(caps=Caps(waiting=10_000))
    for number in range(60):
        payload = utterance(message_id=f"m-{number}", body=f"line {number}")
        for _ in range(30):
            if door.post(payload).status in (200, 202):
                break
            door.clock.forward(5)  # a fresh timestamp and signature, the same message
        else:
            pytest.fail("never taken in")
        door.clock.ms += 50
    assert door.orders() == [f"line {n}" for n in range(60)]
    assert len(door.rows("PEND#")) == 60
