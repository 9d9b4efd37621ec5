"""A notice reaches the bus and the webhook, each at least once, whoever dies or refuses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from infra.local.aws import Killed
from infra.local.aws.local import When
from mesh.control.notices import notice_write
from mesh.kernel.clock import DAY_MS, SystemClock
from mesh.kernel.errors import Failed
from mesh.kernel.ids import story_of
from mesh.notices.sender import NoticeSender
from mesh.notices.webhook import WebhookPosts
from mesh.records.notice import NoticeKind
from mesh.security.egress import EgressFailureKind, Reply
from mesh.storage import keys
from mesh.storage.clients import SessionClients
from mesh.storage.events import EventBus
from mesh.storage.queues import Bell
from tests.fakes.door import StrictLog
from tests.fakes.egress import Call, Outcome, answer, failure
from tests.fakes.system import System

URL = "https://pager.example/told"
SECRET = "whsec_JwGO+mwA4P7CTWY+ERn5oXxoeApE2OJvPNTbXQjHG7s="


@dataclass(frozen=True)
class OperatorWebhook:
    url: str = URL
    secret: str = field(default=SECRET, repr=False)


@dataclass
class DeafBus:
    """A bus that takes nothing so many times, and then goes on to the real one."""

    inner: EventBus
    left: int

    def put(self, source: str, detail_type: str, detail: str) -> None:
        if self.left:
            self.left -= 1
            raise Failed("unavailable", "scripted")
        self.inner.put(source, detail_type, detail)


class KeptBell(Bell):
    """Keeps the rings for chores instead of sending them."""

    def __init__(self) -> None:
        self.rings: list[tuple[str, int]] = []

    def chore(self, chore_id: str, delay_s: int = 0) -> bool:
        self.rings.append((chore_id, delay_s))
        return True


class Sending:
    """One notice, and a function that sends it."""

    def __init__(self, *outcomes: Outcome, webhook: bool = True, deaf: int = 0) -> None:
        self.system = System(lag=False)
        self.clock = self.system.clock
        self.log = StrictLog()
        self.bell = KeptBell()
        self.hosts: tuple[str, ...] = ()
        self.system.egress.script(URL, *(outcomes or (answer(204),)))
        self.webhook: Callable[[], OperatorWebhook | None] = lambda: (
            OperatorWebhook() if webhook else None
        )
        settings = self.system.stack.settings
        clients = SessionClients(self.system.aws.session("sender"))
        self.sender = NoticeSender(
            table=self.system.table,
            bus=DeafBus(EventBus(lambda: clients.events, settings.event_bus), deaf),
            posts=WebhookPosts(
                table=self.system.table,
                webhook=self._opened,
                egress=self.system.egress,
                clock=self.clock,
                random=self.system.random,
                log=self.log,
                own_hosts=("mesh.example",),
                instance_hosts=lambda: self.hosts,
            ),
            bell=self.bell,
            clock=self.clock,
            random=self.system.random,
            log=self.log,
            environment="test",
        )
        self.notice_id = self.put()

    def put(self) -> str:
        """Puts a notice down, and answers its id."""
        ulid = self.system.ids.ulid()
        self.system.table.write(
            notice_write(
                ulid,
                NoticeKind.ENTRY_DEAD,
                self.clock.now_ms(),
                agent_id="agt_1",
                install_id="ins_1",
                subject="out_1",
                reason="gone",
                figures={"attempts": 3},
            )
        )
        return f"ntc_{ulid}"

    def _opened(self) -> OperatorWebhook | None:
        return self.webhook()

    def work(self, notice_id: str | None = None) -> None:
        self.sender.work(notice_id or self.notice_id, self.clock.now_ms() + 60_000)

    def until_done(self, hours: int = 30) -> None:
        """Rings as the sweep would: whenever the mark is due."""
        for _ in range(hours * 60):
            row = self.row()
            if "due_pk" not in row:
                return
            self.clock.ms = max(self.clock.ms + 60_000, row["due_at"])
            self.work()
        raise AssertionError("somebody still waits for the notice")

    def row(self, notice_id: str | None = None) -> dict[str, Any]:
        item = self.system.table.get(keys.notice(story_of(notice_id or self.notice_id)))
        assert item is not None
        return item

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event.detail for event in self.system.aws.events.events()]

    @property
    def posts(self) -> list[Call]:
        return [call for call in self.system.egress.calls if call.url == URL]


def test_a_notice_is_an_event_and_a_post_of_the_same_object() -> None:
    sending = Sending()
    sending.work()
    (event,), (post,) = sending.events, sending.posts
    assert event == json.loads(post.body)
    assert list(event) == [
        "type",
        "notice_id",
        "created_at",
        "environment",
        "agent_id",
        "install_id",
        "outbound_id",
        "run_id",
        "reason",
        "figures",
    ]
    assert event["type"] == "outbox.dead"
    assert (event["outbound_id"], event["run_id"]) == ("out_1", None)
    assert (event["environment"], event["figures"]) == ("test", {"attempts": 3})
    (put,) = sending.system.aws.events.events()
    assert (put.source, put.detail_type) == ("mesh.test", "outbox.dead")
    assert post.headers["webhook-id"] == event["notice_id"] == sending.notice_id
    assert post.policy.own_hosts == {"mesh.example"}
    row = sending.row()
    assert {"on_bus_at", "posted_at"} <= row.keys()
    assert not {"due_pk", "due_at"} & row.keys()
    assert [event for event, _ in sending.log.events] == ["notice.on_bus", "notice.posted"]


def test_a_post_verifies_with_the_standards_own_library_and_only_as_it_was_sent() -> None:
    sending = Sending()
    sending.clock.ms = SystemClock().now_ms()  # the library goes by the machine's clock
    sending.work()
    (post,) = sending.posts
    headers = dict(post.headers)
    assert Webhook(SECRET).verify(post.body, headers)["notice_id"] == sending.notice_id
    later = str(int(headers["webhook-timestamp"]) + 1)
    for changed in (
        headers | {"webhook-id": "ntc_other"},
        headers | {"webhook-timestamp": later},
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(post.body, changed)


def test_without_a_webhook_the_bus_alone_is_told() -> None:
    sending = Sending(webhook=False)
    sending.work()
    assert (len(sending.events), sending.posts) == (1, [])
    assert not {"due_pk", "posted_at"} & sending.row().keys()


def test_a_post_that_fails_is_made_again_at_its_time_and_the_event_is_not() -> None:
    timeout = failure(EgressFailureKind.TIMEOUT)
    sending = Sending(answer(500), timeout, answer(204))
    sending.work()
    row = sending.row()
    wait_ms = row["not_before"] - sending.clock.now_ms()
    assert 4_500 <= wait_ms <= 5_500
    sending.work()  # a ring that came twice
    assert len(sending.posts) == 1
    sending.clock.ms = row["not_before"]
    sending.work()
    assert 27_000 <= sending.row()["not_before"] - sending.clock.now_ms() <= 33_000
    sending.until_done()
    assert len(sending.events) == 1
    assert [post.headers["webhook-id"] for post in sending.posts] == [sending.notice_id] * 3
    assert len({post.headers["webhook-timestamp"] for post in sending.posts}) == 3
    assert [told["reason"] for told in sending.log.named("notice.not_posted")] == [
        "server_error",
        "timeout",
    ]


def test_a_short_wait_is_rung_for_and_a_long_one_is_the_sweeps() -> None:
    sending = Sending(answer(500))
    waits = []
    for _ in range(3):
        sending.clock.ms = max(sending.clock.ms, sending.row()["not_before"])
        sending.work()
        waits.append(sending.row()["not_before"] - sending.clock.ms)
    assert sending.bell.rings == [(sending.notice_id, -(-wait // 1000)) for wait in waits[:2]]
    row = sending.row()
    assert row["due_at"] == row["not_before"], "a wait of minutes has its mark alone"


def test_a_receiver_that_asks_for_patience_gets_it() -> None:
    sending = Sending(answer(503, retry_after="1200"))
    sending.work()
    assert sending.row()["not_before"] == sending.clock.now_ms() + 1_200_000


def test_a_webhook_that_never_takes_it_is_given_up_after_a_day() -> None:
    sending = Sending(answer(500))
    began = sending.clock.ms
    sending.until_done()
    assert DAY_MS <= sending.clock.ms - began <= DAY_MS + 2 * 3_600_000
    assert 24 <= len(sending.posts) <= 36
    assert "posted_at" not in sending.row()
    (given_up,) = sending.log.named("notice.given_up")
    assert given_up["chore_id"] == sending.notice_id
    sending.work()
    assert len(sending.log.named("notice.given_up")) == 1


def test_a_webhook_that_the_instances_list_does_not_name_gets_no_request() -> None:
    sending = Sending()
    sending.hosts = ("other.example",)
    sending.work()
    assert sending.posts == []
    (told,) = sending.log.named("notice.not_posted")
    assert told["reason"] == "refused_address"


def test_a_bus_that_takes_nothing_keeps_the_webhook_from_nothing() -> None:
    sending = Sending(deaf=2)
    sending.work()
    assert (sending.events, len(sending.posts)) == ([], 1)
    sending.until_done()
    assert (len(sending.events), len(sending.posts)) == (1, 1)
    assert len(sending.log.named("notice.not_on_bus")) == 2


def test_a_webhook_whose_secret_cannot_be_opened_is_tried_again() -> None:
    sending = Sending()
    opened = sending.webhook

    def sealed() -> OperatorWebhook | None:
        raise Failed("unavailable", "the key that opens secrets cannot be used")

    sending.webhook = sealed
    sending.work()
    assert (len(sending.events), sending.posts) == (1, [])
    sending.webhook = opened
    sending.until_done()
    assert len(sending.posts) == 1


def test_a_worker_that_was_overtaken_changes_nothing_and_the_receiver_sees_one_id() -> None:
    def overtaken(call: Call) -> Reply:
        sending.system.egress.script(URL, answer(204))
        sending.work()  # another ring, while this post is under way
        return answer(500)

    sending = Sending(overtaken)
    sending.work()
    assert {post.headers["webhook-id"] for post in sending.posts} == {sending.notice_id}
    assert len(sending.posts) == 2
    row = sending.row()
    assert "posted_at" in row
    assert (row["tries"], "due_pk" in row) == (0, False)


def test_a_webhook_that_hangs_is_tried_by_one_notice_at_a_time_however_many_wait() -> None:
    def hangs(_: Call) -> Reply:
        sending.clock.forward(10)
        raise failure(EgressFailureKind.TIMEOUT)

    sending = Sending(hangs)
    waiting = [sending.notice_id, *(sending.put() for _ in range(11))]
    began = sending.clock.ms
    rounds = 0
    while sending.clock.ms < began + 3_600_000:
        for each in waiting:
            sending.work(each)
        sending.clock.ms = max(sending.clock.ms + 1_000, *[sending.row(waiting[-1])["not_before"]])
        rounds += 1
    assert rounds > 5
    assert len(sending.posts) <= rounds
    assert len(sending.posts) <= 12, "the distance grows to ten minutes"
    assert len(sending.events) == 12, "the bus waits for nobody"

    sending.system.egress.script(URL, answer(204))
    sending.clock.forward(1_200)
    for each in waiting:
        sending.work(each)
    taken = [each for each in waiting if "due_pk" not in sending.row(each)]
    assert len(taken) > 4, "what only waited its turn goes with the first success"
    sending.clock.forward(7_200)
    for each in waiting:
        sending.work(each)
    assert not [each for each in waiting if "due_pk" in sending.row(each)]
    assert sending.system.rows("WEBHOOK#") == []


def test_posts_that_fail_at_once_count_as_one_failure() -> None:
    def fails(_: Call) -> Reply:
        if others:
            sending.work(others.pop())
        return answer(500)

    sending = Sending(fails)
    others = [sending.put() for _ in range(5)]
    sending.work()
    assert len(sending.posts) == 6
    (health,) = sending.system.rows("WEBHOOK#")
    assert health["failures"] == 1


def test_a_webhook_that_was_changed_begins_anew() -> None:
    sending = Sending(answer(500))
    sending.work()
    other = sending.put()
    sending.work(other)
    assert len(sending.posts) == 1
    moved = "https://pager.example/moved"
    sending.system.egress.script(moved, answer(204))
    sending.webhook = lambda: OperatorWebhook(moved)
    another = sending.put()
    sending.work(another)
    assert "due_pk" not in sending.row(another)


def test_a_worker_that_dies_at_a_failing_webhook_keeps_the_others_from_it_for_seconds() -> None:
    def dies(_: Call) -> Reply:
        raise Killed

    sending = Sending(answer(500), dies, answer(204))
    sending.work()
    other = sending.put()
    sending.clock.ms = sending.row()["not_before"]
    with pytest.raises(Killed):
        sending.work()
    sending.work(other)
    assert len(sending.posts) == 2
    sending.clock.forward(20)
    sending.work(other)
    assert len(sending.posts) == 3
    assert "due_pk" not in sending.row(other)


def test_an_unknown_notice_is_nothing() -> None:
    sending = Sending()
    for notice_id in ("ntc_", "ntc_1", sending.system.ids.mint("ntc")):
        sending.sender.work(notice_id, 0)
    assert (sending.events, sending.posts) == ([], [])


def test_a_death_at_any_call_repeats_one_part_at_most() -> None:
    undisturbed = Sending()
    with undisturbed.system.aws.recording() as calls:
        undisturbed.work()
    assert [call.operation for call in calls] == [
        "GetItem",
        "PutEvents",
        "UpdateItem",
        "GetItem",
        "UpdateItem",
    ]
    whens: tuple[When, ...] = ("before", "after")
    for place in itertools.product(range(1, len(calls) + 1), whens):
        sending = Sending()
        sending.system.aws.kill_at(*place)
        with pytest.raises(Killed):
            sending.work()
        sending.until_done()
        assert len(sending.events) == (2 if place in {(2, "after"), (3, "before")} else 1), place
        assert len(sending.posts) == (2 if place == (5, "before") else 1), place
        assert {event["notice_id"] for event in sending.events} == {sending.notice_id}
        assert {post.headers["webhook-id"] for post in sending.posts} == {sending.notice_id}


def test_a_death_in_the_post_repeats_the_post_alone() -> None:
    def dies(_: Call) -> Reply:
        raise Killed

    sending = Sending(dies, answer(204))
    with pytest.raises(Killed):
        sending.work()
    sending.until_done()
    assert (len(sending.events), len(sending.posts)) == (1, 2)


def test_what_a_webhook_is_says_neither_url_nor_secret_in_a_log() -> None:
    sending = Sending(answer(500), failure(EgressFailureKind.DNS), answer(204))
    sending.until_done()
    told = json.dumps(sending.log.events)
    for secret in ("pager.example", SECRET, "whsec_"):
        assert secret not in told
