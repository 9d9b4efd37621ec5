"""Owns what the generic connector does to be enabled: judge the delivery URL, and ping it, signed.

Refuses to ping with anything but the install's own secrets, and to show more of a URL than its
host. Contract §4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mesh.connectors.contract import OutboundAttempt
from mesh.connectors.generic.outbound import GenericOutbound, ping_bytes
from mesh.control.enablement import Step
from mesh.control.installs import Whole
from mesh.control.instance_key import InstanceKeys
from mesh.control.secrets import open_delivery_url, open_secrets
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed, Phase, Refused
from mesh.kernel.ids import Ids
from mesh.records.install import Install
from mesh.security.egress.contract import Egress, EgressFailure, EgressPolicy, policy_of

CHECK_URL: Final = Step("check_url", "judge the delivery URL as it is judged before each delivery")
PING: Final = Step("ping", "post a signed ping to the delivery URL, which must answer 2xx")


@dataclass(frozen=True, slots=True)
class Pinged:
    """A ping that was answered."""

    outbound_id: str
    status: int
    duration_ms: int


class GenericProvisioner:
    """Enables generic installs."""

    def __init__(
        self,
        egress: Egress,
        instance_keys: InstanceKeys,
        clock: Clock,
        ids: Ids,
        *,
        own_hosts: Sequence[str],
        instance_hosts: Callable[[], Sequence[str]],
    ) -> None:
        self._egress = egress
        self._keys = instance_keys
        self._clock = clock
        self._ids = ids
        self._own_hosts = frozenset(own_hosts)
        self._instance_hosts = instance_hosts

    def steps(self, install: Install, *, skip_ping: bool) -> Sequence[Step]:
        """Without a delivery URL there is nothing to judge and nobody to ping."""
        if install.delivery_url is None:
            return ()
        return (CHECK_URL,) if skip_ping else (CHECK_URL, PING)

    def run(self, step: Step, whole: Whole) -> None:
        """Runs one step, any number of times. Raises Refused or Failed with the reason."""
        if step is PING:
            self.ping(whole)
            return
        refusal = self._egress.check(self._url(whole), self._policy(whole.install))
        if refusal is not None:
            raise Refused("state_conflict", f"delivery_url refused: {refusal.reason}")

    def ping(self, whole: Whole) -> Pinged:
        """Posts one signed ping. Raises Refused without a URL, Failed when the answer is no 2xx."""
        install, now = whole.install, self._clock.now_ms()
        url, outbound_id = self._url(whole), self._ids.mint("out")
        body = ping_bytes(install.install_id, outbound_id, now)
        opened = open_secrets(self._keys.current(), install.install_id, whole.secrets, now)
        attempt = OutboundAttempt(
            secrets=[secret for _, secret in opened],
            install_id=install.install_id,
            outbound_id=outbound_id,
            now_ms=now,
            number=1,
        )
        headers = GenericOutbound().headers(attempt, body)
        began = self._clock.monotonic()
        try:
            reply = self._egress.post(url, headers, body, self._policy(install))
        except EgressFailure as failure:
            why = failure.refusal.reason if failure.refusal is not None else failure.kind
            raise Failed("unavailable", f"ping failed: {why}", failure.phase) from None
        if not 200 <= reply.status < 300:
            raise Failed(
                "unavailable",
                f"ping failed: the receiver answered {reply.status}, not 2xx",
                Phase.AFTER,
            )
        took = int((self._clock.monotonic() - began) * 1000)
        return Pinged(outbound_id, reply.status, took)

    def _url(self, whole: Whole) -> str:
        url = open_delivery_url(self._keys.current(), whole.install)
        if url is None:
            raise Refused(
                "state_conflict",
                "there is no delivery URL; set one with mesh connector update",
            )
        return url

    def _policy(self, install: Install) -> EgressPolicy:
        return policy_of(self._own_hosts, install.allow_hosts, self._instance_hosts())
