"""No spelling of a private address passes as something else; no text crashes the reading."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import example, given, strategies as st

from mesh.security.addresses import judge
from mesh.security.urls import Reason, Refusal, Target, judge_url

BLOCKS = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.168.0.0/16 "
    "198.18.0.0/15 224.0.0.0/3"
)
PRIVATE = st.one_of(
    *(
        st.integers(int(network[0]), int(network[-1]))
        for network in map(ipaddress.IPv4Network, BLOCKS.split())
    )
)
NUMBER = st.sampled_from(["{:d}", "0x{:x}", "0x{:X}", "0X{:x}", "0{:o}", "00{:o}", "0x00{:x}"])
DIGITS = st.sampled_from(
    ["0123456789", "０１２３４５６７８９", "⓪①②③④⑤⑥⑦⑧⑨", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗", "𝟶𝟷𝟸𝟹𝟺𝟻𝟼𝟽𝟾𝟿"]
)
DOT = st.sampled_from([".", "。", "．", "｡"])


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """One private IPv4 address in one of the ways that some resolver or browser reads."""
    value = draw(PRIVATE)
    count = draw(st.integers(1, 4))
    leading = [value >> 24, value >> 16 & 255, value >> 8 & 255][: count - 1]
    numbers = [*leading, value & (1 << 8 * (5 - count)) - 1]
    text = draw(DOT).join(draw(NUMBER).format(number) for number in numbers)
    text = text.translate(str.maketrans("0123456789", draw(DIGITS)))
    if draw(st.booleans()):
        text = text.replace("x", "ｘ")
    return text + draw(st.sampled_from(["", ".", "。"]))


@st.composite
def embeddings(draw: st.DrawFn) -> str:
    """One private IPv4 address inside an IPv6 address, in one of the notations of that."""
    low = draw(PRIVATE)
    high = draw(
        st.sampled_from([0, 0xFFFF << 32, 0xFFFF << 48, 0x64FF9B << 96, 0x64FF9B0001 << 80])
    )
    address = ipaddress.IPv6Address(high | low)
    dotted = f"{ipaddress.IPv6Address(high | 1 << 31).exploded[:30]}{ipaddress.IPv4Address(low)}"
    return draw(st.sampled_from([str(address), address.exploded, address.exploded.upper(), dotted]))


def refused_for_its_address(url: str) -> bool:
    judged = judge_url(url)
    return isinstance(judged, Refusal) and judged.reason is Reason.ADDRESS


@pytest.mark.behaviour("egress:resolved-address")
@given(spellings())
@example("①②⑦.⓪.⓪.①")
def test_no_spelling_of_a_private_address_passes(host: str) -> None:
    assert refused_for_its_address(f"https://{host}/")


@given(embeddings())
def test_no_ipv6_address_around_a_private_one_passes(host: str) -> None:
    assert refused_for_its_address(f"https://[{host}]/")


@given(st.integers(0, 2**32 - 1))
def test_a_public_address_of_ipv4_is_public_to_the_standard_library_too(value: int) -> None:
    address = ipaddress.IPv4Address(value)
    if judge(str(address)) is None:
        assert address.is_global
        assert not address.is_multicast


@given(st.integers(0, 2**128 - 1) | st.integers(0x2 << 124, (0x4 << 124) - 1))
def test_a_public_address_of_ipv6_is_global_unicast(value: int) -> None:
    address = ipaddress.IPv6Address(value)
    if judge(str(address)) is None:
        inner = address.ipv4_mapped or (value >> 32 == 0x64FF9B << 64)
        assert inner or address in ipaddress.IPv6Network("2000::/3")


@given(st.text(max_size=80) | st.text(max_size=60).map(lambda text: "https://" + text))
def test_no_text_crashes_the_judgement_and_what_passes_is_plain(url: str) -> None:
    judged = judge_url(url)
    if isinstance(judged, Target):
        assert judged.scheme == "https"
        assert judged.port == 443
        assert judged.path.isascii()
        assert judged.path.isprintable()
        assert " " not in judged.path
        assert set(judged.host) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.:")
        # What was read is read the same again: no second meaning is left in it.
        again = judge_url(f"https://{judged.authority}{judged.path}")
        assert again == judged
