"""The guarded client against peers of every kind, over real sockets on loopback."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from mesh.engine.watch import ThreadWatch
from mesh.kernel.cancellation import Cancellation, cancelled_by
from mesh.kernel.clock import SystemClock
from mesh.kernel.errors import Phase
from mesh.security.egress import (
    EgressFailure,
    EgressFailureKind,
    EgressLimits,
    EgressPolicy,
    GuardedEgress,
    strict_tls,
)
from mesh.security.urls import Allowlist, Reason, Target
from tests.unit.security.peer import (
    HOST,
    LIMITS,
    SHORT,
    Peer,
    Script,
    drips,
    egress_to,
    ends_properly,
    hangs,
    policy_for,
    resets,
    says,
)

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "egress.json").read_text("utf-8"))
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SLACK_S = 5.0
"""What a busy machine may add to a deadline."""

PATIENCE_S = 20.0
"""How long a test waits for what must come."""

Start = Callable[..., Peer]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    authority.configure_trust(context)
    return context


def served(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@pytest.fixture(scope="module")
def good(authority: trustme.CA) -> ssl.SSLContext:
    return served(authority.issue_cert(HOST))


@pytest.fixture
def start(good: ssl.SSLContext) -> Iterator[Start]:
    peers: list[Peer] = []

    def begin(script: Script, **options: Any) -> Peer:
        peers.append(Peer(script, options.pop("tls", good), **options))
        return peers[-1]

    yield begin
    for peer in peers:
        peer.close()


def url_of(peer: Peer, path: str = "/hook?a=b") -> str:
    return f"https://{HOST}:{peer.port}{path}"


def post(peer: Peer, tls: ssl.SSLContext, body: bytes = b"{}", **options: Any) -> Any:
    egress = egress_to(peer.port, tls, **options)
    return egress.post(url_of(peer), {"X-Mesh-Attempt": "1"}, body, policy_for(peer.port))


def failed(
    peer: Peer, tls: ssl.SSLContext, *, limits: EgressLimits = LIMITS, **options: Any
) -> tuple[EgressFailureKind, Phase]:
    began = time.monotonic()
    with pytest.raises(EgressFailure) as failure:
        post(peer, tls, limits=limits, **options)
    assert time.monotonic() - began < limits.total_s + SLACK_S
    assert failure.value.code == "unavailable"
    assert failure.value.outcome_unknown is (failure.value.phase is not Phase.BEFORE)
    return failure.value.kind, failure.value.phase


# ---- what is sent, and what an answer is


@pytest.mark.behaviour("egress:delivery-post")
def test_a_delivery_is_one_post_on_one_connection(start: Start, trusting: ssl.SSLContext) -> None:
    peer = start(says(OK))
    reply = post(peer, trusting, b'{"body":"na\xc3\xafve"}')
    assert (reply.status, reply.body, reply.address) == (200, b"ok", "127.0.0.1")
    head, _, body = peer.requests[0].partition(b"\r\n\r\n")
    assert head.decode().split("\r\n") == [
        "POST /hook?a=b HTTP/1.1",
        f"Host: {HOST}:{peer.port}",
        "Accept-Encoding: identity",
        "Connection: close",
        "Content-Length: 17",
        "X-Mesh-Attempt: 1",
    ]
    assert body == b'{"body":"na\xc3\xafve"}'
    assert peer.connections == 1


@pytest.mark.behaviour("egress:no-redirects")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_answer_and_not_followed(
    start: Start, trusting: ssl.SSLContext, status: int
) -> None:
    peer = start(says(b"HTTP/1.1 %d Moved\r\nLocation: /elsewhere\r\n\r\n" % status))
    assert post(peer, trusting).status == status
    assert peer.connections == 1


@pytest.mark.parametrize("status", [200, 204, 404, 410, 429, 500, 503])
def test_every_status_is_an_answer(start: Start, trusting: ssl.SSLContext, status: int) -> None:
    peer = start(says(b"HTTP/1.1 %d X\r\nRetry-After: soon\r\n\r\n" % status))
    reply = post(peer, trusting)
    assert (reply.status, reply.retry_after) == (status, "soon")


def test_a_megabyte_of_body_is_left_unread(start: Start, trusting: ssl.SSLContext) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n"
    reply = post(start(says(head, bytes(1 << 20))), trusting)
    assert (reply.status, len(reply.body)) == (200, 4096)


def test_a_compressed_body_is_left_alone(start: Start, trusting: ssl.SSLContext) -> None:
    packed = gzip.compress(bytes(100_000))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    assert post(start(says(head, packed)), trusting).body == packed


def test_a_body_that_drips_for_ever_is_waited_for_only_briefly(
    start: Start, trusting: ssl.SSLContext
) -> None:
    began = time.monotonic()
    limits = replace(LIMITS, drain_s=0.2)
    reply = post(start(drips(b"HTTP/1.1 200 OK\r\n\r\n", b"x")), trusting, limits=limits)
    assert reply.status == 200
    assert time.monotonic() - began < limits.drain_s + SLACK_S


def test_a_body_that_breaks_off_takes_nothing_from_the_status(
    start: Start, trusting: ssl.SSLContext
) -> None:
    reply = post(start(says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")), trusting)
    assert (reply.status, reply.body) == (200, b"half")


@pytest.mark.parametrize(
    "script",
    [drips(b"HTTP/1.1 202 Accepted\r\nX: ", b"x"), says(b"HTTP/1.1 202 Accepted\r\nX: y\r\n")],
    ids=["drip", "break off"],
)
def test_a_status_line_decides_even_when_the_headers_never_end(
    start: Start, trusting: ssl.SSLContext, script: Script
) -> None:
    began = time.monotonic()
    assert post(start(script), trusting, limits=SHORT).status == 202
    assert time.monotonic() - began < SHORT.total_s + SLACK_S


def test_interim_answers_are_passed_over(start: Start, trusting: ssl.SSLContext) -> None:
    peer = start(says(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 5 + OK))
    assert post(peer, trusting).status == 200


# ---- peers that do not do their part


def test_a_peer_that_hangs_is_given_up_in_time(start: Start, trusting: ssl.SSLContext) -> None:
    assert failed(start(hangs), trusting, limits=SHORT) == (EgressFailureKind.TIMEOUT, Phase.DURING)


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 20"], ids=["nothing", "half a status"])
def test_a_peer_that_drips_for_ever_does_not_extend_its_time(
    start: Start, trusting: ssl.SSLContext, first: bytes
) -> None:
    peer = start(drips(first, b"0"))
    kind, phase = failed(peer, trusting, limits=SHORT)
    assert kind in {EgressFailureKind.TIMEOUT, EgressFailureKind.PROTOCOL}
    assert phase is Phase.DURING


def test_interim_answers_that_drip_do_not_extend_the_time(
    start: Start, trusting: ssl.SSLContext
) -> None:
    limits = replace(SHORT, informational_max=10_000)
    peer = start(drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"))
    assert failed(peer, trusting, limits=limits) == (EgressFailureKind.TIMEOUT, Phase.DURING)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * 6 + OK,
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"\x00" * 100 + b"\r\n\r\n",
    ],
    ids=["ssh", "header", "101", "interim flood", "two lengths", "zeros"],
)
def test_what_is_not_http_is_a_failure(start: Start, trusting: ssl.SSLContext, said: bytes) -> None:
    assert failed(start(says(said)), trusting) == (EgressFailureKind.PROTOCOL, Phase.DURING)


@pytest.mark.parametrize(
    "script",
    [
        says(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000 + b"\r\n\r\n"),
        says(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 16_380 + b"\r\n\r\n"),
        says(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 51 + b"\r\n"),
        says(b"HTTP/1.1 103 Hints\r\nX: " + b"x" * 16_000 + b"\r\n\r\n", OK[:-6], b"X" * 500),
        drips(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 4096),
        drips(b"", b"x" * 4096),
    ],
    ids=["20 KB", "just over", "51 headers", "interim", "endless", "no line"],
)
def test_a_head_that_is_too_large_is_a_failure(
    start: Start, trusting: ssl.SSLContext, script: Script
) -> None:
    assert failed(start(script), trusting)[0] is EgressFailureKind.HEAD_TOO_LARGE


def test_a_head_just_inside_its_bounds_is_read(start: Start, trusting: ssl.SSLContext) -> None:
    said = b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 49 + b"Y: " + b"y" * 15_900 + b"\r\n\r\n"
    assert post(start(says(said + bytes(50_000))), trusting).status == 200


@pytest.mark.parametrize("script", [resets, says(), says(b"HTTP/1.1 2")], ids=str)
def test_a_connection_that_breaks_off_has_an_unknown_outcome(
    start: Start, trusting: ssl.SSLContext, script: Script
) -> None:
    assert failed(start(script), trusting) == (EgressFailureKind.CLOSED, Phase.DURING)


def test_a_peer_that_does_not_read_is_given_up_in_time(
    start: Start, trusting: ssl.SSLContext
) -> None:
    peer = start(hangs, reads_request=False)
    outcome = failed(peer, trusting, limits=SHORT, body=bytes(20 << 20))
    assert outcome == (EgressFailureKind.TIMEOUT, Phase.DURING)


# ---- TLS


@pytest.mark.parametrize("fault", ["expired", "wrong name", "unknown authority", "self-made name"])
def test_a_certificate_that_is_not_right_ends_it_before_anything_is_sent(
    start: Start, trusting: ssl.SSLContext, authority: trustme.CA, fault: str
) -> None:
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    certificate = {
        "expired": lambda: authority.issue_cert(HOST, not_after=yesterday),
        "wrong name": lambda: authority.issue_cert("other.example"),
        "unknown authority": lambda: trustme.CA().issue_cert(HOST),
        "self-made name": lambda: authority.issue_cert("127.0.0.1"),
    }[fault]()
    peer = start(says(OK), tls=served(certificate))
    assert failed(peer, trusting) == (EgressFailureKind.TLS, Phase.BEFORE)
    assert peer.requests == []


def test_a_peer_without_tls_is_a_failure(start: Start, trusting: ssl.SSLContext) -> None:
    peer = start(says(OK), tls=None, reads_request=False)
    assert failed(peer, trusting) == (EgressFailureKind.TLS, Phase.BEFORE)


def test_a_handshake_that_hangs_counts_to_the_time_for_connecting(
    start: Start, trusting: ssl.SSLContext
) -> None:
    peer = start(hangs, tls=None, reads_request=False)
    began = time.monotonic()
    limits = replace(LIMITS, connect_s=0.3)
    assert failed(peer, trusting, limits=limits) == (EgressFailureKind.TIMEOUT, Phase.BEFORE)
    assert time.monotonic() - began < limits.connect_s + SLACK_S


def test_a_handshake_that_drips_does_not_extend_its_time(
    start: Start, trusting: ssl.SSLContext
) -> None:
    # One TLS record of 16 KB, a byte at a time.
    peer = start(drips(b"\x16\x03\x03\x40\x00", b"\x02"), tls=None, reads_request=False)
    kind, phase = failed(peer, trusting, limits=SHORT)
    assert kind in {EgressFailureKind.TIMEOUT, EgressFailureKind.TLS}
    assert phase is Phase.BEFORE


def test_the_products_tls_verifies_and_keeps_no_key_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    context = strict_tls()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.keylog_filename is None


def test_a_tls_context_that_verifies_less_is_refused() -> None:
    nameless, blind, old = (strict_tls() for _ in range(3))
    nameless.check_hostname = False
    blind.check_hostname = False
    blind.verify_mode = ssl.CERT_NONE
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    for context in (nameless, blind, old):
        with pytest.raises(ValueError, match="must verify"):
            GuardedEgress(SystemClock(), tls=context)


# ---- names and addresses


def test_a_port_where_nobody_listens_is_a_failure_without_effect(
    start: Start, trusting: ssl.SSLContext
) -> None:
    peer = start(says(OK))
    peer.close()
    assert failed(peer, trusting) == (EgressFailureKind.CONNECT, Phase.BEFORE)


def test_the_next_address_is_tried_when_one_does_not_connect(
    start: Start, trusting: ssl.SSLContext
) -> None:
    peer = start(says(OK))
    reply = post(peer, trusting, addresses=["127.0.0.2", "127.0.0.1"])
    assert (reply.status, reply.address) == (200, "127.0.0.1")


def test_an_address_that_keeps_silent_leaves_time_for_the_next(
    start: Start, trusting: ssl.SSLContext
) -> None:
    peer = start(says(OK))
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.2", peer.port))
        full.listen(0)
        for waiting in (first, second):  # the queue is full: who comes next gets no answer
            waiting.setblocking(False)
            with suppress(BlockingIOError):
                waiting.connect(("127.0.0.2", peer.port))
        limits = replace(LIMITS, connect_s=1.0)
        reply = post(peer, trusting, limits=limits, addresses=["127.0.0.2", "127.0.0.1"])
    assert reply.address == "127.0.0.1"


def test_at_most_three_addresses_are_tried(start: Start, trusting: ssl.SSLContext) -> None:
    peer = start(says(OK))
    dead = ["127.0.0.2", "127.0.0.3", "127.0.0.2", "127.0.0.4"]
    outcome = failed(peer, trusting, addresses=[*dead, "127.0.0.1"])
    assert outcome == (EgressFailureKind.CONNECT, Phase.BEFORE)
    assert post(peer, trusting, addresses=[*dead[:3], "127.0.0.1"]).status == 200


def test_no_other_address_is_tried_once_something_was_sent(
    start: Start, trusting: ssl.SSLContext
) -> None:
    first = start(resets)
    second = start(says(OK), address=("127.0.0.2", first.port))
    outcome = failed(first, trusting, addresses=["127.0.0.1", "127.0.0.2"])
    assert outcome == (EgressFailureKind.CLOSED, Phase.DURING)
    assert second.connections == 0


def strict(resolver: Callable[[str, int], Sequence[str]]) -> GuardedEgress:
    return GuardedEgress(SystemClock(), resolver=resolver, limits=SHORT)


@pytest.mark.behaviour("egress:resolved-address", "egress:health-check")
@pytest.mark.parametrize("case", VECTORS["resolutions"], ids=lambda case: case["name"])
def test_every_address_that_a_name_leads_to_must_pass(case: dict[str, Any]) -> None:
    answers = iter([case["answers"], case.get("second_answers", [])])
    egress = strict(lambda host, port: next(answers))
    target = Target("https", "example.com", 443, "/", None)
    if case["allowed"]:
        # Only the judgement: what passes is out in the world, where a test does not go.
        found = egress._addresses(target, 1.0)
        assert found == case.get("connects_to", case["answers"])
        return
    with pytest.raises(EgressFailure) as failure:
        egress.post("https://example.com/", {}, b"", EgressPolicy())
    none = not case["answers"]
    kind = EgressFailureKind.DNS if none else EgressFailureKind.REFUSED_ADDRESS
    assert (failure.value.kind, failure.value.phase) == (kind, Phase.BEFORE)
    if not none:
        assert failure.value.refusal is not None
        assert failure.value.refusal.reason is Reason.ADDRESS


def test_a_name_is_resolved_once_and_the_judged_address_is_connected_to(
    start: Start, trusting: ssl.SSLContext
) -> None:
    peer = start(says(OK))
    answers = [["127.0.0.1"], ["127.0.0.2"]]
    asked: list[tuple[str, int]] = []

    def resolver(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return answers[len(asked) - 1]

    assert post(peer, trusting, resolver=resolver).address == "127.0.0.1"
    assert asked == [(HOST, peer.port)]


def test_ipv4_goes_first() -> None:
    found = ["2606:4700:4700::1111", "1.1.1.1", "2606:4700:4700::1001", "1.0.0.1", "1.1.1.1"]
    target = Target("https", "example.com", 443, "/", None)
    tried = strict(lambda host, port: found)._addresses(target, 1.0)
    assert tried == ["1.1.1.1", "1.0.0.1", "2606:4700:4700::1111"]


def test_a_name_that_does_not_resolve_is_a_failure_without_effect() -> None:
    def resolver(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    with pytest.raises(EgressFailure) as failure:
        strict(resolver).post("https://example.com/", {}, b"", EgressPolicy())
    assert (failure.value.kind, failure.value.phase) == (EgressFailureKind.DNS, Phase.BEFORE)


def test_a_resolver_that_hangs_is_left_behind() -> None:
    over = threading.Event()

    def resolver(host: str, port: int) -> list[str]:
        over.wait(10)
        return ["1.1.1.1"]

    began = time.monotonic()
    with pytest.raises(EgressFailure) as failure:
        strict(resolver).post("https://example.com/", {}, b"", EgressPolicy())
    over.set()
    assert failure.value.kind is EgressFailureKind.DNS_TIMEOUT
    assert time.monotonic() - began < SHORT.dns_s + SLACK_S


def test_a_fault_in_a_resolver_is_not_taken_for_an_answer() -> None:
    def resolver(host: str, port: int) -> list[str]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        strict(resolver).post("https://example.com/", {}, b"", EgressPolicy())


@pytest.mark.behaviour("egress:https-only")
@pytest.mark.parametrize(
    ("url", "kind", "reason"),
    [
        ("http://example.com/", EgressFailureKind.REFUSED_URL, Reason.SCHEME),
        ("https://localhost/", EgressFailureKind.REFUSED_URL, Reason.HOST),
        ("https://mesh.example/", EgressFailureKind.REFUSED_URL, Reason.HOST),
        ("https://example.com:8443/", EgressFailureKind.REFUSED_URL, Reason.PORT),
        ("https://127.1/", EgressFailureKind.REFUSED_ADDRESS, Reason.ADDRESS),
        ("https://[::ffff:a9fe:a9fe]/", EgressFailureKind.REFUSED_ADDRESS, Reason.ADDRESS),
    ],
)
def test_what_is_refused_is_never_resolved_and_said_the_same_when_saved(
    url: str, kind: EgressFailureKind, reason: Reason
) -> None:
    def resolver(host: str, port: int) -> list[str]:
        raise AssertionError("resolved")

    policy = EgressPolicy(own_hosts=frozenset({"mesh.example"}))
    with pytest.raises(EgressFailure) as failure:
        strict(resolver).post(url, {}, b"", policy)
    assert (failure.value.kind, failure.value.phase) == (kind, Phase.BEFORE)
    refusal = strict(resolver).check(url, policy)
    assert refusal is not None
    assert refusal == failure.value.refusal
    assert refusal.reason is reason


def test_the_allowlists_hold_at_the_time_of_sending() -> None:
    policy = EgressPolicy(allow=(Allowlist.parse(["a.example"]), Allowlist.parse(["b.example"])))
    refusal = strict(lambda host, port: []).check("https://a.example/", policy)
    assert refusal is not None
    assert refusal.reason is Reason.ALLOWLIST


def test_a_proxy_of_the_environment_is_not_used(
    start: Start, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert post(start(says(OK)), trusting).status == 200


# ---- requests whose answer is wanted whole


def ask(peer: Peer, tls: ssl.SSLContext, limits: EgressLimits = LIMITS) -> Any:
    egress = egress_to(peer.port, tls, limits=limits)
    policy = policy_for(peer.port)
    return egress.request("GET", url_of(peer), {}, b"", policy, body_bytes_max=1000)


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
    ],
    ids=["length", "chunked"],
)
def test_a_whole_answer_is_read(start: Start, trusting: ssl.SSLContext, said: bytes) -> None:
    peer = start(says(said))
    assert ask(peer, trusting).body == b"body"
    assert peer.requests[0].startswith(b"GET /hook?a=b HTTP/1.1\r\n")
    assert b"content-length" not in peer.requests[0].lower()


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (says(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(1001)), EgressFailureKind.BODY_TOO_LARGE),
        (says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody"), EgressFailureKind.CLOSED),
        (drips(b"HTTP/1.1 200 OK\r\n\r\n", b"x"), EgressFailureKind.TIMEOUT),
        (
            says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot hex\r\n"),
            EgressFailureKind.PROTOCOL,
        ),
    ],
    ids=["too large", "cut short", "drips", "bad chunk"],
)
def test_an_answer_that_is_not_whole_is_a_failure(
    start: Start, trusting: ssl.SSLContext, script: Script, kind: EgressFailureKind
) -> None:
    with pytest.raises(EgressFailure) as failure:
        ask(start(script), trusting, limits=SHORT)
    assert (failure.value.kind, failure.value.phase) == (kind, Phase.AFTER)


def test_an_answer_without_a_length_is_whole_only_when_tls_ends_properly(
    start: Start, trusting: ssl.SSLContext
) -> None:
    said = b"HTTP/1.1 200 OK\r\n\r\nbody"
    assert ask(start(ends_properly(said)), trusting).body == b"body"
    with pytest.raises(EgressFailure) as failure:
        ask(start(says(said)), trusting)
    assert (failure.value.kind, failure.value.phase) == (EgressFailureKind.CLOSED, Phase.AFTER)


def test_headers_that_never_end_are_no_whole_answer(start: Start, trusting: ssl.SSLContext) -> None:
    with pytest.raises(EgressFailure) as failure:
        ask(start(drips(b"HTTP/1.1 200 OK\r\nX: ", b"x")), trusting, limits=SHORT)
    assert failure.value.kind is EgressFailureKind.TIMEOUT


def test_a_request_may_have_a_deadline_of_its_own(start: Start, trusting: ssl.SSLContext) -> None:
    peer = start(hangs)
    egress = egress_to(peer.port, trusting, limits=EgressLimits(total_s=60))
    began = time.monotonic()
    with pytest.raises(EgressFailure):
        egress.request(
            "GET", url_of(peer), {}, b"", policy_for(peer.port), body_bytes_max=10, total_s=0.3
        )
    assert time.monotonic() - began < 0.3 + SLACK_S


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "canary\r\nX-Evil: 1"},
        {"X-A": " canary"},
        {"X-A": "canary\x00"},
        {"X-A": "canäry"},
        {"X A": "canary"},
        {"": "canary"},
        {"Host": "canary"},
        {"content-LENGTH": "0"},
        {"Transfer-Encoding": "chunked"},
    ],
    ids=str,
)
def test_a_header_that_is_none_is_a_bug_that_quotes_nothing(headers: dict[str, str]) -> None:
    egress = strict(lambda host, port: [])
    with pytest.raises(ValueError, match="header") as failure:
        egress.post("https://example.com/", headers, b"", EgressPolicy())
    assert "can" not in str(failure.value)
    assert failure.value.__cause__ is None


# ---- work that nobody waits for any more


def test_a_request_that_is_not_wanted_any_more_is_cut_off_at_once(
    start: Start, trusting: ssl.SSLContext
) -> None:
    arrived, cut_off = threading.Event(), threading.Event()

    def waits(sock: socket.socket, _over: threading.Event) -> None:
        arrived.set()
        try:
            rest = sock.recv(1)
        except OSError:  # TLS calls it a violation
            rest = b""
        if rest == b"":
            cut_off.set()

    peer = start(waits)
    egress = egress_to(peer.port, trusting)

    def work() -> None:
        egress.request("GET", url_of(peer), {}, b"", policy_for(peer.port), body_bytes_max=10)

    def look() -> None:
        assert arrived.wait(PATIENCE_S)
        raise Unwanted

    with pytest.raises(Unwanted):
        ThreadWatch(SystemClock()).calls([work], look, PATIENCE_S)
    assert cut_off.wait(PATIENCE_S)


def test_a_request_of_work_that_was_given_up_before_is_cut_off_too(
    start: Start, trusting: ssl.SSLContext
) -> None:
    peer = start(hangs)
    given_up = Cancellation()
    given_up.cancel()
    with cancelled_by(given_up):
        kind, _ = failed(peer, trusting)
    assert kind is EgressFailureKind.TIMEOUT


class Unwanted(Exception):
    """What a look raises that finds the work not wanted any more."""
