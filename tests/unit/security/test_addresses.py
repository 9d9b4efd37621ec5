"""Every address of the worked lists is judged as they say, and so are the edges of the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mesh.security.addresses import judge

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "egress.json").read_text("utf-8"))


@pytest.mark.behaviour("egress:resolved-address")
@pytest.mark.parametrize("address", VECTORS["refused_addresses"])
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert judge(address)


@pytest.mark.parametrize("address", VECTORS["allowed_addresses"])
def test_a_public_address_passes(address: str) -> None:
    assert judge(address) is None


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("100.100.100.200", "shared address space"),
        ("255.255.255.255", "broadcast"),
        ("255.255.255.254", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("2001::1", "embeds an IPv4 address"),
        ("2001:2::1", "protocol assignments"),
        ("2606:4700::100:5efe:808:808", "embeds an IPv4 address"),
        ("2606:4700::300:5efe:808:808", "embeds an IPv4 address"),
        ("64:ff9b:0:0:0:1:808:808", "not global unicast"),
        ("1fff:ffff::1", "not global unicast"),
        ("4000::", "not global unicast"),
    ],
)
def test_the_reason_is_told(address: str, why: str) -> None:
    assert judge(address) == why


@pytest.mark.parametrize(
    "address",
    ["2000::1", "2001:200::1", "2003::1", "3fff:1000::1", "3ffe::1", "2606::5eff:1:1", "11.0.0.0"],
)
def test_the_neighbours_of_what_is_refused_pass(address: str) -> None:
    assert judge(address) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com",
        "127.1",
        "0x7f.0.0.1",
        "010.8.8.8",
        "8.8.8.8 ",
        "8.8.8.8/32",
        "2130706433",
        "fe80::1%eth0",
        "2606:4700::1%1",
        "[2606:4700::1]",
        "８.8.8.8",
        "8.8.8.8\n",
        "::8.8.8.8.8",
    ],
)
def test_what_is_not_an_address_is_refused(text: str) -> None:
    assert judge(text) == "not an address"
