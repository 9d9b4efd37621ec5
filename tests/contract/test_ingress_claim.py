"""One message is taken once, however often and however many at once it comes."""

from __future__ import annotations

from collections import Counter

import pytest

from infra.local.aws import Faults
from infra.local.aws.faults import Kind
from mesh.kernel.clock import DAY_MS
from mesh.kernel.limits import CLAIM_KEPT_MS, REPLAY_WINDOW_MS
from tests.fakes.door import OTHER, OTHER_SECRET, Door, told


@pytest.fixture(scope="module")
def shared() -> Door:
    return Door()


@pytest.fixture
def door(shared: Door) -> Door:
    shared.forget_everything()
    shared.install()
    shared.install(OTHER, OTHER_SECRET)
    shared.doorbells()
    return shared


@pytest.mark.behaviour("claim:idempotent", "ingress:payload:message-id")
def test_a_repeated_message_gets_the_first_answer_and_starts_nothing(door: Door) -> None:
    first = door.say()
    assert first.status == 202
    assert door.doorbells() == 1
    rows = door.everything()
    again = door.say()
    assert again.status == 200
    assert again.json() == first.json() | {"status": "duplicate"}
    assert again.headers["X-Request-Id"] != first.headers["X-Request-Id"]
    assert door.everything() == rows
    assert door.doorbells() == 0


def test_a_duplicate_in_a_conversation_that_moved_on_is_still_one(door: Door) -> None:
    first = door.say("m-1")
    for n in range(2, 30):
        assert door.say(f"m-{n}").status == 202
    assert door.say("m-1").json() == first.json() | {"status": "duplicate"}


def test_a_duplicate_keeps_its_first_verdict_whatever_the_settings_say_now(door: Door) -> None:
    observed = door.say("m-1", topology="group")
    assert observed.json()["engagement"]["verdict"] == "observe"
    again = door.say("m-1", topology="group")
    assert again.json() == observed.json() | {"status": "duplicate"}
    assert door.doorbells() == 0


def test_the_same_id_with_other_words_is_a_conflict_and_changes_nothing(door: Door) -> None:
    first = door.say()
    rows = door.kept()
    answer = door.say(body="something else")
    assert (answer.status, answer.code) == (409, "idempotency_conflict")
    assert rows == door.kept()
    assert door.say().json() == first.json() | {"status": "duplicate"}


def test_a_conflict_is_kept_as_a_refusal(door: Door) -> None:
    door.say()
    door.say(body="something else")
    (row,) = [row for row in door.everything() if row["pk"].startswith("REFUSED#")]
    assert (row["reason"], row["n"]) == ("idempotency_conflict", 1)


@pytest.mark.behaviour("claim:conversation-scope", "ingress:many-installs")
def test_the_same_id_in_another_conversation_or_install_is_another_message(door: Door) -> None:
    answers = [
        door.say(),
        door.say(conversation_key="room-10"),
        door.say(install=OTHER, secret=OTHER_SECRET),
    ]
    assert [answer.status for answer in answers] == [202, 202, 202]
    assert len({answer.json()["id"] for answer in answers}) == 3
    assert len(door.rows("CLAIM")) == len(door.rows("PEND#")) == 3


@pytest.mark.behaviour("claim:outlives-window")
def test_a_claim_counts_for_seven_days_by_value_and_then_becomes_an_alias(door: Door) -> None:
    assert CLAIM_KEPT_MS > REPLAY_WINDOW_MS
    first = door.say()
    door.clock.ms += CLAIM_KEPT_MS
    assert door.say().status == 200
    assert door.say(body="other").status == 409
    door.clock.ms += 1
    later = door.say(body="other")
    assert later.status == 202
    assert later.json()["id"] != first.json()["id"]
    (claim,) = door.rows("CLAIM")
    assert claim["story"] == later.json()["id"][4:]
    assert door.say(body="other").json() == later.json() | {"status": "duplicate"}
    assert len(door.rows("PEND#")) == 2


