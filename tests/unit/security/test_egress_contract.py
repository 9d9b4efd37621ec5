"""What every way out does: the guarded client, and the scripted one of other tests."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Protocol

import pytest
import trustme

from mesh.kernel.errors import Phase
from mesh.security.egress import Egress, EgressFailure, EgressFailureKind, EgressPolicy
from mesh.security.urls import Reason
from tests.fakes.egress import ScriptedEgress, answer, failure
from tests.unit.security.peer import HOST, Peer, egress_to, policy_for, says


class Side(Protocol):
    """One implementation and the peer behind it."""

    url: str
    policy: EgressPolicy

    def answering(self, status: int, body: bytes = b"", retry_after: str = "1") -> Egress: ...

    def breaking_off(self) -> Egress: ...


class Real:
    def __init__(self, authority: trustme.CA) -> None:
        self._peers: list[Peer] = []
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(HOST).configure_cert(self._server)
        self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client.minimum_version = ssl.TLSVersion.TLSv1_2
        authority.configure_trust(self._client)
        self.url = ""
        self.policy = EgressPolicy()

    def answering(self, status: int, body: bytes = b"", retry_after: str = "1") -> Egress:
        head = f"HTTP/1.1 {status} X\r\nRetry-After: {retry_after}\r\nContent-Length: {len(body)}"
        return self._behind(head.encode() + b"\r\n\r\n" + body)

    def breaking_off(self) -> Egress:
        return self._behind(b"HTTP")

    def _behind(self, said: bytes) -> Egress:
        peer = Peer(says(said), self._server)
        self._peers.append(peer)
        self.url = f"https://{HOST}:{peer.port}/hook"
        self.policy = policy_for(peer.port)
        return egress_to(peer.port, self._client)

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


class Scripted:
    def __init__(self) -> None:
        self.url = "https://receiver.example/hook"
        self.policy = EgressPolicy()

    def answering(self, status: int, body: bytes = b"", retry_after: str = "1") -> Egress:
        egress = ScriptedEgress()
        egress.script(self.url, answer(status, body, retry_after=retry_after))
        return egress

    def breaking_off(self) -> Egress:
        egress = ScriptedEgress()
        egress.script(self.url, failure(EgressFailureKind.CLOSED))
        return egress


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(params=["real", "scripted"])
def side(request: pytest.FixtureRequest, authority: trustme.CA) -> Iterator[Side]:
    if request.param == "scripted":
        yield Scripted()
        return
    real = Real(authority)
    yield real
    real.close()


@pytest.mark.parametrize("status", [200, 202, 302, 404, 410, 500])
def test_a_status_comes_back_as_it_is(side: Side, status: int) -> None:
    egress = side.answering(status)
    assert egress.post(side.url, {"X-A": "b"}, b"{}", side.policy).status == status


def test_retry_after_comes_back_raw(side: Side) -> None:
    egress = side.answering(429, retry_after="Mon, 30 Nov 2026 05:42:35 GMT")
    reply = egress.post(side.url, {}, b"{}", side.policy)
    assert reply.retry_after == "Mon, 30 Nov 2026 05:42:35 GMT"
    assert reply.header("x-other") is None


def test_a_post_gives_the_first_of_the_body_and_a_request_all_of_it(side: Side) -> None:
    egress = side.answering(200, b"x" * 5000)
    assert egress.post(side.url, {}, b"{}", side.policy).body == b"x" * 4096
    whole = egress.request("GET", side.url, {}, b"", side.policy, body_bytes_max=5000)
    assert whole.body == b"x" * 5000


def test_a_body_over_the_bound_fails_after_the_effect(side: Side) -> None:
    egress = side.answering(200, b"x" * 5000)
    with pytest.raises(EgressFailure) as failed:
        egress.request("GET", side.url, {}, b"", side.policy, body_bytes_max=4999)
    assert failed.value.kind is EgressFailureKind.BODY_TOO_LARGE
    assert failed.value.phase is Phase.AFTER


def test_a_peer_that_breaks_off_fails_with_an_unknown_outcome(side: Side) -> None:
    egress = side.breaking_off()
    with pytest.raises(EgressFailure) as failed:
        egress.post(side.url, {}, b"{}", side.policy)
    assert failed.value.kind is EgressFailureKind.CLOSED
    assert failed.value.outcome_unknown


@pytest.mark.parametrize(
    ("url", "kind", "reason"),
    [
        ("http://receiver.example/", EgressFailureKind.REFUSED_URL, Reason.SCHEME),
        ("https://10.0.0.1/", EgressFailureKind.REFUSED_ADDRESS, Reason.ADDRESS),
    ],
)
def test_a_refused_url_fails_before_any_effect(
    side: Side, url: str, kind: EgressFailureKind, reason: Reason
) -> None:
    egress = side.answering(200)
    checked = egress.check(url, EgressPolicy())
    assert checked is not None
    assert checked.reason is reason
    with pytest.raises(EgressFailure) as failed:
        egress.post(url, {}, b"", EgressPolicy())
    assert (failed.value.kind, failed.value.phase) == (kind, Phase.BEFORE)
    assert failed.value.refusal == checked


def test_a_good_url_has_nothing_against_it(side: Side) -> None:
    egress = side.answering(200)
    assert egress.check(side.url, side.policy) is None


def test_the_scripted_one_judges_what_a_name_leads_to() -> None:
    egress = ScriptedEgress(resolves={"a.example": ["127.0.0.1"], "b.example": []})
    for host, kind in (
        ("a.example", EgressFailureKind.REFUSED_ADDRESS),
        ("b.example", EgressFailureKind.DNS),
    ):
        with pytest.raises(EgressFailure) as failed:
            egress.post(f"https://{host}/", {}, b"", EgressPolicy())
        assert (failed.value.kind, failed.value.phase) == (kind, Phase.BEFORE)
    assert egress.calls == []


def test_the_scripted_one_plays_its_outcomes_in_turn_and_repeats_the_last() -> None:
    egress = ScriptedEgress()
    url = "https://a.example/"
    egress.script(url, answer(500), failure(EgressFailureKind.TIMEOUT), lambda call: answer(204))
    assert egress.post(url, {"X": "1"}, b"a", EgressPolicy()).status == 500
    with pytest.raises(EgressFailure):
        egress.post(url, {"X": "2"}, b"b", EgressPolicy())
    for _ in range(2):
        assert egress.post(url, {"X": "3"}, b"c", EgressPolicy()).status == 204
    assert [call.headers["X"] for call in egress.calls] == ["1", "2", "3", "3"]
