"""Owns AWS as a recording: the raw answers of one invocation, given again at the HTTP layer.

Refuses to decide anything: what is measured over it is the product and the SDK, not an emulator.
Loads nothing but botocore, and that only when it answers, so that fresh processes may use it.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from botocore.session import Session

Answers = dict[str, list[str]]
"""By operation, the bodies of its answers in their order."""


class Recording:
    """Keeps the answers that a session's clients get."""

    def __init__(self, session: Session) -> None:
        self.answers: Answers = {}
        session.register("response-received", self._keep)

    def _keep(self, response_dict: dict[str, Any] | None, context: Any, **_: Any) -> None:
        assert response_dict is not None, "a recorded call is answered"
        operation = response_dict["context"]["operation_name"]
        self.answers.setdefault(operation, []).append(response_dict["body"].decode())


class Replay:
    """A `before-send` hook that gives each operation's answers in turn, for ever."""

    def __init__(self, answers: Answers) -> None:
        self._answers = {name: [each.encode() for each in of] for name, of in answers.items()}
        self._next = dict.fromkeys(answers, 0)

    def __call__(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        from botocore.awsrequest import AWSResponse

        target = request.headers["X-Amz-Target"]
        operation = (target.decode() if isinstance(target, bytes) else target).rpartition(".")[2]
        answers = self._answers[operation]
        body = answers[self._next[operation] % len(answers)]
        self._next[operation] += 1
        headers = {
            "content-type": "application/x-amz-json-1.0",
            "content-length": str(len(body)),
            "x-amzn-requestid": "REPLAYED",
        }
        return AWSResponse(request.url, 200, headers, _Raw(body))


class _Raw(io.BytesIO):
    """A body as botocore reads one from urllib3."""

    def stream(self, **_: object) -> Any:
        yield self.read()
