"""An unproven caller learns nothing: one answer, the same calls, and nothing written."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest

from mesh.kernel.clock import DAY_MS
from mesh.records.install import AgentStatus, InstallState
from mesh.storage import keys
from mesh.storage.writes import put
from tests.fakes.door import (
    INSTALL,
    OTHER,
    OTHER_SECRET,
    SECRET,
    Answer,
    Door,
    signature,
    told,
    utterance,
)

UNKNOWN = "ins_01JDXW5Y9ZK3V7Q2M8N4P6R0ZZ"
WRONG_SECRET = "whsec_" + "A" * 43 + "="
BODY = json.dumps(utterance()).encode()


def _now(door: Door, ahead_s: int = 0) -> str:
    return str(door.clock.now_ms() // 1000 + ahead_s)


def _reflected(door: Door) -> Answer:
    at = _now(door)
    base = f"v1:out:{INSTALL}:{at}:".encode() + BODY
    value = "v1=" + hmac.new(SECRET.encode(), base, hashlib.sha256).hexdigest()
    return door.post(BODY, headers={"X-Mesh-Signature": value})


def _without(name: str) -> Callable[[Door], Answer]:
    return lambda door: door.post(BODY, headers={name: None})


def _with(name: str, value: str) -> Callable[[Door], Answer]:
    return lambda door: door.post(BODY, headers={name: value})


UNPROVEN: dict[str, Callable[[Door], Answer]] = {
    "unknown install": lambda door: door.post(BODY, install=UNKNOWN),
    "bad signature": lambda door: door.post(BODY, secret=WRONG_SECRET),
    "another install's secret": lambda door: door.post(BODY, secret=OTHER_SECRET),
    "another install's message": lambda door: door.post(
        BODY, headers={"X-Mesh-Signature": signature(SECRET, OTHER, _now(door), BODY)}
    ),
    "outbound signature reflected": _reflected,
    "previous secret after the overlap": lambda door: door.post(BODY, secret="previous, ended"),
    "install of another kind": lambda door: door.post(BODY, install=SLACK, secret="of slack"),
    "wrong and stale": lambda door: door.post(
        BODY, secret=WRONG_SECRET, timestamp=_now(door, -9000)
    ),
    "unknown and not even JSON": lambda door: door.post(b"{", install=UNKNOWN),
    "unsigned, with a query": lambda door: door.post(BODY, secret=WRONG_SECRET, query={"a": "b"}),
    "unsigned, of another type": lambda door: door.post(
        BODY, secret=WRONG_SECRET, headers={"Content-Type": "text/plain"}
    ),
    "no install": _without("X-Mesh-Install"),
    "no timestamp": _without("X-Mesh-Timestamp"),
    "no signature": _without("X-Mesh-Signature"),
    "malformed install": _with("X-Mesh-Install", "ins_1"),
    "empty install": _with("X-Mesh-Install", ""),
    "malformed timestamp": _with("X-Mesh-Timestamp", "now"),
    "malformed signature": _with("X-Mesh-Signature", "v1=xyz"),
    "six candidates": _with("X-Mesh-Signature", ",".join(["v1=" + "0" * 64] * 6)),
}
PROVEN_BUT_STALE: dict[str, Callable[[Door], Answer]] = {
    "too old": lambda door: door.post(BODY, timestamp=_now(door, -301)),
    "too far ahead": lambda door: door.post(BODY, timestamp=_now(door, 301)),
}
SLACK = "ins_01JDXW5Y9ZK3V7Q2M8N4P6R0SX"


@pytest.fixture(scope="module")
def shared() -> Door:
    return Door()


@pytest.fixture
def door(shared: Door) -> Door:
    shared.forget_everything()
    shared.log.events.clear()
    now = shared.clock.now_ms()
    shared.install(previous="previous, ended", previous_until=now - 1)
    shared.install(OTHER, OTHER_SECRET)
    shared.install(SLACK, "of slack", kind="slack")
    return shared


def _but_request_id(headers: Any) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name != "X-Request-Id"]


@pytest.mark.behaviour("signing:opaque-401:unknown-install", "signing:opaque-401:bad-signature")
def test_every_cause_gets_the_same_bytes(door: Door) -> None:
    causes = UNPROVEN | PROVEN_BUT_STALE
    answers = {name: cause(door) for name, cause in causes.items()}
    first = answers["unknown install"]
    assert first.status == 401
    assert first.body == '{"error":{"code":"unauthorized","message":"unauthorized"}}'
    for name, answer in answers.items():
        assert answer.status == first.status, name
        assert answer.body == first.body, name
        assert _but_request_id(answer.headers) == _but_request_id(first.headers), name
    request_ids = {answer.headers["X-Request-Id"] for answer in answers.values()}
    assert len(request_ids) == len(answers)


@pytest.mark.parametrize("name", UNPROVEN)
def test_an_unproven_caller_makes_nothing_be_written(door: Door, name: str) -> None:
    before = door.everything()
    assert UNPROVEN[name](door).status == 401
    assert door.everything() == before
    assert door.doorbells() == 0


@pytest.mark.parametrize("name", UNPROVEN)
def test_the_cause_is_in_the_log_by_its_reason_alone(door: Door, name: str) -> None:
    UNPROVEN[name](door)
    ((event, fields),) = door.log.events
    assert event == "ingress.unproven"
    assert fields.keys() == {"request_id", "reason"}
    assert fields["reason"] in {"malformed_headers", "unknown_install", "bad_signature"}


@pytest.mark.parametrize("name", PROVEN_BUT_STALE)
def test_a_stale_but_proven_request_is_kept_as_a_refusal(door: Door, name: str) -> None:
    answer = PROVEN_BUT_STALE[name](door)
    assert answer.status == 401
    (row,) = door.rows("0")
    assert row["pk"].startswith(f"REFUSED#{INSTALL}#")
    assert row["reason"] == "timestamp_outside_window"
    assert row["n"] == 1
    assert row["last_skew_s"] == (-301 if name == "too old" else 301)
    assert row["last_request_id"] == answer.headers["X-Request-Id"]
    PROVEN_BUT_STALE[name](door)
    (row,) = door.rows("0")
    assert row["n"] == 2
    assert door.rows("CLAIM") == door.rows("MSG#") == []


HIT_MISS_MISMATCH = ("hit", "unknown install", "bad signature", "another install's secret")


def _calls_of(door: Door, name: str, handler: Any) -> list[tuple[str, str, float]]:
    ask: dict[str, Callable[[], Answer]] = {
        # stale, so that what a hit does after verification is two writes of its refusal alone
        "hit": lambda: door.post(BODY, timestamp=_now(door, -301), handler=handler),
        "unknown install": lambda: door.post(BODY, install=UNKNOWN, handler=handler),
        "bad signature": lambda: door.post(BODY, secret=WRONG_SECRET, handler=handler),
        "another install's secret": lambda: door.post(BODY, secret=OTHER_SECRET, handler=handler),
    }
    with door.calls() as calls:
        assert ask[name]().status == 401
    kept = ("UpdateItem", "PutItem")  # the refusal that is counted, and the way to it from its id
    return [(c.service, c.operation, c.table_write) for c in calls if c.operation not in kept]


@pytest.mark.behaviour("signing:look-up-first")
def test_hit_miss_and_mismatch_make_the_same_calls_cold_and_warm(door: Door) -> None:
    cold, warm = [], []
    for name in HIT_MISS_MISMATCH:
        handler = door.cold()
        cold.append(_calls_of(door, name, handler))
        warm.append(_calls_of(door, name, handler))
    assert [c[:2] for c in cold[0]] == [
        ("dynamodb", "Query"),
        ("kms", "Decrypt"),
        ("dynamodb", "Query"),
    ]
    assert [c[:2] for c in warm[0]] == [("dynamodb", "Query")]
    assert cold == [cold[0]] * len(cold)
    assert warm == [warm[0]] * len(warm)


def test_an_overlap_is_not_visible_in_the_calls_either(door: Door) -> None:
    handler = door.cold()
    _calls_of(door, "unknown install", handler)
    without = _calls_of(door, "bad signature", handler)
    door.install(previous=OTHER_SECRET)
    assert _calls_of(door, "bad signature", handler) == without


def test_the_instance_key_is_opened_once_in_five_minutes(door: Door) -> None:
    handler = door.cold()
    assert "Decrypt" in [op for _, op, _ in _calls_of(door, "bad signature", handler)]
    door.clock.forward(299)
    assert "Decrypt" not in [op for _, op, _ in _calls_of(door, "hit", handler)]
    door.clock.forward(1)
    assert "Decrypt" in [op for _, op, _ in _calls_of(door, "unknown install", handler)]


def test_where_no_install_was_ever_made_the_answer_is_the_same(door: Door) -> None:
    refused = UNPROVEN["unknown install"](door)
    fresh = Door(seed=2)
    fresh.aws.create_table(fresh.system.stack.settings.table)
    answer = fresh.post(BODY, handler=fresh.cold())
    assert (answer.status, answer.body) == (refused.status, refused.body)
    assert _but_request_id(answer.headers) == _but_request_id(refused.headers)
    assert fresh.everything() == []


@pytest.mark.behaviour("ingress:one-install-one-agent")
def test_a_secret_row_moved_to_another_install_opens_nothing(door: Door) -> None:
    """The blob is bound to its owner: whoever can copy rows gains nothing by it."""
    stolen = door.table.get(keys.secret(OTHER, 2))
    assert stolen is not None
    row = {name: value for name, value in stolen.items() if name not in ("pk", "sk")}
    door.table.write(put(keys.secret(INSTALL, 2), row))
    answer = door.post(BODY, secret=OTHER_SECRET)
    assert (answer.status, answer.code) == (500, "secret_unopenable")


def test_a_revoked_secret_stops_with_the_next_look_up(door: Door) -> None:
    door.install(previous=OTHER_SECRET)
    assert door.post(BODY, secret=OTHER_SECRET).status == 202
    door.install(previous=OTHER_SECRET, previous_until=door.clock.now_ms())
    assert door.post(BODY, secret=OTHER_SECRET).status == 401
    assert door.post(BODY).status == 200


def test_the_use_of_a_previous_secret_is_noted_once_in_ten_minutes(door: Door) -> None:
    door.install(previous=OTHER_SECRET)

    def noted() -> int | None:
        (row,) = [r for r in door.rows("SECRET#00000001") if r["pk"] == f"INS#{INSTALL}"]
        at: int | None = row.get("last_used_at")
        return at

    assert door.say("m-1").status == 202
    assert noted() is None
    for step, message_id in enumerate(("m-2", "m-3")):
        with door.calls() as calls:
            assert door.say(message_id, secret=OTHER_SECRET).status == 202
        assert ("UpdateItem" in told(calls)) is (step == 0)
    first = noted()
    assert first == door.clock.now_ms()
    door.clock.forward(600)
    assert door.say("m-4", secret=OTHER_SECRET).status == 202
    assert noted() == door.clock.now_ms()


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (InstallState.DISABLED, 403),
        (InstallState.ENABLING, 403),
        (InstallState.ERROR, 403),
        (InstallState.DELETED, 403),
        (InstallState.ENABLED, 202),
    ],
)
def test_a_state_is_told_to_proven_callers_alone(
    door: Door, state: InstallState, status: int
) -> None:
    door.install(state=state)
    answer = door.post(BODY)
    assert answer.status == status
    if status == 403:
        assert answer.code == "connector_disabled"
        (row,) = door.rows("0")
        assert row["reason"] == "connector_disabled"
        assert door.rows("CLAIM") == []
    assert door.post(BODY, secret=WRONG_SECRET).status == 401


def test_a_paused_agent_asks_for_patience_and_the_caller_is_not_lost(door: Door) -> None:
    door.install(agent_status=AgentStatus.PAUSED)
    answer = door.post(BODY)
    assert (answer.status, answer.code) == (503, "agent_paused")
    assert answer.headers["Retry-After"] == "300"
    door.install()
    assert door.post(BODY).status == 202


def test_a_refusal_row_outlives_the_day_by_its_retention_and_holds_no_body(door: Door) -> None:
    secret_word = "a word of the body"
    door.install(state=InstallState.DISABLED)
    door.say("m", body=secret_word)
    (row,) = door.rows("0")
    assert row["ttl"] * 1000 >= door.clock.now_ms() + 29 * DAY_MS
    assert secret_word not in json.dumps(row, default=str)