def test_an_alias_is_kept_as_long_as_the_message(door: Door) -> None:
    door.say()
    (claim,), (message,) = door.rows("CLAIM"), door.rows("MSG#")
    assert claim["ttl"] >= message["ttl"]
    assert claim["ttl"] * 1000 > door.clock.now_ms() + 89 * DAY_MS


@pytest.mark.behaviour("claim:atomic", "ingress:stateless")
@pytest.mark.parametrize("first", ["new conversation", "known conversation"])
def test_of_32_at_once_one_is_accepted_and_the_others_are_its_duplicates(
    door: Door, first: str
) -> None:
    if first == "known conversation":
        door.say("m-0")
    before = len(door.rows("PEND#"))
    answers = door.at_once(32, lambda _, handler: door.say("m-1", handler=handler))
    assert Counter(answer.status for answer in answers) == {202: 1, 200: 31}
    (accepted,) = [answer.json() for answer in answers if answer.status == 202]
    for answer in answers:
        assert answer.json() | {"status": "accepted"} == accepted
    assert len(door.rows("PEND#")) == before + 1


@pytest.mark.parametrize("seed", range(4))
def test_under_contention_32_at_once_still_give_one_run(seed: int) -> None:
    faults = Faults(seed, rates={Kind.CONFLICT: 0.4}, in_a_row_max=3)
    door = Door(seed=seed, faults=faults)
    door.install()
    answers = door.at_once(32, lambda _, handler: door.say("m-1", handler=handler))
    with door.aws.without_faults():
        counted = Counter(answer.status for answer in answers)
        assert counted[202] == 1
        assert counted[202] + counted[200] + counted[503] == 32
        assert len(door.rows("PEND#")) == len(door.rows("MSG#")) == 1
        assert door.say("m-1").status == 200


def test_different_messages_at_once_are_all_taken_in_and_counted(door: Door) -> None:
    count = 10  # fewer than a transaction has tries: each lost race is another one's message
    answers = door.at_once(count, lambda n, handler: door.say(f"m-{n}", handler=handler))
    assert Counter(answer.status for answer in answers) == {202: count}
    orders = [row["order"] for row in door.rows("PEND#")]
    assert len(set(orders)) == count
    (conversation,) = door.rows("ORDER")
    assert conversation["pending"] == count
    assert conversation["last_order"] == max(orders)


# ---- what is not known


class Losing(Faults):
    """Loses or refuses exactly the calls that a test names, the n-th of an operation from 1."""

    def __init__(self, meets: dict[tuple[str, int], Kind]) -> None:
        super().__init__(1, rates={})
        self._meets = meets
        self._seen: Counter[str] = Counter()
        self.armed = False

    def draw(self, service: str, operation: str) -> Kind | None:
        if not self.armed or self._off:
            return None
        self._seen[operation] += 1
        return self._meets.get((operation, self._seen[operation]))


def _losing(*meets: tuple[str, int, Kind]) -> Door:
    """A door whose known conversation has one message, and which meets those faults from now on."""
    faults = Losing({(operation, n): kind for operation, n, kind in meets})
    door = Door(faults=faults)
    door.install()
    assert door.say("m-0").status == 202
    door.clock.forward(1)
    faults.armed = True
    return door


WRITE, READ, RING = "TransactWriteItems", "GetItem", "SendMessage"


def test_one_lost_answer_is_the_sdks_own_to_mend() -> None:
    door = _losing((WRITE, 1, Kind.LOST))
    with door.calls() as calls:
        answer = door.say()
    assert answer.status == 202
    assert told(calls) == ["Query", WRITE, WRITE, RING]
    assert len(door.rows("PEND#")) == 2


def test_an_applied_transaction_whose_answer_is_lost_twice_is_found_by_its_claim() -> None:
    door = _losing((WRITE, 1, Kind.LOST), (WRITE, 2, Kind.LOST))
    with door.calls() as calls:
        answer = door.say()
    assert answer.status == 202
    assert answer.json()["status"] == "accepted"
    assert answer.json()["id"] == f"msg_{answer.headers['X-Request-Id'][4:]}"
    assert told(calls) == ["Query", WRITE, WRITE, READ, RING]
    assert len(door.rows("PEND#")) == 2
    assert door.say().status == 200


