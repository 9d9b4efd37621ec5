"""Owns the reading of URLs: the only place that takes one apart, and the judgement of its form.

Refuses every URL that two readers could understand differently, and says why in one word, the first
that applies in the order of `Reason`. Contract §2.2; hosts by UTS 46 (non-transitional, STD3),
numbers in hosts as the WHATWG URL standard reads them, so that no spelling of an address passes as
a name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Set
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import quote, urlencode

import idna

from mesh.kernel.errors import FieldProblem, Invalid
from mesh.kernel.limits import URL_CHARS_MAX
from mesh.security.addresses import canonical, judge, parse_address

HTTPS_PORT: Final = 443
DEFAULT_PORTS: Final = {"https": HTTPS_PORT, "http": 80}

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_AUTHORITY_END = re.compile(r"[/?#]")
_PORT = re.compile(r"[0-9]{0,5}\Z")
_HOST_CHARS_MAX: Final = 253


class Reason(StrEnum):
    """Why a URL is refused, in the order in which they are looked for."""

    MALFORMED = "malformed"
    SCHEME = "scheme"
    USERINFO = "userinfo"
    FRAGMENT = "fragment"
    HOST = "host"
    PORT = "port"
    ALLOWLIST = "allowlist"
    ADDRESS = "address"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A URL or an address that must not be called. Names host, port or address, never a path."""

    reason: Reason
    detail: str
    """For people: what is wrong, such as `port 8443 is on no allowlist`."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that may be called, taken apart once."""

    scheme: str
    host: str
    """ASCII, lower case, no trailing dot; an address in its canonical spelling, no brackets."""
    port: int
    path: str
    """Path and query as they are requested: never empty, printable ASCII."""
    address: str | None
    """`host` once more when it is an address: then nothing is to be resolved."""

    @property
    def authority(self) -> str:
        """What the Host header says: the port only when it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The target in its one spelling: whoever reads this finds the host that was judged."""
        return f"{self.scheme}://{self.authority}{self.path}"


@dataclass(frozen=True, slots=True)
class Parts:
    """A URL that is not malformed, not judged any further."""

    scheme: str
    userinfo: bool
    fragment: bool
    host: str | None
    """As in `Target`; None when the host as written cannot be one."""
    port: int | None
    path: str
    address: str | None
    plain: bool
    """Whether an address is spelled as an address, and not as a number or a name that comes to
    one; true of names."""


@dataclass(frozen=True, slots=True)
class _Entry:
    host: str
    port: int
    below: bool
    """Whether the entry was `*.host`: one or more labels below it, not itself."""

    def matches(self, host: str, port: int) -> bool:
        if port != self.port:
            return False
        return host.endswith("." + self.host) if self.below else host == self.host


