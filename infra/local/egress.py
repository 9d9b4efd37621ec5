"""Owns the local stack's way out: the product's guard, and the loopback ports it was started with.

Refuses everything that the product refuses, but for exactly those `host:port` pairs, which it
lets through over http as well. Nothing that is deployed contains or imports it.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from mesh.kernel.clock import Clock, SystemClock
from mesh.security.egress import EgressLimits, EgressPolicy, GuardedEgress, StrictJudge
from mesh.security.urls import (
    Parts,
    Reason,
    Refusal,
    Target,
    is_local_name,
    judge_parts,
    parse,
    target_of,
)


class LoopbackJudge(StrictJudge):
    """The strict judgement, with exact loopback `host:port` pairs excepted from it."""

    def __init__(self, pairs: Iterable[str]) -> None:
        """Raises ValueError for a pair that is not a loopback host and a port."""
        self._pairs = frozenset(_read_pair(pair) for pair in pairs)

    def judge_url(self, url: str, policy: EgressPolicy) -> Target | Refusal:
        parts = parse(url, policy.url_chars_max)
        target = target_of(parts) if isinstance(parts, Parts) else None
        if not isinstance(parts, Parts) or target is None or not self._excepted(target):
            return super().judge_url(url, policy)
        if (refusal := judge_parts(parts)) is not None:
            return refusal
        if any(
            list_.entries and not list_.allows(target.host, target.port) for list_ in policy.allow
        ):
            return Refusal(Reason.ALLOWLIST, f"{target.authority} is not on the allowlist")
        return target

    def judge_address(self, target: Target, address: str) -> str | None:
        if not self._excepted(target):
            return super().judge_address(target, address)
        return None if _is_loopback(address) else "not the loopback address it was let through for"

    def _excepted(self, target: Target) -> bool:
        return target.scheme in ("http", "https") and (target.host, target.port) in self._pairs


class LoopbackEgress(GuardedEgress):
    """The guarded client, with loopback pairs such as `127.0.0.1:9000` let through."""

    def __init__(
        self, pairs: Iterable[str], clock: Clock | None = None, limits: EgressLimits | None = None
    ) -> None:
        """Raises ValueError for a pair that is not a loopback host and a port."""
        super().__init__(clock or SystemClock(), judge=LoopbackJudge(pairs), limits=limits)


def _read_pair(pair: str) -> tuple[str, int]:
    parts = parse(f"http://{pair}")
    if (
        isinstance(parts, Parts)
        and judge_parts(parts) is None
        and parts.host is not None
        and parts.port
        and parts.path == "/"
        and not pair.endswith("/")
        and (_is_loopback(parts.host) or is_local_name(parts.host))
    ):
        return parts.host, parts.port
    raise ValueError("only a loopback HOST:PORT, such as 127.0.0.1:9000, is let through")


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
