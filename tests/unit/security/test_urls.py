"""URLs and allowlists are judged as worked, each with the first reason that applies."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from mesh.kernel.errors import Invalid
from mesh.security.addresses import judge
from mesh.security.urls import Allowlist, Parts, Reason, Refusal, Target, display, judge_url, parse

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "egress.json").read_text("utf-8"))


def reason(url: str, *allow: Allowlist, own: frozenset[str] = frozenset()) -> Reason | None:
    judged = judge_url(url, allow=allow, own_hosts=own)
    return judged.reason if isinstance(judged, Refusal) else None


@pytest.mark.behaviour("egress:https-only")
@pytest.mark.parametrize("case", VECTORS["urls"], ids=lambda case: ascii(case["url"]))
def test_a_url_is_judged_as_worked(case: dict[str, Any]) -> None:
    judged = judge_url(case["url"])
    match case["judgement"]:
        case "resolve":
            assert isinstance(judged, Target)
            assert (judged.host, judged.port) == (case["host"], case["port"])
            assert judged.address is None
        case "refused":
            assert isinstance(judged, Refusal)
            assert judged.reason == case["reason"]
        case "address":
            parts = parse(case["url"])
            assert isinstance(parts, Parts)
            assert parts.address == case["address"]
            refused = judge(case["address"]) is not None
            assert reason(case["url"]) == (Reason.ADDRESS if refused else None)


@pytest.mark.behaviour("egress:install-allowlist")
@pytest.mark.parametrize("case", VECTORS["allowlist"], ids=str)
def test_an_allowlist_passes_what_is_worked(case: dict[str, Any]) -> None:
    allow = Allowlist.parse(case["entries"])
    assert allow.allows(case["host"], case["port"]) is case["passes"]
    url = f"https://{case['host']}:{case['port']}/"
    assert isinstance(judge_url(url, allow=[allow]), Target) is case["passes"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://user@example.com:8443/#x", Reason.SCHEME),
        ("https://user@localhost:8443/#x", Reason.USERINFO),
        ("https://localhost:8443/#x", Reason.FRAGMENT),
        ("https://localhost:8443/", Reason.HOST),
        ("https://127.0.0.1:8443/", Reason.PORT),
        ("https://127.0.0.1/", Reason.ADDRESS),
        ("http://example.com:99999/", Reason.MALFORMED),
        ("file:///etc/passwd", Reason.SCHEME),
        ("javascript:alert(1)", Reason.SCHEME),
        ("https://example.com/#", Reason.FRAGMENT),
        ("https://example.com#@127.0.0.1/", Reason.FRAGMENT),
        ("https://example.com?@127.0.0.1/", None),
        ("HTTPS://example.com/", None),
        ("https://a:b:c/", Reason.MALFORMED),
        ("https://:443/", Reason.MALFORMED),
        ("https://exa[mple.com/", Reason.MALFORMED),
        ("https://[::1]x/", Reason.MALFORMED),
        ("https://[]/", Reason.HOST),
        ("https://[v1.x]/", Reason.HOST),
        ("https://example.com：443/", Reason.HOST),
        ("https://example.com／evil/", Reason.HOST),
        ("https://x.0x/", Reason.HOST),
        ("https://1.2.3.08/", Reason.HOST),
        ("https://4294967296/", Reason.HOST),
        ("https://127.0.0.1./", Reason.ADDRESS),
        ("https://127.0.0.0x1/", Reason.ADDRESS),
        ("https://example.com/\u2028", Reason.MALFORMED),
        ("https://example.com/\ud800", Reason.MALFORMED),
        ("https://\u00ad/", Reason.HOST),
        ("https://exam\u00adple.com/", None),
        ("https://" + "a." * 200 + "example/", Reason.HOST),
        ("https://example.com/" + "a" * 2048, Reason.MALFORMED),
    ],
    ids=ascii,
)
def test_the_first_reason_is_given(url: str, expected: Reason | None) -> None:
    assert reason(url) == expected


@pytest.mark.parametrize(
    "url", ["https://ingress.mesh.example/x", "https://INGRESS.mesh.example./"]
)
def test_meshs_own_hosts_are_refused_by_name(url: str) -> None:
    assert reason(url, own=frozenset({"ingress.mesh.example"})) is Reason.HOST
    assert reason(url) is None


@pytest.mark.behaviour("egress:install-allowlist")
def test_both_lists_must_pass_when_both_are_set() -> None:
    install = Allowlist.parse(["a.example.com", "b.example.com:8443"])
    instance = Allowlist.parse(["*.example.com", "c.example.com", "*.example.com:8443"])
    empty = Allowlist()
    assert reason("https://a.example.com/", install, instance) is None
    assert reason("https://b.example.com:8443/", install, instance) is None
    assert reason("https://c.example.com/", install, instance) is Reason.ALLOWLIST
    assert reason("https://c.example.com/", empty, instance) is None
    assert reason("https://b.example.com/", install, empty) is Reason.ALLOWLIST
    assert reason("https://b.example.com:8443/", install, empty) is None
    assert reason("https://b.example.com:8444/", install, instance) is Reason.PORT
    assert reason("https://a.example.com:8443/", install, instance) is Reason.ALLOWLIST


def test_an_allowlist_never_lets_a_private_address_through() -> None:
    allow = Allowlist.parse(["10.0.0.1", "[::1]:8443", "127.0.0.1"])
    assert reason("https://10.0.0.1/", allow) is Reason.ADDRESS
    assert reason("https://[::1]:8443/", allow) is Reason.ADDRESS
    assert reason("https://0x7f000001/", allow) is Reason.ADDRESS


def test_an_entry_is_read_like_a_host() -> None:
    allow = Allowlist.parse(["Bücher.example", "1.1.1.1", "[2606:4700:4700::1111]:8443"])
    assert reason("https://xn--bcher-kva.example/", allow) is None
    assert reason("https://16843009/", allow) is None
    assert reason("https://[2606:4700:4700:0::1111]:8443/", allow) is None


def test_entries_that_are_none_are_all_named() -> None:
    bad = ["", "*", "*.", "https://example.com", "example.com:", "a b", "example.com:0", "u@x.com"]
    bad += ["example.com:65536", "*.127.0.0.1", "a.*.com", "example.com/x", "[::1"]
    with pytest.raises(Invalid) as failure:
        Allowlist.parse(["good.example", *bad])
    assert failure.value.code == "invalid_request"
    named = [field.path for field in failure.value.fields]
    assert named == [str(index + 1) for index in range(len(bad))]


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("https://example.com", "example.com", "/"),
        ("https://example.com?a=b", "example.com", "/?a=b"),
        ("https://example.com:443/x?y=%20", "example.com", "/x?y=%20"),
        ("https://1.1/é", "1.0.0.1", "/%C3%A9"),
        ("https://[2606:4700:4700::1111]/", "[2606:4700:4700::1111]", "/"),
    ],
)
def test_a_target_says_what_is_requested(url: str, authority: str, path: str) -> None:
    target = judge_url(url)
    assert isinstance(target, Target)
    assert (target.authority, target.path) == (authority, path)


def test_a_port_that_is_not_the_schemes_own_is_in_the_authority() -> None:
    target = judge_url("https://example.com:8443/", allow=[Allowlist.parse(["example.com:8443"])])
    assert isinstance(target, Target)
    assert target.authority == "example.com:8443"


def test_a_url_is_shown_without_what_may_be_secret() -> None:
    url = "https://Hooks.example.com/T0/B0/xyz?token=abc"
    mark = hashlib.sha256(url.encode()).hexdigest()[:8]
    assert display(url) == f"https://hooks.example.com/… {mark}"
    assert display("https://user:pw@h.example/").startswith("https://h.example/… ")
    assert display("not a url at all").startswith("… ")
    assert display("https://a_b/secret").startswith("… ")


def test_a_refusal_names_no_path() -> None:
    for url in ("http://example.com/T0KEN", "https://example.com:1/T0KEN", "https://127.1/T0KEN"):
        judged = judge_url(url)
        assert isinstance(judged, Refusal)
        assert "T0KEN" not in judged.detail
