"""Owns the words of the way out: policy, answer, failure, and the seams that code is written to.

Refuses to open a connection: that is the guard's part, and a fake's in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from mesh.kernel import limits as bounds
from mesh.kernel.errors import Failed, Phase
from mesh.security import addresses, urls
from mesh.security.urls import Allowlist, Refusal, Target


class EgressFailureKind(StrEnum):
    """What kept a request from getting its answer."""

    REFUSED_URL = "refused_url"
    REFUSED_ADDRESS = "refused_address"
    DNS = "dns"
    DNS_TIMEOUT = "dns_timeout"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    CLOSED = "closed"
    PROTOCOL = "protocol"
    HEAD_TOO_LARGE = "head_too_large"
    BODY_TOO_LARGE = "body_too_large"


class EgressFailure(Failed):
    """A request without an answer.

    `phase` is BEFORE while no byte of the request was sent (so it had no effect), DURING until the
    head of an answer came, then AFTER. `refusal` tells why a URL or an address was refused.
    """

    def __init__(
        self, kind: EgressFailureKind, phase: Phase, message: str, refusal: Refusal | None = None
    ) -> None:
        super().__init__("unavailable", message, phase, outcome_unknown=phase is not Phase.BEFORE)
        self.kind = kind
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """Where requests may go: by the lists of install and instance, and never to Mesh itself."""

    allow: tuple[Allowlist, ...] = ()
    own_hosts: frozenset[str] = frozenset()
    url_chars_max: int = bounds.URL_CHARS_MAX
    """More only where Mesh makes the URL itself, and a long query stands in it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whatever its status; 3xx and errors are answers too."""

    status: int
    address: str
    """The address that was connected to."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Names in lower case, in the order sent."""
    body: bytes = field(default=b"", repr=False)
    """As it came, never decompressed. After `post` at most its first 4 KiB: never to be stored."""

    def header(self, name: str) -> str | None:
        """The first header of that lower-case name."""
        return next((value for key, value in self.headers if key == name), None)

    @property
    def retry_after(self) -> str | None:
        """`Retry-After` as it came: seconds or a date, or nonsense."""
        return self.header("retry-after")


@dataclass(frozen=True, slots=True)
class EgressLimits:
    """The bounds of one request, in seconds, bytes and counts."""

    dns_s: float = bounds.EGRESS_DNS_S
    connect_s: float = bounds.EGRESS_CONNECT_S
    total_s: float = bounds.EGRESS_TOTAL_S
    drain_s: float = bounds.EGRESS_DRAIN_S
    drain_bytes: int = bounds.EGRESS_DRAIN_BYTES
    head_bytes_max: int = bounds.EGRESS_HEAD_BYTES_MAX
    headers_max: int = bounds.EGRESS_HEADERS_MAX
    informational_max: int = bounds.EGRESS_INFORMATIONAL_MAX
    addresses_max: int = bounds.EGRESS_ADDRESSES_MAX


class Egress(Protocol):
    """The way out, as the rest of the system sees it."""

    def check(self, url: str, policy: EgressPolicy) -> Refusal | None:
        """What stands against `url` before it is resolved: asked when a URL is saved."""
        ...

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, policy: EgressPolicy
    ) -> Reply:
        """Posts `body` and returns as soon as the status is known and a little more was read.

        A status line that came in time decides, even when the headers after it stop short. Raises
        EgressFailure when there is none.
        """
        ...

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        policy: EgressPolicy,
        *,
        body_bytes_max: int,
        total_s: float | None = None,
    ) -> Reply:
        """Any request whose answer is wanted whole, of at most `body_bytes_max`.

        `total_s` is its deadline where that is not the usual one. Raises EgressFailure when the
        answer is not complete, too large included.
        """
        ...


class Judge(Protocol):
    """What may be called: first the URL, then each address that its host resolves to."""

    def judge_url(self, url: str, policy: EgressPolicy) -> Target | Refusal:
        """The target of `url`, or the first reason against it."""
        ...

    def judge_address(self, target: Target, address: str) -> str | None:
        """Why `address` must not be connected to for `target`; None when it may be."""
        ...


class StrictJudge:
    """The contract's own judgement: https, public hosts, public addresses."""

    def judge_url(self, url: str, policy: EgressPolicy) -> Target | Refusal:
        return urls.judge_url(
            url,
            own_hosts=policy.own_hosts,
            allow=policy.allow,
            chars_max=policy.url_chars_max,
        )

    def judge_address(self, target: Target, address: str) -> str | None:  # noqa: ARG002 - protocol
        return addresses.judge(address)


def policy_of(own_hosts: frozenset[str], *lists: Sequence[str]) -> EgressPolicy:
    """The policy under which every one of `lists` that is not empty must let a host pass.

    Raises Invalid for a malformed list, with each entry's index as the path.
    """
    return EgressPolicy(tuple(Allowlist.parse(entries) for entries in lists), own_hosts)


def judge_of(
    egress: Egress, own_hosts: Sequence[str], instance_hosts: Callable[[], Sequence[str]]
) -> Callable[[str, Sequence[str]], Refusal | None]:
    """What the guard says of a URL under an install's list of hosts and the instance's, as before
    each request to it.

    The judge raises Invalid for a malformed list, with each entry's index as the path.
    """
    own = frozenset(own_hosts)

    def judge(url: str, allow_hosts: Sequence[str]) -> Refusal | None:
        return egress.check(url, policy_of(own, allow_hosts, instance_hosts()))

    return judge
