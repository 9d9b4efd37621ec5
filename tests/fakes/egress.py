"""Owns the way out as tests script it: replies and failures by URL, everything asked kept.

Refuses what the real guard refuses: URLs and addresses are judged by the product's own judgement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mesh.kernel.errors import Phase
from mesh.kernel.limits import EGRESS_DRAIN_BYTES
from mesh.security.egress import (
    EgressFailure,
    EgressFailureKind,
    EgressPolicy,
    Judge,
    Reply,
    StrictJudge,
)
from mesh.security.urls import Reason, Refusal

PUBLIC_ADDRESS = "93.184.216.34"


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it was asked for and let through."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    policy: EgressPolicy


Outcome = Reply | EgressFailure | Callable[[Call], Reply]
"""What a request comes to; a callable may raise EgressFailure itself."""


def answer(status: int, body: bytes = b"", **headers: str) -> Reply:
    """A reply with headers such as `retry_after="120"`."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply(status, PUBLIC_ADDRESS, named, body)


def failure(kind: EgressFailureKind, phase: Phase = Phase.DURING) -> EgressFailure:
    """A failure of that kind."""
    return EgressFailure(kind, phase, f"scripted: {kind.value}")


class ScriptedEgress:
    """Implements `Egress`. The last outcome of a URL is repeated for ever.

    Hosts resolve to a public address unless `resolves` says otherwise; no answer is a DNS failure.
    """

    def __init__(
        self, judge: Judge | None = None, resolves: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.calls: list[Call] = []
        self.otherwise: Outcome | None = None
        """What a URL comes to that nothing is scripted for; None fails the test that asks."""
        self.resolves: dict[str, Sequence[str]] = dict(resolves or {})
        self._judge = judge or StrictJudge()
        self._scripts: dict[str, list[Outcome | None]] = {}
        self._lock = threading.Lock()

    def script(self, url: str, *outcomes: Outcome) -> None:
        """From now on requests to `url` come to these, one after the other."""
        with self._lock:
            self._scripts[url] = list(outcomes)

    def check(self, url: str, policy: EgressPolicy) -> Refusal | None:
        judged = self._judge.judge_url(url, policy)
        return judged if isinstance(judged, Refusal) else None

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, policy: EgressPolicy
    ) -> Reply:
        reply = self._outcome(Call("POST", url, dict(headers), body, policy))
        return replace(reply, body=reply.body[:EGRESS_DRAIN_BYTES])

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
        reply = self._outcome(Call(method, url, dict(headers), body, policy))
        if len(reply.body) > body_bytes_max:
            raise failure(EgressFailureKind.BODY_TOO_LARGE, Phase.AFTER)
        return reply

    def _outcome(self, call: Call) -> Reply:
        self._let_through(call)
        with self._lock:
            self.calls.append(call)
            script = self._scripts.get(call.url) or [self.otherwise]
            outcome = script.pop(0) if len(script) > 1 else script[0]
        assert outcome is not None, f"nothing is scripted for {call.url}"
        if isinstance(outcome, EgressFailure):
            raise EgressFailure(outcome.kind, outcome.phase, outcome.message, outcome.refusal)
        return outcome if isinstance(outcome, Reply) else outcome(call)

    def _let_through(self, call: Call) -> None:
        judged = self._judge.judge_url(call.url, call.policy)
        if isinstance(judged, Refusal):
            literal = judged.reason is Reason.ADDRESS
            kind = EgressFailureKind.REFUSED_ADDRESS if literal else EgressFailureKind.REFUSED_URL
            raise EgressFailure(kind, Phase.BEFORE, judged.detail, judged)
        default = [judged.address or PUBLIC_ADDRESS]
        found = self.resolves.get(judged.host, default)
        if not found:
            raise failure(EgressFailureKind.DNS, Phase.BEFORE)
        for address in found:
            if (why := self._judge.judge_address(judged, address)) is not None:
                refusal = Refusal(Reason.ADDRESS, f"{judged.host} leads to {address}: {why}")
                kind = EgressFailureKind.REFUSED_ADDRESS
                raise EgressFailure(kind, Phase.BEFORE, refusal.detail, refusal)
