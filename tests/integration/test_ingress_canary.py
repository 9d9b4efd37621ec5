"""No secret, signature or word of a message leaves the table by log, queue, answer or error."""

from __future__ import annotations

import io
import json
import traceback
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from infra.local.aws import Faults
from infra.local.aws.faults import Kind
from mesh.kernel.log import JsonLog
from mesh.records.install import AgentStatus, Caps, InstallState
from mesh.storage import keys
from mesh.storage.table import Cancelled, ConditionFailed
from mesh.storage.writes import put, update
from tests.fakes.door import INSTALL, OTHER, SECRET, Answer, Door, Shape, signature, utterance

BODY_WORD = "word-in-the-body"
NAME_WORD = "word-in-the-name"
PREVIOUS = "whsec_canaryprevious" + "A" * 24 + "="


class Watch:
    """Everything that leaves the function, looked through for what must not."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.signatures: set[str] = set()
        self.answers: list[Answer] = []

    def post(self, payload: dict[str, Any] | bytes, **more: Any) -> Answer:
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        at = str(self.door.clock.now_ms() // 1000)
        secret, install = more.get("secret", SECRET), more.get("install", INSTALL)
        self.signatures.add(signature(secret, install, at, body)[3:])
        answer = self.door.post(body, **more)
        self.answers.append(answer)
        return answer

    def seen(self) -> Iterator[str]:
        yield json.dumps(self.door.log.events)
        for answer in self.answers:
            yield json.dumps(dict(answer.headers)) + answer.body
        with self.door.aws.without_faults():
            for queue in self.door.system.stack.settings.queue_urls.values():
                yield json.dumps(_drained(self.door, queue))

    def assert_silent(self) -> None:
        canaries = {BODY_WORD, NAME_WORD, SECRET, SECRET[6:], PREVIOUS, PREVIOUS[6:]}
        for text in self.seen():
            for canary in canaries | self.signatures:
                assert canary not in text


def _drained(door: Door, url: str) -> list[dict[str, Any]]:
    sqs = door.cloud.sqs
    found: list[dict[str, Any]] = []
    while more := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        found += more
    return found


def _speaking(**more: Any) -> dict[str, Any]:
    return utterance(**{"body": f"hello {BODY_WORD}", "display_name": f"Ada {NAME_WORD}"} | more)


def _everything_that_happens(watch: Watch) -> None:
    """Every kind of answer that the function has, each from a request full of canaries."""
    door, post = watch.door, watch.post
    door.install(previous=PREVIOUS, caps=Caps(waiting=2, conversations=2, actors=2))
    post(_speaking())
    post(_speaking())
    post(_speaking(topology="group"))
    post(_speaking(message_id="m-2"), secret=PREVIOUS)
    post(_speaking(message_id="m-3"))
    post(_speaking(message_id="m-4", topology="group", parent_id="out_" + "0" * 26))
    post(_speaking(message_id="m-5", conversation_key="b"))
    post(_speaking(message_id="m-6", conversation_key="c"))
    post(_speaking(message_id="m-7", actor_id="v"))
    post(_speaking(message_id="m-8", actor_id="w"))
    post(_speaking(), secret="whsec_wrong")
    post(_speaking(), install=OTHER)
    post(_speaking(), timestamp=str(door.clock.now_ms() // 1000 - 1000))
    post(_speaking(), headers={"Content-Type": f"text/{BODY_WORD}"})
    post(_speaking(), query={"q": BODY_WORD})
    post(f'{{"body":"{BODY_WORD}"'.encode())
    post(_speaking(topology=BODY_WORD, sent_at=BODY_WORD))
    post(json.dumps([BODY_WORD]).encode())
    post(b'{"body":"\xff' + BODY_WORD.encode(), shape=Shape.HTTP_BASE64)
    post(_speaking(message_id="m-9", display_name=NAME_WORD * 100))
    post(BODY_WORD.encode() * 20_000)
    door.install(state=InstallState.DISABLED)
    post(_speaking())
    door.install(agent_status=AgentStatus.PAUSED)
    post(_speaking())
    door.install(caps=Caps(messages_per_minute=1))
    post(_speaking(message_id="m-10"))
    post(_speaking(message_id="m-11"))


@pytest.mark.behaviour("secrets:never-returned")
def test_no_answer_log_or_queue_holds_a_secret_a_signature_or_a_word() -> None:
    watch = Watch(Door())
    _everything_that_happens(watch)
    statuses = {answer.status for answer in watch.answers}
    assert statuses == {200, 202, 400, 401, 403, 409, 413, 415, 422, 429, 503}
    watch.assert_silent()


@pytest.mark.parametrize("seed", range(3))
def test_faults_make_it_no_more_talkative(seed: int) -> None:
    rates = {Kind.CONFLICT: 0.3, Kind.THROTTLE: 0.2, Kind.LOST: 0.2, Kind.UNREACHABLE: 0.1}
    watch = Watch(Door(seed=seed, faults=Faults(seed, rates=rates)))
    _everything_that_happens(watch)
    assert 503 in {answer.status for answer in watch.answers}
    watch.assert_silent()


def test_a_function_that_crashes_tells_no_word_either() -> None:
    """Lambda logs the traceback of what escapes: an error of AWS's that Mesh does not expect."""
    watch = Watch(Door())
    door = watch.door
    door.install()
    watch.post(_speaking())
    conversation = keys.conversation_id(INSTALL, "room-9")
    row = door.table.get(keys.order(conversation)) or {}
    broken = {**row, "pending": BODY_WORD, "actors": {BODY_WORD}}
    door.table.write(put(keys.order(conversation), broken))
    with pytest.raises(Exception) as caught:
        watch.post(_speaking(message_id="m-2"))
    _assert_silent_error(caught.value)


@pytest.mark.parametrize("single", [True, False], ids=["one write", "a transaction"])
def test_an_error_that_carries_old_items_shows_none_of_them(single: bool) -> None:
    door = Door()
    door.install()
    door.say(body=BODY_WORD, display_name=NAME_WORD)
    (message,) = door.rows("MSG#")
    key = keys.Key(message["pk"], message["sk"])
    write = update(key, "SET #body = :no", "#body = :no", no="x")
    refused = (
        partial(door.table.write, write)
        if single
        else partial(door.table.transact, [write], "t" * 32)
    )
    with pytest.raises((Cancelled, ConditionFailed)) as caught:
        refused()
    _assert_silent_error(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def _assert_silent_error(error: BaseException) -> None:
    told = "".join(traceback.format_exception(error)) + repr(error) + str(error.args)
    # the traceback prints source lines; what it must not print is a value
    for canary in (BODY_WORD, NAME_WORD, SECRET):
        assert canary not in told


def test_the_products_own_log_line_has_no_field_for_it() -> None:
    stream = io.StringIO()
    log = JsonLog("canary", stream=stream)  # a logger of its own: Powertools keeps one a name
    with pytest.raises(ValueError, match="no field body"):
        log("ingress.accepted", body="x")
    assert stream.getvalue() == ""
    log("ingress.unproven", reason="bad_signature")
    assert json.loads(stream.getvalue())["message"] == "ingress.unproven"


def test_at_rest_a_secret_is_sealed_and_a_body_stands_in_one_row() -> None:
    door = Door()
    door.install(previous=PREVIOUS)
    door.say(body=BODY_WORD)
    holding = [row for row in door.everything() if BODY_WORD in str(row)]
    assert [row["sk"][:4] for row in holding] == ["MSG#"]
    stored = str(door.everything())
    assert SECRET[6:] not in stored
    assert PREVIOUS[6:] not in stored
