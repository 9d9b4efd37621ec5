"""Owns the local stack's way out: the product's guard, and the loopback ports it was started with.

Refuses everything that the product refuses, but for exactly those `host:port` pairs, which it
lets through over http as well, and leads a request to a provider's own origin to the stand-in that
it was given for it. Nothing that is deployed contains or imports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final

from mesh.kernel.clock import Clock, SystemClock
from mesh.models import anthropic, openai
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
from mesh.tools.web.catalogue import PROVIDERS

_NONE: Final[Mapping[str, str]] = MappingProxyType({})

ORIGINS: Final[Mapping[str, str]] = MappingProxyType(
    {name: provider.origin for name, provider in PROVIDERS.items()}
    | {"anthropic": anthropic.BASE_URL, "openai": openai.BASE_URL}
)
"""A URL at the one origin of each hosted provider that a stand-in can take the place of."""


class LoopbackJudge(StrictJudge):
    """The strict judgement, with exact loopback `host:port` pairs excepted from it, and with
    stand-ins in the place of providers.

    What goes to a provider is judged as that, by its own URL and under the policy as it is; only
    what passes is connected to at the stand-in, path and query as they are.
    """

    def __init__(self, pairs: Iterable[str], stand_ins: Mapping[str, str] = _NONE) -> None:
        """`stand_ins` has the loopback pair of a stand-in, by the provider's name.

        Raises ValueError for a pair that is not a loopback host and a port, and KeyError for a
        provider that is not among `ORIGINS`.
        """
        self._places = {_place(ORIGINS[name]): _read_pair(it) for name, it in stand_ins.items()}
        self._pairs = frozenset(map(_read_pair, pairs)) | set(self._places.values())

    def judge_url(self, url: str, policy: EgressPolicy) -> Target | Refusal:
        parts = parse(url, policy.url_chars_max)
        target = target_of(parts) if isinstance(parts, Parts) else None
        if not isinstance(parts, Parts) or target is None or not self._excepted(target):
            return self._in_place(super().judge_url(url, policy))
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

    def _in_place(self, judged: Target | Refusal) -> Target | Refusal:
        """The stand-in's target for a provider's; everything else as it was judged."""
        if isinstance(judged, Refusal):
            return judged
        pair = self._places.get((judged.scheme, judged.host, judged.port))
        if pair is None:
            return judged
        host, port = pair
        address = host if _is_loopback(host) else None
        return replace(judged, scheme="http", host=host, port=port, address=address)

    def _excepted(self, target: Target) -> bool:
        return target.scheme in ("http", "https") and (target.host, target.port) in self._pairs


class LoopbackEgress(GuardedEgress):
    """The guarded client, with loopback pairs such as `127.0.0.1:9000` let through, and with the
    stand-ins of providers in their place."""

    def __init__(
        self,
        pairs: Iterable[str],
        clock: Clock | None = None,
        limits: EgressLimits | None = None,
        *,
        stand_ins: Mapping[str, str] = _NONE,
    ) -> None:
        """Raises ValueError and KeyError as the judge does."""
        judge = LoopbackJudge(pairs, stand_ins)
        super().__init__(clock or SystemClock(), judge=judge, limits=limits)


def _place(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of a URL that is called."""
    parts = parse(url)
    target = target_of(parts) if isinstance(parts, Parts) else None
    assert target is not None, "a declared origin is a URL"
    return target.scheme, target.host, target.port


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
