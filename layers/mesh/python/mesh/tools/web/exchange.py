"""Owns the one request that a call makes of its provider, by the egress guard, and what an answer
that is no result means where its code says nothing.

Refuses every place but the provider's declared origin, redirects, a second attempt, and to put the
key anywhere but into a header. Nothing that a provider wrote is ever in a failure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from mesh.kernel import foreign_json, retry_after
from mesh.kernel.clock import Clock
from mesh.kernel.foreign_json import Json
from mesh.kernel.limits import (
    PROVIDER_ANSWER_BYTES_MAX,
    PROVIDER_ANSWER_NESTING_MAX,
    PROVIDER_RETRY_AFTER_S_MAX,
    PROVIDER_URL_CHARS_MAX,
)
from mesh.records.connection import Provider
from mesh.security.egress.contract import (
    Egress,
    EgressFailure,
    EgressFailureKind,
    EgressPolicy,
    Reply,
)
from mesh.security.urls import Allowlist
from mesh.tools.web.contract import Access, FailureKind, ProviderFailure, Stage

_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]+\Z")

Meaning = tuple[Stage, FailureKind]
"""What an error comes to: how far the request got, and what kept it from its result."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a provider answered, whatever it says."""

    status: int
    body: Json = field(repr=False)
    """Empty where what came was no JSON object: then it has nothing of what a result must have."""
    retry_after_s: float | None
    reply: Reply = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether the status is one of success; the body may say otherwise."""
        return 200 <= self.status < 300

    def failure(self, meaning: Meaning | None = None) -> ProviderFailure:
        """The failure that this answer is, by its code where that is known, else by its status."""
        stage, kind = meaning or (Stage.ANSWER, kind_of_status(self.status))
        return ProviderFailure(stage, kind, retry_after_s=self.retry_after_s)


@dataclass(frozen=True, slots=True)
class Exchange:
    """The way to one provider."""

    provider: Provider
    egress: Egress = field(repr=False)
    clock: Clock = field(repr=False)

    def get(self, path: str, headers: Mapping[str, str], total_s: float) -> Answer:
        """The answer to a GET of `path`, which begins with a slash. Raises ProviderFailure."""
        return self._ask("GET", path, headers, b"", total_s)

    def post(self, path: str, headers: Mapping[str, str], body: Json, total_s: float) -> Answer:
        """The answer to a POST of `body`. Raises ProviderFailure."""
        typed = {"content-type": "application/json", **headers}
        return self._ask("POST", path, typed, foreign_json.encoded(body), total_s)

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, total_s: float
    ) -> Answer:
        # Failures are raised outside of `except`, so that none of them carries what came before.
        reply = self._reply(method, path, headers, body, total_s)
        if not isinstance(reply, Reply):
            raise ProviderFailure(*reply)
        if 300 <= reply.status < 400:
            raise ProviderFailure(Stage.ANSWER, FailureKind.MALFORMED)
        found = foreign_json.document(reply.body, PROVIDER_ANSWER_NESTING_MAX, mended=True)
        return Answer(reply.status, found or {}, self._retry_after_s(reply), reply)

    def _reply(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, total_s: float
    ) -> Reply | Meaning:
        try:
            return self.egress.request(
                method,
                self.provider.origin + path,
                {"accept": "application/json", **headers},
                body,
                self._policy(),
                body_bytes_max=PROVIDER_ANSWER_BYTES_MAX,
                total_s=total_s,
            )
        except EgressFailure as why:
            return _meaning_of_egress(why.kind)

    def _policy(self) -> EgressPolicy:
        """The declared origin, and nothing beside it."""
        only = Allowlist.parse([self.provider.origin.removeprefix("https://")])
        return EgressPolicy(allow=(only,), url_chars_max=PROVIDER_URL_CHARS_MAX)

    def _retry_after_s(self, reply: Reply) -> float | None:
        if reply.retry_after is None:
            return None
        return retry_after.seconds_of(
            reply.retry_after, self.clock.now_ms(), PROVIDER_RETRY_AFTER_S_MAX
        )


def header_key(access: Access) -> str:
    """The key, as it may stand in a header. Raises ProviderFailure where it cannot."""
    key = access.key.strip()
    if _HEADER_VALUE.match(key) is None:
        raise ProviderFailure(Stage.CREDENTIAL, FailureKind.AUTHORIZATION)
    return key


def bearer(access: Access) -> dict[str, str]:
    """The header of a key that is a bearer token. Raises ProviderFailure."""
    return {"authorization": f"Bearer {header_key(access)}"}


def fits(provider: Provider, config: Mapping[str, str]) -> bool:
    """Whether a connection's configuration is what the provider is described to take, and no more:
    a setting that nobody would enforce is not carried along in silence."""
    wanted = {each.name: each.pattern for each in provider.config}
    return config.keys() == wanted.keys() and all(
        re.fullmatch(pattern, config[name]) is not None for name, pattern in wanted.items()
    )


def kind_of_status(status: int) -> FailureKind:
    """What a status means; codes in the body say it better where there are any."""
    match status:
        case 401 | 403 | 407:
            return FailureKind.AUTHORIZATION
        case 402:
            return FailureKind.QUOTA
        case 404 | 410:
            return FailureKind.NOT_FOUND
        case 408 | 504:
            return FailureKind.TIMEOUT
        case 413:
            return FailureKind.TOO_LARGE
        case 429:
            return FailureKind.RATE
        case _ if 400 <= status < 500:
            return FailureKind.REFUSED
        case _ if status >= 500:
            return FailureKind.UNAVAILABLE
        case _:  # it calls itself a success, and is none
            return FailureKind.MALFORMED


def _meaning_of_egress(kind: EgressFailureKind) -> Meaning:
    match kind:
        case EgressFailureKind.TIMEOUT:
            return Stage.REQUEST, FailureKind.TIMEOUT
        case EgressFailureKind.BODY_TOO_LARGE:
            return Stage.ANSWER, FailureKind.TOO_LARGE
        case EgressFailureKind.HEAD_TOO_LARGE | EgressFailureKind.PROTOCOL:
            return Stage.ANSWER, FailureKind.MALFORMED
        case (
            EgressFailureKind.REFUSED_URL
            | EgressFailureKind.REFUSED_ADDRESS
            | EgressFailureKind.DNS
            | EgressFailureKind.DNS_TIMEOUT
            | EgressFailureKind.CONNECT
            | EgressFailureKind.TLS
            | EgressFailureKind.CLOSED
        ):
            return Stage.REQUEST, FailureKind.UNREACHABLE
        case _:
            assert_never(kind)
