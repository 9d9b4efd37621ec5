"""Owns the real way out: resolve, judge every address, connect to one of those, ask once, close.

Refuses to resolve a second time, to follow a redirect, to look at a proxy, and to be weakened by a
setting: there is none. Contract §2.2.
"""

from __future__ import annotations

import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from mesh.kernel.cancellation import woken_by
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Phase
from mesh.security.egress.contract import (
    EgressFailure,
    EgressFailureKind,
    EgressLimits,
    EgressPolicy,
    Judge,
    Reply,
    StrictJudge,
)
from mesh.security.egress.wire import Wire, dial, message_of
from mesh.security.urls import Reason, Refusal, Target

Resolver = Callable[[str, int], Sequence[str]]
"""All addresses of a name, in their usual notation. Raises OSError when it has none."""


def system_resolver(host: str, port: int) -> list[str]:
    """The operating system's resolver."""
    # As bytes, because a str would be encoded once more, by older rules than ours (IDNA 2003).
    found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def strict_tls() -> ssl.SSLContext:
    """TLS 1.2 or later, the system's authorities, the name checked; no key log, no environment."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    return context


class GuardedEgress:
    """The real way out. Safe to share between threads: it keeps nothing between requests."""

    def __init__(
        self,
        clock: Clock,
        *,
        judge: Judge | None = None,
        resolver: Resolver = system_resolver,
        tls: ssl.SSLContext | None = None,
        limits: EgressLimits | None = None,
    ) -> None:
        """Raises ValueError when `tls` would verify less than `strict_tls` does."""
        self._clock = clock
        self._judge = judge or StrictJudge()
        self._resolver = resolver
        self._limits = limits or EgressLimits()
        self._tls = tls or strict_tls()
        if (
            self._tls.verify_mode is not ssl.CERT_REQUIRED
            or not self._tls.check_hostname
            or self._tls.minimum_version < ssl.TLSVersion.TLSv1_2
        ):
            raise ValueError("TLS must verify certificate and name, from version 1.2 on")

    def check(self, url: str, policy: EgressPolicy) -> Refusal | None:
        judged = self._judge.judge_url(url, policy)
        return judged if isinstance(judged, Refusal) else None

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, policy: EgressPolicy
    ) -> Reply:
        deadline = self._clock.monotonic() + self._limits.total_s
        target = self._target(url, policy)
        message = message_of("POST", target, headers, body)
        with self._connected(target, deadline) as wire:
            wire.send(message, body)
            try:
                head = wire.read_head()
            except EgressFailure as failure:
                # Headers that drip or break off after a status line take nothing from it.
                ended = failure.kind in {EgressFailureKind.TIMEOUT, EgressFailureKind.CLOSED}
                during = failure.phase is Phase.DURING
                if not (ended and during) or (status := wire.status_so_far()) is None:
                    raise
                return Reply(status, wire.address)
            wire.arm(min(self._limits.drain_s, deadline - self._clock.monotonic()))
            return wire.reply(head, wire.read_some(self._limits.drain_bytes))

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
        deadline = self._clock.monotonic() + (total_s or self._limits.total_s)
        target = self._target(url, policy)
        message = message_of(method, target, headers, body)
        with self._connected(target, deadline) as wire:
            wire.send(message, body)
            head = wire.read_head()
            return wire.reply(head, wire.read_whole(body_bytes_max))

    def _target(self, url: str, policy: EgressPolicy) -> Target:
        judged = self._judge.judge_url(url, policy)
        if isinstance(judged, Target):
            return judged
        literal = judged.reason is Reason.ADDRESS
        kind = EgressFailureKind.REFUSED_ADDRESS if literal else EgressFailureKind.REFUSED_URL
        raise EgressFailure(kind, Phase.BEFORE, judged.detail, judged)

    def _addresses(self, target: Target, left_s: float) -> list[str]:
        """All addresses of the target, every one of them judged: IPv4 first, at most three."""
        found = [target.address] if target.address else self._resolve(target, left_s)
        for address in found:
            if (why := self._judge.judge_address(target, address)) is not None:
                refusal = Refusal(
                    Reason.ADDRESS, f"{target.host} leads to {address}, refused: {why}"
                )
                raise EgressFailure(
                    EgressFailureKind.REFUSED_ADDRESS, Phase.BEFORE, refusal.detail, refusal
                )
        unique = sorted(dict.fromkeys(found), key=lambda address: ":" in address)
        return unique[: self._limits.addresses_max]

    def _resolve(self, target: Target, left_s: float) -> list[str]:
        # The system's resolver cannot be interrupted, so it is left behind when it is late.
        answers: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()

        def resolve() -> None:
            try:
                answers.put(list(self._resolver(target.host, target.port)))
            except Exception as error:  # noqa: BLE001 - handed over to the thread that asked
                answers.put(error)

        threading.Thread(target=resolve, name="resolve", daemon=True).start()
        try:
            answer = answers.get(timeout=max(0.0, min(self._limits.dns_s, left_s)))
        except queue.Empty:
            raise EgressFailure(
                EgressFailureKind.DNS_TIMEOUT,
                Phase.BEFORE,
                f"{target.host} did not resolve in time",
            ) from None
        if isinstance(answer, Exception) and not isinstance(answer, OSError | UnicodeError):
            raise answer
        if isinstance(answer, Exception) or not answer:
            raise EgressFailure(
                EgressFailureKind.DNS, Phase.BEFORE, f"{target.host} does not resolve"
            )
        return answer

    @contextmanager
    def _connected(self, target: Target, deadline: float) -> Iterator[Wire]:
        """A connection to the target, secured, with its watchdog set to the deadline."""
        monotonic = self._clock.monotonic
        found = self._addresses(target, deadline - monotonic())
        connect_by = min(deadline, monotonic() + self._limits.connect_s)
        with closing(self._dialled(found, target.port, connect_by)) as wire:
            if target.scheme == "https":
                wire.secure(self._tls, target.host, connect_by - monotonic())
            wire.arm(deadline - monotonic())
            with woken_by(wire.give_up):
                yield wire

    def _dialled(self, found: Sequence[str], port: int, connect_by: float) -> Wire:
        """The first of these addresses that answers; the next only as long as nothing was sent."""
        for index, address in enumerate(found, start=1):
            # Each gets its share of what is left, so that a silent one leaves time to the others.
            left_s = connect_by - self._clock.monotonic()
            try:
                return Wire(
                    dial(address, port, left_s / (len(found) - index + 1)), address, self._limits
                )
            except EgressFailure:
                if index == len(found):
                    raise
        raise AssertionError("there is always an address to try")
