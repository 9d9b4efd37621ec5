"""A page's URL is taken only where every reader finds the same public host in it, and it is handed
on in one spelling."""

from __future__ import annotations

import pytest

from mesh.kernel.limits import URL_CHARS_MAX
from mesh.security.pages import is_page_url, judge_page
from mesh.security.urls import Reason, Refusal, Target, query_of

NAME = "https://goats.example/"
V6 = "https://[2001:4860:4860::8888]/"

LOCAL = """
localhost LOCALHOST localhost. \uff4cocalhost goats.localhost localhost.localdomain printer
printer. wpad ip6-localhost example com \u4f8b\u3048 router.home nas.lan mail.corp
www.intranet db.private goats.local goats.LOCAL. instance-data.ec2.internal
metadata.google.internal host.docker.internal a.svc.cluster.local home.arpa
1.2.3.4.home.arpa goats.test goats\u3002local 1e3 0b1 0o17
"""
AMBIGUOUS = """
2130706433 134744072 0 0x7f000001 0x08080808 017700000001 01002004010 127.1 8.8 1.1.1
8.8.2056 0x8.0x8.0x8.0x8 0X8.8.8.8 010.8.8.8 8.8.8.010 0x.8.8.8 8.8.8.0x 8.8.8.8. 127.0.0.1.
\uff18.8.8.8 \u2467.8.8.8 \U0001d7ea.8.8.8 8\u30028\uff0e8\uff618 8.8.8.8\u3002
\uff10\uff58\uff17f.1
"""
NUMBERS = """
256.8.8.8 8.8.8.256 8.8.8.8.8 8.8.8.08 08.8.8.8 8.8.8.8.08 4294967296 0x100000000 8..8 goats.8
goats.0x8 8.8.8.8.0x8 8.8.8.\u0668 -8.8.8.8 8.8.8.-8
"""
RESERVED = """
127.0.0.1 127.255.255.254 0.0.0.0 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1
169.254.169.254 169.254.170.2 100.100.100.200 100.64.0.1 168.63.129.16 192.0.0.192 192.0.2.1
198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 [::] [::1] [fe80::1]
[fec0::1] [fc00::1] [fd00:ec2::254] [ff02::1] [2001:db8::1] [3fff::1] [100::1] [2002:808:808::1]
[2001:0:808:808::1] [64:ff9b:1::808:808] [::8.8.8.8] [::ffff:0:8.8.8.8]
[2606:4700::5efe:8.8.8.8] [4000::1]
"""
WITHIN = """
[::ffff:8.8.8.8] [::ffff:808:808] [::FFFF:127.0.0.1] [0:0:0:0:0:ffff:a9fe:a9fe]
[64:ff9b::8.8.8.8] [64:ff9b::a9fe:a9fe]
"""


def reason(url: str) -> Reason | None:
    judged = judge_page(url)
    return judged.reason if isinstance(judged, Refusal) else None


# ---- what is taken, and what it becomes