@dataclass(frozen=True, slots=True)
class Allowlist:
    """Hosts that may be called; when empty, any public host on port 443."""

    entries: tuple[_Entry, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Allowlist:
        """Entries are `host`, `host:port`, `*.host` or `*.host:port`; without a port, 443.

        Raises Invalid `invalid_request`, with one problem for each entry that is none of these, its
        path the entry's index.
        """
        parsed, problems = [], []
        for index, text in enumerate(entries):
            entry = _parse_entry(text)
            if entry is None:
                problems.append(FieldProblem(str(index), "not host, host:port or *.host[:port]"))
            else:
                parsed.append(entry)
        if problems:
            raise Invalid("invalid_request", "the allowlist is malformed", tuple(problems))
        return cls(tuple(parsed))

    def allows(self, host: str, port: int) -> bool:
        """Whether this list lets `host` (as in `Target`) be called on `port`."""
        if not self.entries:
            return port == HTTPS_PORT
        return any(entry.matches(host, port) for entry in self.entries)

    def names_port(self, port: int) -> bool:
        """Whether an entry of this list is for `port`."""
        return any(entry.port == port for entry in self.entries)


def judge_url(
    url: str,
    *,
    own_hosts: Set[str] = frozenset(),
    allow: Iterable[Allowlist] = (),
    chars_max: int = URL_CHARS_MAX,
) -> Target | Refusal:
    """What `url` leads to, or the first reason against calling it.

    `own_hosts` are Mesh's own, as in `Target`. `allow` holds the install's list and the instance's:
    every one that is not empty must pass. An address in the URL is judged here; a name is judged
    again by what it resolves to, before each call. This is the judgement both when a URL is saved
    and when it is called.
    """
    parts = parse(url, chars_max)
    if isinstance(parts, Refusal):
        return parts
    if parts.scheme != "https":
        return Refusal(Reason.SCHEME, "only https is called")
    refusal = judge_parts(parts)
    if refusal is not None:
        return refusal
    target = target_of(parts)
    if target is None or is_local_name(target.host) or target.host in own_hosts:
        return Refusal(Reason.HOST, "this host is not called")
    refusal = judge_allowed(target, allow)
    if refusal is not None:
        return refusal
    if target.address is not None and (why := judge(target.address)) is not None:
        return Refusal(Reason.ADDRESS, f"{target.address} is refused: {why}")
    return target


def query_of(parameters: Iterable[tuple[str, str]]) -> str:
    """A query of these parameters, percent-encoded; raises ValueError for half a surrogate pair."""
    return urlencode(list(parameters), quote_via=quote, safe="")


def judge_parts(parts: Parts) -> Refusal | None:
    """The reasons that lie in the text alone, after the scheme: userinfo, fragment, host."""
    if parts.userinfo:
        return Refusal(Reason.USERINFO, "a user or password in the URL")
    if parts.fragment:
        return Refusal(Reason.FRAGMENT, "a fragment in the URL")
    if parts.host is None:
        return Refusal(Reason.HOST, "not a host name or an address")
    return None


def judge_allowed(target: Target, allow: Iterable[Allowlist]) -> Refusal | None:
    """The port and the lists: both must pass when both are set."""
    lists = [entry for entry in allow if entry.entries]
    if target.port != HTTPS_PORT and not any(entry.names_port(target.port) for entry in lists):
        return Refusal(Reason.PORT, f"port {target.port} is on no allowlist")
    if not all(entry.allows(target.host, target.port) for entry in lists):
        return Refusal(Reason.ALLOWLIST, f"{target.authority} is not on the allowlist")
    return None


def target_of(parts: Parts) -> Target | None:
    """The target of parts whose host could be read; None when it could not."""
    port = DEFAULT_PORTS.get(parts.scheme) if parts.port is None else parts.port
    if parts.host is None or port is None:
        return None
    return Target(parts.scheme, parts.host, port, parts.path, parts.address)


def is_local_name(host: str) -> bool:
    """Whether `host` is `localhost` or below it (RFC 6761)."""
    return host == "localhost" or host.endswith(".localhost")


def parse(url: str, chars_max: int = URL_CHARS_MAX) -> Parts | Refusal:
    """`url` taken apart; refused only when it is malformed, or has no scheme at all."""
    if not url or len(url) > chars_max or any(map(_is_unsafe, url)):
        return Refusal(Reason.MALFORMED, "empty, too long, or with a space or control character")
    match = _SCHEME.match(url)
    scheme = match[1].lower() if match else ""
    rest = url[match.end() :] if match else url
    web = scheme in DEFAULT_PORTS
    if not rest.startswith("//"):
        if web:
            return Refusal(Reason.MALFORMED, "no // after the scheme")
        return Refusal(Reason.SCHEME, "only https is called")

    end = _AUTHORITY_END.search(rest, 2)
    authority = rest[2 : end.start()] if end else rest[2:]
    tail, hash_, _ = (rest[end.start() :] if end else "").partition("#")
    before, at, after = authority.rpartition("@")
    split = _split_port(after)
    if split is None or (web and not split[0]):
        return Refusal(Reason.MALFORMED, "no host, or a port that is no number")
    host, port = split
    address, name = _read_host(host)
    return Parts(
        scheme=scheme,
        userinfo=bool(before or at),
        fragment=bool(hash_),
        host=address or name,
        port=port,
        path=_request_path(tail),
        address=address,
        plain=address is None or ":" in address or host == address,
    )


def display(url: str) -> str:
    """How a URL that may itself be a secret is shown: scheme, host and 8 hex digits of its hash."""
    mark = hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    parts = parse(url)
    target = None if isinstance(parts, Refusal) else target_of(parts)
    return f"… {mark}" if target is None else f"{target.scheme}://{target.authority}/… {mark}"


def _is_unsafe(char: str) -> bool:
    """Controls, white space of any script, back-slashes and lone surrogates."""
    point = ord(char)
    return (
        point <= 0x20
        or 0x7F <= point <= 0x9F
        or char == "\\"
        or 0xD800 <= point <= 0xDFFF
        or (point > 0x9F and char.isspace())
    )


def _split_port(text: str) -> tuple[str, int | None] | None:
    """Host (brackets kept) and port of an authority without its userinfo; None when malformed."""
    if text.startswith("["):
        host, bracket, port = text.partition("]")
        host += bracket
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port[1:]
    else:
        host, _, port = text.partition(":")
    if "[" in host[1:] or "]" in host[:-1] or _PORT.match(port) is None:
        return None
    number = int(port) if port else None
    return None if number is not None and number > 65_535 else (host, number)


def _read_host(host: str) -> tuple[str | None, str | None]:
    """(address, name) of a host as written: one of the two, or neither."""
    if host.startswith("["):
        inner = host[1:-1]
        address = parse_address(inner) if host.endswith("]") else None
        return (canonical(address) if isinstance(address, IPv6Address) else None), None
    name = _ascii_name(host)
    if name is None:
        return None, None
    labels = name.split(".")
    if not _is_number(labels[-1]):
        return None, name
    number = _read_v4(labels)
    return (None if number is None else str(IPv4Address(number))), None


def _ascii_name(host: str) -> str | None:
    """`host` by UTS 46, lower-case, one trailing dot dropped; None when it is no host name."""
    try:
        name = idna.encode(host, uts46=True, std3_rules=True, transitional=False).decode("ascii")
    except UnicodeError:  # idna.IDNAError is one
        return None
    name = name.removesuffix(".").lower()
    return name if 0 < len(name) <= _HOST_CHARS_MAX else None


def _is_number(label: str) -> bool:
    """Whether a last label makes the whole host an IPv4 address or nothing (WHATWG URL)."""
    return label.isdigit() or re.fullmatch(r"0x[0-9a-f]*", label) is not None


def _read_v4(labels: list[str]) -> int | None:
    """An IPv4 address of one to four numbers, each decimal, octal or hexadecimal; else None."""
    if len(labels) > 4:
        return None
    numbers = []
    for label in labels:
        if re.fullmatch(r"0x[0-9a-f]*", label):
            numbers.append(int(label[2:] or "0", 16))
        elif re.fullmatch(r"0[0-7]*", label):
            numbers.append(int(label, 8))
        elif re.fullmatch(r"[1-9][0-9]*", label):
            numbers.append(int(label))
        else:
            return None
    *leading, last = numbers
    if any(number > 255 for number in leading) or last >= 256 ** (5 - len(numbers)):
        return None
    value = last
    for place, number in enumerate(leading):
        value += number << 8 * (3 - place)
    return value


def _request_path(tail: str) -> str:
    """Path and query for the request line; what is not ASCII as percent-encoded UTF-8."""
    path = tail if tail.startswith("/") else "/" + tail
    return "".join(
        char if char.isascii() else "".join(f"%{byte:02X}" for byte in char.encode("utf-8"))
        for char in path
    )


def _parse_entry(text: str) -> _Entry | None:
    if len(text) > URL_CHARS_MAX or any(map(_is_unsafe, text)) or text.endswith(":"):
        return None
    below = text.startswith("*.")
    split = _split_port(text[2:] if below else text)
    if split is None:
        return None
    address, name = _read_host(split[0])
    host, port = address or name, HTTPS_PORT if split[1] is None else split[1]
    if host is None or port == 0 or (below and address is not None):
        return None
    return _Entry(host, port, below)
