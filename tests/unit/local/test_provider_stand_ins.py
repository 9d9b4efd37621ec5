"""What goes to a provider's own origin is judged as that, and goes to its stand-in on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from infra.local.command import PROVIDERS, _read_origins, command as local
from infra.local.egress import ORIGINS, LoopbackEgress, LoopbackJudge
from mesh.security.egress import EgressFailure, EgressFailureKind, EgressPolicy
from mesh.security.urls import Allowlist, Reason, Refusal, Target
from mesh.tools.web import catalogue
from tests.unit.security.peer import SHORT, Peer, Script, drips, hangs, says

BRAVE = catalogue.BRAVE.origin
ANY = EgressPolicy()


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer(says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    yield peer
    peer.close()


def policy_of(*hosts: str) -> EgressPolicy:
    return EgressPolicy(allow=(Allowlist.parse(hosts),))


def test_every_provider_of_the_catalogue_can_have_a_stand_in() -> None:
    for name, provider in catalogue.PROVIDERS.items():
        assert ORIGINS[name] == provider.origin
    assert set(ORIGINS) <= set(PROVIDERS)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("name", ORIGINS)
def test_a_request_to_the_origin_goes_to_the_stand_in_path_and_query_unchanged(
    peer: Peer, name: str, host: str
) -> None:
    egress = LoopbackEgress([], stand_ins={name: f"{host}:{peer.port}"})
    url = f"{_origin(name)}/v1/a%20b?q=x%26y&count=5"
    assert egress.check(url, ANY) is None
    reply = egress.request("GET", url, {"X-Key": "k"}, b"", ANY, body_bytes_max=10)
    assert (reply.status, reply.body, reply.address) == (200, b"ok", "127.0.0.1")
    head = peer.requests[0].decode().split("\r\n")
    assert head[0] == "GET /v1/a%20b?q=x%26y&count=5 HTTP/1.1"
    assert head[1] == f"Host: {host}:{peer.port}"
    assert "X-Key: k" in head
    assert peer.connections == 1


@pytest.mark.parametrize(
    "url",
    [
        "https://api.search.brave.com.evil.example/",
        "https://api.search.brave.community/",
        "https://xapi.search.brave.com/",
        "https://search.brave.com/",
        "https://brave.example/api.search.brave.com",
        "https://api.perplexity.ai/search",
    ],
)
def test_what_only_looks_like_the_origin_is_judged_and_left_as_it_is(url: str) -> None:
    judge = LoopbackJudge([], {"brave": "127.0.0.1:9001"})
    judged = judge.judge_url(url, ANY)
    assert judged == LoopbackJudge([]).judge_url(url, ANY)
    assert isinstance(judged, Target)
    assert judged.scheme == "https"
    assert judge.judge_address(judged, "127.0.0.1") is not None, "nor may it lead to loopback"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://api.search.brave.com/", Reason.SCHEME),
        ("https://api.search.brave.com:9001/", Reason.PORT),
        ("https://key@api.search.brave.com/", Reason.USERINFO),
        ("https://api.search.brave.com@10.0.0.1/", Reason.USERINFO),
        ("https://api.search.brave.com/#x", Reason.FRAGMENT),
        ("https://api.search.brave.com\\@10.0.0.1/", Reason.MALFORMED),
    ],
)
def test_what_the_product_refuses_is_refused_with_a_stand_in_too(url: str, reason: Reason) -> None:
    judged = LoopbackJudge([], {"brave": "127.0.0.1:9001"}).judge_url(url, ANY)
    assert isinstance(judged, Refusal)
    assert judged.reason is reason


def test_a_policy_is_held_against_the_origin_and_not_against_the_stand_in() -> None:
    judge = LoopbackJudge([], {"brave": "127.0.0.1:9001"})
    assert isinstance(judge.judge_url(f"{BRAVE}/x", policy_of("api.search.brave.com")), Target)
    for policy, reason in [
        (policy_of("api.perplexity.ai"), Reason.ALLOWLIST),
        (policy_of("127.0.0.1:9001"), Reason.ALLOWLIST),
        (EgressPolicy(own_hosts=frozenset({"api.search.brave.com"})), Reason.HOST),
    ]:
        judged = judge.judge_url(f"{BRAVE}/x", policy)
        assert isinstance(judged, Refusal)
        assert judged.reason is reason


def test_a_stand_in_is_not_reached_under_the_policy_of_its_provider_by_its_own_address() -> None:
    judge = LoopbackJudge([], {"brave": "127.0.0.1:9001"})
    judged = judge.judge_url("http://127.0.0.1:9001/", policy_of("api.search.brave.com"))
    assert isinstance(judged, Refusal)
    assert judged.reason is Reason.ALLOWLIST


def test_each_provider_has_its_own_stand_in() -> None:
    first, second = Peer(says(b"HTTP/1.1 204 X\r\n\r\n")), Peer(says(b"HTTP/1.1 204 X\r\n\r\n"))
    egress = LoopbackEgress(
        [],
        stand_ins={"brave": f"127.0.0.1:{first.port}", "perplexity": f"127.0.0.1:{second.port}"},
    )
    egress.request("GET", f"{BRAVE}/b", {}, b"", ANY, body_bytes_max=10)
    egress.request("POST", f"{catalogue.PERPLEXITY.origin}/p", {}, b"{}", ANY, body_bytes_max=10)
    for peer, line in ((first, b"GET /b HTTP/1.1"), (second, b"POST /p HTTP/1.1")):
        peer.close()
        assert [request.split(b"\r\n")[0] for request in peer.requests] == [line]


def test_a_redirect_of_a_stand_in_is_an_answer_and_not_followed() -> None:
    other = Peer(says(b"HTTP/1.1 204 X\r\n\r\n"))
    location = f"Location: http://127.0.0.1:{other.port}/\r\n".encode()
    peer = Peer(says(b"HTTP/1.1 302 Found\r\n" + location + b"Content-Length: 0\r\n\r\n"))
    pairs = [f"127.0.0.1:{other.port}"]
    egress = LoopbackEgress(pairs, stand_ins={"brave": f"127.0.0.1:{peer.port}"})
    assert egress.request("GET", BRAVE, {}, b"", ANY, body_bytes_max=10).status == 302
    for each in (peer, other):
        each.close()
    assert (peer.connections, other.connections) == (1, 0)


def test_a_proxy_of_the_environment_is_not_used_for_a_stand_in(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    egress = LoopbackEgress([], stand_ins={"brave": f"127.0.0.1:{peer.port}"})
    assert egress.request("GET", BRAVE, {}, b"", ANY, body_bytes_max=10).body == b"ok"


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (hangs, EgressFailureKind.TIMEOUT),
        (drips(b"HTTP/1.1 200 OK\r\n\r\n", b"x"), EgressFailureKind.TIMEOUT),
        (says(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(1001)), EgressFailureKind.BODY_TOO_LARGE),
    ],
    ids=["hangs", "drips", "too large"],
)
def test_the_bounds_of_a_request_hold_for_a_stand_in(
    script: Script, kind: EgressFailureKind
) -> None:
    peer = Peer(script)
    egress = LoopbackEgress([], limits=SHORT, stand_ins={"brave": f"127.0.0.1:{peer.port}"})
    with pytest.raises(EgressFailure) as failure:
        egress.request("GET", BRAVE, {}, b"", ANY, body_bytes_max=1000, total_s=0.3)
    peer.close()
    assert failure.value.kind is kind


def test_a_stand_in_by_name_is_connected_to_on_loopback_only() -> None:
    judge = LoopbackJudge([], {"brave": "localhost:9001"})
    target = judge.judge_url(BRAVE, ANY)
    assert isinstance(target, Target)
    assert judge.judge_address(target, "127.0.0.1") is None
    assert judge.judge_address(target, "10.0.0.1") is not None


def test_without_a_stand_in_the_origin_is_what_it_is() -> None:
    judged = LoopbackJudge([]).judge_url(f"{BRAVE}/x", ANY)
    assert judged == Target("https", "api.search.brave.com", 443, "/x", None)


@pytest.mark.parametrize("pair", ["10.0.0.1:80", "api.search.brave.com:443", "127.0.0.1"])
def test_a_stand_in_is_on_loopback(pair: str) -> None:
    with pytest.raises(ValueError, match="only a loopback"):
        LoopbackJudge([], {"brave": pair})


# ---- the flag


def test_the_flag_names_a_provider_and_a_url_on_loopback() -> None:
    given = ("brave=http://127.0.0.1:9001", "slack=http://localhost:9002/")
    assert _read_origins(*_asked(), given) == {"brave": "127.0.0.1:9001", "slack": "localhost:9002"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("brave",), "'brave' is no provider"),
        (("nobody=http://127.0.0.1:9001",), "'nobody' is no provider"),
        (("brave=",), "is not a URL such as"),
        (("brave=127.0.0.1:9001",), "is not a URL such as"),
        (("brave=https://127.0.0.1:9001",), "is not a URL such as"),
        (("brave=http://10.0.0.1:9001",), "is not a URL such as"),
        (("brave=http://api.search.brave.com:80",), "is not a URL such as"),
        (("brave=http://127.0.0.1",), "is not a URL such as"),
        (("brave=http://127.0.0.1:9001/res",), "is not a URL such as"),
        (("brave=http://k@127.0.0.1:9001",), "is not a URL such as"),
        (("brave=http://127.0.0.1:1", "brave=http://127.0.0.1:2"), "two are given"),
    ],
    ids=str,
)
def test_a_flag_that_is_wrong_says_so(given: tuple[str, ...], told: str) -> None:
    with pytest.raises(click.BadParameter, match=told) as refusal:
        _read_origins(*_asked(), given)
    assert "\n" not in refusal.value.message


def _asked() -> tuple[click.Context, click.Parameter]:
    (flag,) = [it for it in local.params if it.name == "origins"]
    return click.Context(local), flag


def _origin(name: str) -> str:
    scheme, _, rest = ORIGINS[name].partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"
