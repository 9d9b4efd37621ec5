"""What is handed on as a page's URL is read by everybody as the one public host that was judged."""

from __future__ import annotations

import ipaddress
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

import httpx
from hypothesis import example, given, strategies as st

from mesh.kernel.limits import URL_CHARS_MAX
from mesh.security.addresses import judge
from mesh.security.pages import is_page_url, judge_page
from mesh.security.urls import Reason, Refusal, Target, query_of
from tests.property.test_addresses import embeddings, spellings

PLAIN = """http https : // / ? # @ . .. %2e %2F %00 %zz & = [ ] [::1] [::ffff:8.8.8.8] \\ 443 80
8443 localhost goats goats.example a_b xn--bcher-kva bücher faß ﬁ ｇ 。 ． ／ ： ＠ 127.0.0.1
8.8.8.8 0x7f 017 2130706433 é 山 🐐 local internal user:pw + ; , |"""
PIECES = [*PLAIN.split(), *" \t\n\u200b\u200d\u00ad\u202e\ud800"]
URLISH = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)
HOSTS = st.lists(
    st.sampled_from(
        ["goats", "ibex", "bücher", "例え", "a1", "x-y", "example", "de", "127", "0x7f"]
    ),
    min_size=1,
    max_size=5,
).map(".".join)
TAILS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
URLS = st.one_of(
    st.text(max_size=60),
    URLISH,
    URLISH.map("https://".__add__),
    st.builds("{}://{}/{}".format, st.sampled_from(["http", "https"]), HOSTS, TAILS),
)


@given(URLS)
@example("https://goats.example#@127.0.0.1/")
@example("https://goats.example?@127.0.0.1/")
@example("https://[::1]")
@example("http://1.1.1.1")
def test_whatever_the_text_is_it_is_judged_and_what_is_taken_is_public(url: str) -> None:
    is_page_url(url)
    judged = judge_page(url)
    if isinstance(judged, Refusal):
        assert len(judged.detail) < 80
        return
    assert is_page_url(url)
    assert len(judged.url) <= URL_CHARS_MAX
    assert judged.url.isascii()
    assert judged.url.isprintable()
    assert not set(judged.url) & set(" \\#")
    assert judged.port == {"http": 80, "https": 443}[judged.scheme]
    if judged.address is None:
        assert "." in judged.host
        assert not judged.host.endswith((".", ".local", ".internal", ".localhost"))
    else:
        assert judge(judged.address) is None
        assert ipaddress.ip_address(judged.address).is_global


@given(URLS)
def test_what_is_handed_on_is_judged_as_itself(url: str) -> None:
    judged = judge_page(url)
    if isinstance(judged, Target):
        assert judge_page(judged.url) == judged


@given(URLS)
@example("https://bücher.example/é?山#x")
@example("https://[2606:4700::ABCD]:443/")
@example("https://goats.example?x@y:z")
def test_other_readers_find_the_host_that_was_judged(url: str) -> None:
    judged = judge_page(url)
    if isinstance(judged, Refusal):
        return
    first = urlsplit(judged.url)
    assert (first.scheme, first.hostname, first.port) == (judged.scheme, judged.host, None)
    assert (first.username, first.password, first.fragment) == (None, None, "")
    second = httpx.URL(judged.url)
    assert (second.scheme, second.raw_host.decode()) == (judged.scheme, judged.host)
    assert (second.port, second.userinfo, second.fragment) == (None, b"", "")


@given(HOSTS.filter(str.isascii).map("{}.goats.example".format), TAILS)
def test_what_stands_behind_the_host_arrives_byte_for_byte(host: str, tail: str) -> None:
    judged = judge_page(f"https://{host}/{tail}")
    if isinstance(judged, Target):
        sent = tail.partition("#")[0]
        assert unquote_to_bytes(judged.path[1:]) == unquote_to_bytes(sent)


@given(spellings() | embeddings().map("[{}]".format))
def test_no_spelling_of_a_private_address_is_a_page(host: str) -> None:
    judged = judge_page(f"http://{host}/")
    assert isinstance(judged, Refusal)
    assert judged.reason is Reason.ADDRESS


@given(st.ip_addresses(v=4))
def test_an_address_has_one_spelling_that_is_taken_where_it_is_public(
    address: ipaddress.IPv4Address,
) -> None:
    number = int(address)
    for host in (number, hex(number), f"0{number:o}", f"{address}.", f"[::ffff:{address}]"):
        assert isinstance(judge_page(f"https://{host}/"), Refusal)
    public = judge(str(address)) is None
    assert isinstance(judge_page(f"https://{address}/"), Target) is public


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=20)), max_size=4))
def test_a_query_is_read_as_the_parameters_that_it_was_made_of(
    parameters: list[tuple[str, str]],
) -> None:
    made = query_of(parameters)
    assert not set(made) - set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%&="
    )
    assert parse_qsl(made, keep_blank_values=True) == parameters
