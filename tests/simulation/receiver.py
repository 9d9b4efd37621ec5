"""Owns the third party's receiver: what reaches it, what it answers, and what it must never see.

Refuses to believe Mesh: every request is checked as it arrives, against the rows as they are then.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infra.local.aws import Broken, Killed
from mesh.security.egress import Reply
from tests.fakes.egress import Call, Outcome, answer

Answers = Callable[[int, dict[str, Any]], Outcome]
"""What request number n (from 1) with that body comes to."""


@dataclass(frozen=True, slots=True)
class Received:
    """One request that arrived."""

    at: int
    outbound_id: str
    attempt: int
    body: bytes

    @property
    def reply(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


def always_ok(_number: int, _body: dict[str, Any]) -> Outcome:
    return answer(200)


class Receiver:
    """A scripted outcome of an egress client: calls it like `ScriptedEgress` does."""

    def __init__(self, now_ms: Callable[[], int], answers: Answers = always_ok) -> None:
        self.answers = answers
        self.requests = 0
        """Requests that were begun, whether they arrived or not."""
        self.received: list[Received] = []
        self.accepted: list[Received] = []
        """Those that were answered with 2xx."""
        self.before: Callable[[int], None] = lambda _: None
        self.after: Callable[[int], None] = lambda _: None
        self.check: Callable[[Received], None] = lambda _: None
        self._now_ms = now_ms

    def __call__(self, call: Call) -> Reply:
        self.requests += 1
        number = self.requests
        self.before(number)
        got = Received(
            self._now_ms(),
            call.headers["X-Mesh-Outbound-Id"],
            int(call.headers["X-Mesh-Attempt"]),
            call.body,
        )
        self._look(got)
        self.received.append(got)
        outcome = self.answers(number, got.reply)
        if isinstance(outcome, Reply) and 200 <= outcome.status < 300:
            self.accepted.append(got)
        self.after(number)
        if isinstance(outcome, Reply):
            return outcome
        if callable(outcome):
            return outcome(call)
        raise outcome

    def _look(self, got: Received) -> None:
        """What the check objects to passes every `except Exception` of the system."""
        try:
            self.check(got)
        except Exception as objection:
            raise Broken(str(objection)) from objection

    def kill(self, number: int, when: str) -> None:
        """The worker dies at the n-th request, before the receiver got it or after."""

        def die(at: int) -> None:
            if at == number:
                raise Killed(f"{when} request {number}")

        if when == "before":
            self.before = die
        else:
            self.after = die

    @property
    def replies(self) -> list[dict[str, Any]]:
        """What a receiver that dedupes on `outbound_id` took in, in order of first receipt."""
        first: dict[str, dict[str, Any]] = {}
        for got in self.accepted:
            first.setdefault(got.outbound_id, got.reply)
        return list(first.values())