@pytest.mark.behaviour("fetch:url")
@pytest.mark.parametrize(
    ("url", "becomes"),
    [
        ("https://goats.example", NAME),
        ("http://goats.example", "http://goats.example/"),
        ("HTTP://GOATS.EXAMPLE/Q?A=B", "http://goats.example/Q?A=B"),
        ("https://goats.example?a=b", "https://goats.example/?a=b"),
        ("https://goats.example?", "https://goats.example/?"),
        ("https://goats.example/a//b/./../c", "https://goats.example/a//b/./../c"),
        ("https://goats.example/@b", "https://goats.example/@b"),
        ("https://goats.example/?u=http://u:p@localhost:8/", None),
        ("https://goats.example/|`{}<>\"'^", None),
        # a port that is the scheme's own, however it is written, is none
        ("https://goats.example:443/x", "https://goats.example/x"),
        ("http://goats.example:80/x", "http://goats.example/x"),
        ("https://goats.example:/x", "https://goats.example/x"),
        ("https://goats.example:00443/x", "https://goats.example/x"),
        # one dot at the end is the root's
        ("https://goats.example./x", "https://goats.example/x"),
        ("https://goats.example.:443/x", "https://goats.example/x"),
        # other spellings of a name
        ("https://Bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://bu\u0308cher.example/", "https://xn--bcher-kva.example/"),
        ("https://xn--bcher-kva.example/", None),
        ("https://faß.example/", "https://xn--fa-hia.example/"),
        ("https://ｇｏａｔｓ．example/", NAME),
        ("https://goats。example/", NAME),
        ("https://\ufb01nch.example/", "https://finch.example/"),
        ("https://\u212aid.example/", "https://kid.example/"),  # the sign for kelvin
        ("https://go\u00adats.example/", NAME),
        ("https://例え.テスト.example/", "https://xn--r8jz45g.xn--zckzah.example/"),
        ("https://1.goats/", None),
        ("https://0x.goats/", None),
        ("https://" + "a" * 63 + ".example/", None),
        # what is not ASCII behind the host is sent as bytes of UTF-8
        ("https://goats.example/é?ü=山", "https://goats.example/%C3%A9?%C3%BC=%E5%B1%B1"),
        ("https://goats.example/\U0001f410", "https://goats.example/%F0%9F%90%90"),
        ("https://goats.example/e\u0301", "https://goats.example/e%CC%81"),
        ("https://goats.example/\u200b\u202e", "https://goats.example/%E2%80%8B%E2%80%AE"),
        # what is encoded already stays as it is, whatever it is
        ("https://goats.example/%c3%A9%2e%2E%2f%00%0d%0a%25", None),
        ("https://goats.example/%?%zz&%u0041", None),
        # no server sees a fragment
        ("https://goats.example/#", NAME),
        ("https://goats.example#x", NAME),
        ("https://goats.example/a?b#c?d#e", "https://goats.example/a?b"),
        ("https://goats.example#@localhost/", NAME),
        ("https://goats.example/#:~:text=secret", NAME),
        # addresses as they are usually written
        ("https://8.8.8.8/", None),
        ("https://[2001:4860:4860::8888]:443", V6),
        ("https://[2001:4860:4860:0:0:0:0:8888]/", V6),
        ("https://[2001:4860:4860::0:8888]/", V6),
        ("https://[2606:4700::ABCD]/", "https://[2606:4700::abcd]/"),
    ],
    ids=ascii,
)
def test_a_public_page_is_taken_and_handed_on_in_one_spelling(
    url: str, becomes: str | None
) -> None:
    judged = judge_page(url)
    assert isinstance(judged, Target)
    assert judged.url == (becomes or url)


# ---- what is refused


@pytest.mark.behaviour("fetch:url-refusals", "fetch:url")
@pytest.mark.parametrize(
    ("expected", "urls"),
    [
        (
            Reason.SCHEME,
            """ftp://goats.example/ ws://goats.example/ file:///etc/passwd data:text/html,x
            javascript:alert(1) view-source:https://goats.example blob:https://goats.example/
            about:blank //goats.example/ /etc/passwd goats.example goats.example:443/x
            httpss://goats.example/ ht-tp://goats.example/ ://goats.example/ http;//goats.example/
            \uff48ttps://goats.example/ ftp://user:pw@localhost:21/""",
        ),
        (
            Reason.USERINFO,
            """https://user@goats.example/ https://user:pw@goats.example/ https://:pw@goats.example
            https://@goats.example/ https://:@goats.example/ https://a@b@goats.example/
            https://goats.example@localhost/ https://goats.example:443@127.0.0.1:80/
            https://goats.example%2F@127.0.0.1/ https://u;x=y@goats.example/""",
        ),
        (
            Reason.PORT,
            """https://goats.example:80/ http://goats.example:443/ https://goats.example:8443/
            https://goats.example:0/ https://goats.example:65535/ https://8.8.8.8:22/
            https://[2001:4860:4860::8888]:8443/ https://127.0.0.1:8443/""",
        ),
        (
            Reason.MALFORMED,
            """https: https:/ https:// https:goats.example https:/goats.example https:///goats.example
            https://? https://# https://:443/ https://goats.example:65536/
            https://goats.example:443443/ https://goats.example:x/ https://goats.example:-443/
            https://goats.example:+443/ https://goats.example:\u0664\u0664\u0663/
            https://goats.example:443:443/ https://goa[ts.example/ https://goats].example/
            https://[2001:4860:4860::8888/ https://[2001:4860:4860::8888]x/ https://2001:db8::1/
            https://goats.example\\@evil.example/ https:\\\\goats.example/
            https://goats.example/a\\b""",
        ),
        (
            Reason.HOST,
            """https://goats.example../ https://.goats.example/ https://goats..example/ https://./
            https://goats_of.example/ https://-goats.example/ https://goats-.example/
            https://ex%61mple.example/ https://%6c%6fcalhost/ https://%31%32%37.0.0.1/
            https://goats.example;x/ https://goats.example,x/ https://goats.example|x/
            https://goats.example\uff1a8443/ https://goats.example\uff0fevil/
            https://goats.example\uff1f/ https://goats.example\uff20localhost/ https://\u2100.example/
            https://\u202egoats.example/
            https://go\u200dats.example/ https://xn--a/ https://xn--.example/ https://xn--0.example/
            https://a.xn--local-/ https://xn--127-.0.0.1/ https://[]/ https://[v1.x]/ https://[::1%25lo]/
            https://[fe80::1%eth0]/ https://[127.0.0.1]/ https://[goats.example]/
            https://a\u0661.example/""",
        ),
    ],
    ids=lambda value: value.value if isinstance(value, Reason) else "",
)
def test_what_is_no_public_page_is_refused(expected: Reason, urls: str) -> None:
    assert {url: reason(url) for url in urls.split()} == dict.fromkeys(urls.split(), expected)


