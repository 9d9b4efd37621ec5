"""Owns one exchange with a model's API over HTTP: a JSON object out, one back, by the egress guard.

Refuses redirects, a second attempt, and to keep a key: it is asked for when the request is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from mesh.kernel import retry_after
from mesh.kernel.clock import Clock
from mesh.kernel.limits import MODEL_ANSWER_BYTES_MAX
from mesh.models.contract import ModelFailure, ModelFailureKind
from mesh.models.failures import failure, kind_of_status
from mesh.models.reading import Json, document, encoded
from mesh.security.egress.contract import (
    Egress,
    EgressFailure,
    EgressFailureKind,
    EgressPolicy,
    Reply,
)

Key = Callable[[], str | None]
"""Opens the key for one use; None where none is kept. What it raises itself passes through."""

KindOfError = Callable[[int, Json], ModelFailureKind]
"""What an error means to its API, by its status and its body, which is empty where it was no JSON.
"""

_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]+\Z")


@dataclass(frozen=True, slots=True)
class ModelApi:
    """How to reach one API: by the guard, under a policy, at one address, with one key."""

    egress: Egress
    policy: EgressPolicy
    base_url: str
    key: Key = field(repr=False)
    clock: Clock = field(repr=False)
    answer_bytes_max: int = MODEL_ANSWER_BYTES_MAX

    def opened_key(self) -> str | None:
        """The key, as it may stand in a header. Raises ModelFailure where it cannot."""
        found = (self.key() or "").strip()
        if not found:
            return None
        if _HEADER_VALUE.match(found) is None:
            raise failure(ModelFailureKind.CREDENTIAL, "the key that is kept can be no API's key")
        return found

    def post(
        self,
        path: str,
        headers: Mapping[str, str],
        body: Json,
        timeout_s: float,
        kind_of_error: KindOfError,
    ) -> Json:
        """The object that the API answers a POST of `body` with, at `path` below its address.

        It is empty where what came was none: then it has nothing of what an answer must have.
        Raises ModelFailure.
        """
        # Failures are raised outside of `except`, so that none of them carries what came before.
        reply = self._reply(path, headers, body, timeout_s)
        if isinstance(reply, ModelFailureKind):
            raise failure(reply)
        found = document(reply.body) or {}
        if 200 <= reply.status < 300:
            return found
        raise self._failure_of(kind_of_error(reply.status, found), reply)

    def _reply(
        self, path: str, headers: Mapping[str, str], body: Json, timeout_s: float
    ) -> Reply | ModelFailureKind:
        if timeout_s <= 0:
            return ModelFailureKind.UNREACHABLE
        try:
            return self.egress.request(
                "POST",
                _below(self.base_url, path),
                {"content-type": "application/json", "accept": "application/json", **headers},
                encoded(body),
                self.policy,
                body_bytes_max=self.answer_bytes_max,
                total_s=timeout_s,
            )
        except EgressFailure as why:
            return _kind_of_egress(why.kind)

    def _failure_of(self, kind: ModelFailureKind, reply: Reply) -> ModelFailure:
        if kind is ModelFailureKind.THROTTLED and reply.header("x-should-retry") == "false":
            # So an API tells its own clients that the limit is not one of pace.
            kind = ModelFailureKind.QUOTA
        return failure(kind, retry_after_s=self._retry_after_s(reply))

    def _retry_after_s(self, reply: Reply) -> float | None:
        exact = reply.header("retry-after-ms")
        asked_s = None if exact is None else retry_after.milliseconds_of(exact)
        if asked_s is None and (text := reply.retry_after) is not None:
            asked_s = retry_after.seconds_of(text, self.clock.now_ms())
        return asked_s


def kind_by_code(
    codes: Mapping[str, ModelFailureKind], told: tuple[object, ...], status: int
) -> ModelFailureKind:
    """What an error means: by the first code that is known, else by the status."""
    for code in told:
        if isinstance(code, str) and (kind := codes.get(code)) is not None:
            return kind
    return kind_of_status(status)


def _below(base_url: str, path: str) -> str:
    """`path` below the base URL, whose query, such as a gateway's version of its API, stays."""
    base, mark, query = base_url.partition("?")
    return f"{base.rstrip('/')}{path}{mark}{query}"


def _kind_of_egress(kind: EgressFailureKind) -> ModelFailureKind:
    match kind:
        case EgressFailureKind.REFUSED_URL | EgressFailureKind.REFUSED_ADDRESS:
            return ModelFailureKind.REFUSED_URL
        case EgressFailureKind.HEAD_TOO_LARGE | EgressFailureKind.BODY_TOO_LARGE:
            return ModelFailureKind.MALFORMED
        case (
            EgressFailureKind.DNS
            | EgressFailureKind.DNS_TIMEOUT
            | EgressFailureKind.CONNECT
            | EgressFailureKind.TLS
            | EgressFailureKind.TIMEOUT
            | EgressFailureKind.CLOSED
            | EgressFailureKind.PROTOCOL
        ):
            return ModelFailureKind.UNREACHABLE
        case _:
            assert_never(kind)
