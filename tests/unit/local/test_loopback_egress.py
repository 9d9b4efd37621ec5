"""The local stack's way out lets its own loopback pairs through, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.local.egress import LoopbackEgress, LoopbackJudge
from mesh.security.egress import EgressPolicy
from mesh.security.urls import Allowlist, Reason, Refusal, Target
from tests.unit.security.peer import Peer, says


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer(says(b"HTTP/1.1 204 No Content\r\n\r\n"))
    yield peer
    peer.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_pair_is_reached_over_http(peer: Peer, host: str) -> None:
    egress = LoopbackEgress([f"{host}:{peer.port}"])
    url = f"http://{host}:{peer.port}/hook"
    assert egress.check(url, EgressPolicy()) is None
    assert egress.post(url, {}, b"{}", EgressPolicy()).status == 204
    assert peer.requests[0].startswith(b"POST /hook HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:9001/", Reason.SCHEME),
        ("https://127.0.0.1:9001/", Reason.PORT),
        ("https://127.0.0.1/", Reason.ADDRESS),
        ("http://127.0.0.2:9000/", Reason.SCHEME),
        ("http://localhost:9000/", Reason.SCHEME),
        ("http://example.com/", Reason.SCHEME),
        ("http://user@127.0.0.1:9000/", Reason.USERINFO),
        ("http://127.0.0.1:9000/#x", Reason.FRAGMENT),
        ("ftp://127.0.0.1:9000/", Reason.SCHEME),
        ("https://10.0.0.1/", Reason.ADDRESS),
    ],
)
def test_everything_else_is_judged_strictly(url: str, reason: Reason) -> None:
    judged = LoopbackJudge(["127.0.0.1:9000"]).judge_url(url, EgressPolicy())
    assert isinstance(judged, Refusal)
    assert judged.reason is reason


def test_an_allowlist_holds_for_a_pair_too() -> None:
    judge = LoopbackJudge(["127.0.0.1:9000"])
    other = EgressPolicy(allow=(Allowlist.parse(["example.com"]),))
    named = EgressPolicy(allow=(Allowlist.parse(["127.0.0.1:9000"]),))
    judged = judge.judge_url("http://127.0.0.1:9000/", other)
    assert isinstance(judged, Refusal)
    assert judged.reason is Reason.ALLOWLIST
    assert isinstance(judge.judge_url("http://127.0.0.1:9000/", named), Target)


def test_a_pair_by_name_is_connected_to_on_loopback_only() -> None:
    judge = LoopbackJudge(["localhost:9000"])
    target = judge.judge_url("http://localhost:9000/", EgressPolicy())
    assert isinstance(target, Target)
    assert judge.judge_address(target, "127.0.0.1") is None
    assert judge.judge_address(target, "::1") is None
    assert judge.judge_address(target, "10.0.0.1") is not None
    assert judge.judge_address(target, "8.8.8.8") is not None


@pytest.mark.parametrize(
    "pair",
    [
        "",
        ":80",
        "127.0.0.1",
        "10.0.0.1:80",
        "example.com:80",
        "0.0.0.0:80",
        "127.0.0.1:0",
        "127.0.0.1:80/",
        "127.0.0.1:80/x",
        "127.0.0.1:80#",
        "u@127.0.0.1:80",
        "http://127.0.0.1:80",
    ],
)
def test_only_a_loopback_host_and_port_is_a_pair(pair: str) -> None:
    with pytest.raises(ValueError, match="only a loopback"):
        LoopbackJudge([pair])