@pytest.mark.behaviour("fetch:url-refusals")
@pytest.mark.parametrize(
    "host",
    LOCAL.split(),
    ids=ascii,
)
def test_a_host_that_is_local_by_its_name_is_refused(host: str) -> None:
    for url in (f"https://{host}/", f"http://{host}:80/x?y#z"):
        judged = judge_page(url)
        assert judged == Refusal(Reason.HOST, "the host is a local one")


@pytest.mark.behaviour("fetch:url-refusals")
@pytest.mark.parametrize(
    "host",
    AMBIGUOUS.split(),
    ids=ascii,
)
def test_a_number_that_only_some_read_as_an_address_is_ambiguous(host: str) -> None:
    judged = judge_page(f"https://{host}/")
    assert isinstance(judged, Refusal)
    assert judged.reason is Reason.ADDRESS
    assert "ambiguous" in judged.detail


@pytest.mark.behaviour("fetch:url-refusals")
@pytest.mark.parametrize(
    "host",
    NUMBERS.split(),
    ids=ascii,
)
def test_a_host_that_ends_in_a_number_and_is_no_address_is_refused(host: str) -> None:
    assert reason(f"https://{host}/") is Reason.HOST


@pytest.mark.behaviour("fetch:url-refusals")
@pytest.mark.parametrize(
    "host",
    RESERVED.split(),
)
def test_an_address_that_is_private_or_reserved_is_refused(host: str) -> None:
    judged = judge_page(f"http://{host}/latest/meta-data/")
    assert judged == Refusal(Reason.ADDRESS, "the address is private or reserved")


@pytest.mark.behaviour("fetch:url-refusals")
@pytest.mark.parametrize(
    "host",
    WITHIN.split(),
)
def test_an_address_within_another_is_refused_whatever_it_is(host: str) -> None:
    judged = judge_page(f"https://{host}/")
    assert isinstance(judged, Refusal)
    assert judged.reason is Reason.ADDRESS


@pytest.mark.behaviour("fetch:url-refusals")
@pytest.mark.parametrize(
    "character",
    [chr(point) for point in (*range(0x21), *range(0x7F, 0xA1))]
    + list("\\\u1680\u2003\u2028\u2029\u202f\u205f\u3000\ud800\udfff"),
    ids=ascii,
)
def test_white_space_controls_and_half_characters_stand_nowhere(character: str) -> None:
    for url in (
        f"{character}https://goats.example/",
        f"https{character}://goats.example/",
        f"https://goa{character}ts.example/",
        f"https://goats.example:443{character}/",
        f"https://goats.example/a{character}b",
        f"https://goats.example/?a{character}b",
        f"https://goats.example/#a{character}b",
        f"https://goats.example/{character}",
    ):
        assert reason(url) is Reason.MALFORMED, ascii(url)


@pytest.mark.behaviour("fetch:url-refusals")
def test_the_first_thing_that_is_wrong_is_what_is_told() -> None:
    assert reason("ftp://user@localhost:8443/ x") is Reason.MALFORMED
    assert reason("ftp://user@localhost:8443/") is Reason.SCHEME
    assert reason("https://user@localhost:8443/") is Reason.USERINFO
    assert reason("https://a_b:8443/") is Reason.HOST
    assert reason("https://localhost:8443/") is Reason.PORT
    assert reason("https://2130706433:8443/") is Reason.PORT
    assert reason("https://localhost/") is Reason.HOST


