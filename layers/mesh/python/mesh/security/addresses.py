"""Owns the judgement of a single IP address: publicly routable unicast, or why not.

Refuses to ask the standard library what is global: its answer changes between minor versions of
Python. The tables are Mesh's own, from IANA's special-purpose registries as of 2026-11-30 (RFC 6890
and its updates), to be read again once a year. Contract §2.2.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

TABLES_DATED: Final = "2026-11-30"

_REFUSED_V4: Final = tuple(
    (IPv4Network(block), reason)
    for block, reason in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared address space"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud host's own service"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
    )
)

_EMBEDS_V4: Final = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""IPv4-mapped and the well-known translation prefix: judged by the IPv4 address inside."""

_REFUSED_V6: Final = tuple(
    (IPv6Network(block), reason)
    for block, reason in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "embeds an IPv4 address"),
        ("::ffff:0:0:0/96", "embeds an IPv4 address"),
        ("64:ff9b:1::/48", "embeds an IPv4 address"),
        ("100::/64", "discard only"),
        ("2001::/32", "embeds an IPv4 address"),
        ("2001::/23", "protocol assignments"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "embeds an IPv4 address"),
        ("3fff::/20", "documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")


def judge(address: str) -> str | None:
    """Why `address` must not be connected to, in a few words for people; None when it may be.

    `address` is one address in its usual notation, as a resolver gives it. Whatever is not one, an
    IPv6 zone included, is refused.
    """
    parsed = parse_address(address)
    match parsed:
        case None:
            return "not an address"
        case IPv4Address():
            return _judge_v4(parsed)
        case IPv6Address():
            return _judge_v6(parsed)


def parse_address(address: str) -> IPv4Address | IPv6Address | None:
    """`address` read in its usual notation, without a zone; None when it is anything else."""
    if not address.isascii() or "%" in address:
        return None
    try:
        return IPv6Address(address) if ":" in address else IPv4Address(address)
    except AddressValueError:
        return None


def canonical(address: IPv4Address | IPv6Address) -> str:
    """The one spelling that Mesh uses, whatever the version of Python."""
    if isinstance(address, IPv6Address) and address in _EMBEDS_V4[0]:
        return f"::ffff:{_low_v4(address)}"
    return str(address)


def embeds_v4(address: str) -> bool:
    """Whether `address` is an IPv4 address, mapped or translated into IPv6."""
    parsed = parse_address(address)
    return isinstance(parsed, IPv6Address) and any(parsed in network for network in _EMBEDS_V4)


def _judge_v4(address: IPv4Address) -> str | None:
    for network, reason in _REFUSED_V4:
        if address in network:
            return reason
    return None


def _judge_v6(address: IPv6Address) -> str | None:
    if any(address in network for network in _EMBEDS_V4):
        return _judge_v4(_low_v4(address))
    for network, reason in _REFUSED_V6:
        if address in network:
            return reason
    if address not in _GLOBAL_UNICAST:
        return "not global unicast"
    # ISATAP (RFC 5214): the interface id is 0000:5efe or 0200:5efe (whatever the two flag
    # bits), then an IPv4 address; it can stand below any prefix.
    if int(address) >> 32 & 0xFCFF_FFFF == 0x0000_5EFE:
        return "embeds an IPv4 address"
    return None


def _low_v4(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFF_FFFF)