@pytest.mark.parametrize("second", [Kind.THROTTLE, Kind.UNREACHABLE, Kind.CONFLICT])
def test_an_applied_transaction_whose_second_try_fails_otherwise_is_found_too(
    second: Kind,
) -> None:
    """The SDK's last word says that nothing was done; its first try was."""
    door = _losing((WRITE, 1, Kind.LOST), (WRITE, 2, second))
    answer = door.say()
    assert answer.status == 202
    assert answer.json()["id"] == f"msg_{answer.headers['X-Request-Id'][4:]}"
    assert len(door.rows("PEND#")) == 2


@pytest.mark.parametrize("kind", [Kind.THROTTLE, Kind.UNREACHABLE])
def test_a_transaction_that_never_arrived_is_503_and_nothing_is_stored(kind: Kind) -> None:
    door = _losing((WRITE, 1, kind), (WRITE, 2, kind))
    answer = door.say()
    assert (answer.status, answer.code) == (503, "unavailable")
    assert "outcome" not in answer.json()["error"]
    assert len(door.rows("PEND#")) == 1
    assert door.say().status == 202


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("unreadable", [Kind.LOST, Kind.THROTTLE, Kind.UNREACHABLE])
def test_an_unreadable_claim_is_503_that_says_it_does_not_know(
    stored: bool, unreadable: Kind
) -> None:
    write = Kind.LOST if stored else Kind.UNREACHABLE
    door = _losing(
        (WRITE, 1, write), (WRITE, 2, write), (READ, 1, unreadable), (READ, 2, unreadable)
    )
    answer = door.say()
    assert (answer.status, answer.code) == (503, "unavailable")
    assert answer.json()["error"]["outcome"] == "unknown"
    assert len(door.rows("PEND#")) == 1 + stored
    again = door.say()
    assert again.status == (200 if stored else 202)
    assert len(door.rows("PEND#")) == 2


def test_a_claim_in_contention_that_cannot_be_read_is_not_called_absent() -> None:
    door = _losing(
        (WRITE, 1, Kind.LOST),
        (WRITE, 2, Kind.CONFLICT),
        *((READ, n, Kind.LOST) for n in range(1, 5)),
    )
    answer = door.say()
    if answer.status == 503:
        assert answer.json()["error"]["outcome"] == "unknown"
    else:
        assert answer.status == 202
    assert len(door.rows("PEND#")) == 2


@pytest.mark.parametrize("kind", [Kind.LOST, Kind.THROTTLE, Kind.UNREACHABLE])
def test_a_doorbell_that_fails_changes_no_answer(kind: Kind) -> None:
    door = _losing((RING, 1, kind), (RING, 2, kind))
    assert door.say().status == 202
    (event,) = door.log.named("ingress.doorbell_failed")
    assert event["conversation_id"] == door.rows("ORDER")[0]["conversation_id"]
    assert door.rows("ORDER")[0]["due_at"] > door.clock.now_ms()  # the sweep rings again


def test_a_look_up_that_fails_is_503_for_everybody_alike() -> None:
    answers = []
    for secret in ("hit", "wrong"):
        door = _losing(*(("Query", n, Kind.THROTTLE) for n in (1, 2)))
        answers.append(door.say() if secret == "hit" else door.say(secret="wrong"))
    assert [answer.status for answer in answers] == [503, 503]
    assert answers[0].body == answers[1].body


def test_a_refusal_that_cannot_be_kept_changes_no_answer() -> None:
    door = _losing(*(("UpdateItem", n, Kind.THROTTLE) for n in range(1, 20)))
    assert door.say("m-0", body="other").status == 409
    assert len(door.log.named("ingress.refusal_not_kept")) == 1


def test_contention_without_end_is_503_within_the_deadline() -> None:
    door = _losing(*((WRITE, n, Kind.CONFLICT) for n in range(1, 200)))
    began = door.clock.now_ms()
    answer = door.say()
    assert (answer.status, answer.code) == (503, "unavailable")
    assert door.clock.now_ms() - began < 3_000
    assert len(door.rows("PEND#")) == 1