def test_a_refusal_repeats_nothing_of_the_url() -> None:
    for url in (
        "https://hunter2 x/",
        "hunter2://hunter2/",
        "https://hunter2:hunter2@goats.example/",
        "https://hunter2/",
        "https://hunter2_x.example/hunter2",
        "https://hunter2.example:8443/",
        "https://127.0.0.1/hunter2",
        "https://0x7f.1/hunter2",
        "https://goats.example/hunter2" + "é" * 1000,
    ):
        judged = judge_page(url)
        assert isinstance(judged, Refusal), url
        assert "hunter2" not in judged.detail
        assert "127" not in judged.detail
        assert "8443" not in judged.detail


# ---- how long


def _padded(url: str, length: int) -> str:
    return url + "x" * (length - len(url))


@pytest.mark.behaviour("web:bounded")
def test_a_url_is_as_long_as_it_may_be_before_and_after_it_is_encoded() -> None:
    longest = _padded(NAME, URL_CHARS_MAX)
    assert isinstance(judge_page(longest), Target)
    assert reason(longest + "x") is Reason.MALFORMED
    # the slash that is put in counts
    assert reason(_padded("https://goats.example?", URL_CHARS_MAX)) is Reason.MALFORMED
    assert isinstance(judge_page(_padded("https://goats.example?", URL_CHARS_MAX - 1)), Target)
    # as do the bytes that a character becomes
    most = (URL_CHARS_MAX - len(NAME)) // len("%C3%A9")
    assert isinstance(judge_page(NAME + "é" * most), Target)
    assert judge_page(NAME + "é" * (most + 1)) == Refusal(
        Reason.MALFORMED, "too long once it is encoded"
    )
    # what is not sent counts as it is read, and not as it would be sent
    assert isinstance(judge_page(_padded(NAME + "#", URL_CHARS_MAX)), Target)
    assert isinstance(judge_page(NAME + "#" + "é" * 1500), Target)
    assert reason(_padded(NAME + "#", URL_CHARS_MAX + 1)) is Reason.MALFORMED


def test_a_name_is_as_long_as_names_are() -> None:
    label = "a" * 63
    assert isinstance(judge_page(f"https://{label}.example/"), Target)
    assert reason(f"https://{label}a.example/") is Reason.HOST
    longest = ".".join([label, label, label, "a" * 53, "example"])
    assert len(longest) == 253
    assert isinstance(judge_page(f"https://{longest}/"), Target)
    assert isinstance(judge_page(f"https://{longest}./"), Target)
    assert reason(f"https://a{longest}/") is Reason.HOST


# ---- what a search may have found


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("https://goats.example/", True),
        ("http://user@goats.example:8443/#x", True),  # it is shown, and opened by nobody
        ("http://10.0.0.1/", True),
        ("https://山羊.example/é", True),
        ("", False),
        ("goats.example", False),
        ("ftp://goats.example/", False),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("https://", False),
        ("https:///x", False),
        ("https://a b/", False),
        ("https://goats.example/\n[[", False),
        ("https://goats.example/\ud800", False),
        ("https://goats.example/" + "x" * URL_CHARS_MAX, False),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_a_result_is_something_on_the_web(url: str, taken: bool) -> None:
    assert is_page_url(url) is taken


# ---- queries


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("a b", "a%20b"),
        ("a+b", "a%2Bb"),
        ("a&b=c#d?e/f:g;h,i%20", "a%26b%3Dc%23d%3Fe%2Ff%3Ag%3Bh%2Ci%2520"),
        ("é山\U0001f410", "%C3%A9%E5%B1%B1%F0%9F%90%90"),
        ("a\r\nX: y\x00", "a%0D%0AX%3A%20y%00"),
        ("-._~", "-._~"),
        ("", ""),
    ],
    ids=ascii,
)
def test_a_parameter_is_encoded_whole(value: str, encoded: str) -> None:
    assert query_of([("q", value), ("q", "2")]) == f"q={encoded}&q=2"


def test_half_a_character_is_no_parameter() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        query_of([("q", "a\ud800")])
