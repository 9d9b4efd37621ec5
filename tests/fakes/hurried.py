"""Owns the real way out in a hurry: a provider that says nothing is given up soon.

Refuses everything else to a test: what is asked, of whom and under which policy is as it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from mesh.security.egress import Egress, EgressPolicy, Reply
from mesh.security.urls import Refusal
from mesh.tools.web.catalogue import PROVIDERS


class Hurried:
    """The way out, which gives up sooner where a test waits until a time is over."""

    def __init__(self, real: Egress) -> None:
        self.total_s: float | None = None
        """The deadline in place of a provider's own."""
        self._real = real

    def check(self, url: str, policy: EgressPolicy) -> Refusal | None:
        return self._real.check(url, policy)

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, policy: EgressPolicy
    ) -> Reply:
        return self._real.post(url, headers, body, policy)

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
        provider = any(url.startswith(f"{each.origin}/") for each in PROVIDERS.values())
        return self._real.request(
            method,
            url,
            headers,
            body,
            policy,
            body_bytes_max=body_bytes_max,
            total_s=self.total_s if provider and self.total_s else total_s,
        )
