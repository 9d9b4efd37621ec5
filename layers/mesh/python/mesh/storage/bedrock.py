"""Owns the one call to Amazon Bedrock that models need: `Converse`, its time-out the caller's own.

Refuses the SDK's defaults, a 60 s read tried again (a second answer would be paid for twice), and
its error texts, which quote the request. What failed is told by kind and by AWS's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from enum import StrEnum
from typing import Any

from botocore.client import BaseClient
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError as SdkConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    NoAuthTokenError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from mesh.kernel import strict_json
from mesh.kernel.errors import Failed, Invalid, Phase
from mesh.kernel.limits import MODEL_ANSWER_BYTES_MAX

_CREDENTIALS = (
    CredentialRetrievalError,
    NoAuthTokenError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    TokenRetrievalError,
)


MakesClient = Callable[[float], BaseClient]
"""Makes a client with that read time-out, in seconds."""


class ConverseFailureKind(StrEnum):
    """What kept Bedrock from answering."""

    ANSWERED = "answered"
    """It answered with an error, whose code says which."""
    UNREACHABLE = "unreachable"
    CREDENTIAL = "credential"
    """This process has none for AWS, or no region."""
    INVALID = "invalid"
    """The SDK would not send the request."""
    UNREADABLE = "unreadable"
    """The answer is none that the SDK can read, or it is too large."""


class ConverseFailure(Failed):
    """A call without an answer. `code` is AWS's name of the error, where it gave one."""

    def __init__(
        self,
        kind: ConverseFailureKind,
        *,
        code: str = "",
        http_status: int = 0,
        retry_after: str | None = None,
    ) -> None:
        super().__init__("unavailable", "Bedrock gave no answer", Phase.DURING)
        self.kind = kind
        self.code = code
        self.http_status = http_status
        self.retry_after = retry_after


class _BrokenOff(Exception):
    """The connection ended before the answer did."""


class _TooLarge(Exception):
    """The body of the answer is larger than it may be."""


_UNREADABLE = (
    _TooLarge,
    Invalid,
    ResponseParserError,
    # The SDK's parser trusts the types of what AWS sends, and the depth of its errors.
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class BedrockConverse:
    """The call, as a function of the request's fields."""

    def __init__(
        self,
        client: MakesClient,
        answer_bytes_max: int = MODEL_ANSWER_BYTES_MAX,
    ) -> None:
        """`client` makes one with that read time-out, in seconds, such as
        `SessionClients.bedrock`."""
        self._client = client
        self._answer_bytes_max = answer_bytes_max

    def __call__(self, request: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """The fields of Bedrock's answer. Raises ConverseFailure."""
        # Raised outside of `except`, so that it does not carry the SDK's error, which quotes.
        outcome = self._outcome(request, timeout_s)
        if isinstance(outcome, ConverseFailure):
            raise outcome
        return outcome

    def _outcome(
        self, request: Mapping[str, Any], timeout_s: float
    ) -> Mapping[str, Any] | ConverseFailure:
        statuses: list[int] = []

        def before_parse(response_dict: Mapping[str, Any], **_: object) -> None:
            statuses.append(response_dict["status_code"])
            told, got = response_dict["headers"].get("content-length"), len(response_dict["body"])
            if told is not None and told != str(got):  # the SDK does not look
                raise _BrokenOff
            if got > self._answer_bytes_max:
                raise _TooLarge
            if statuses[-1] < 300:
                strict_json.decode(response_dict["body"])

        try:
            with closing(self._client(timeout_s)) as client:
                client.meta.events.register("before-parse.bedrock-runtime.Converse", before_parse)
                answer: Mapping[str, Any] = client.converse(**request)
                return answer
        except ClientError as error:
            return _answered(error.response)
        except _CREDENTIALS:
            return ConverseFailure(ConverseFailureKind.CREDENTIAL)
        except (HTTPClientError, SdkConnectionError, _BrokenOff):
            return ConverseFailure(ConverseFailureKind.UNREACHABLE)
        except BotoCoreError:
            return ConverseFailure(ConverseFailureKind.INVALID)
        except _UNREADABLE:
            if not statuses:  # it was not the answer
                raise
            if statuses[-1] >= 300:
                return ConverseFailure(ConverseFailureKind.ANSWERED, http_status=statuses[-1])
            return ConverseFailure(ConverseFailureKind.UNREADABLE)


def _answered(response: Mapping[str, Any]) -> ConverseFailure:
    metadata = response.get("ResponseMetadata", {})
    return ConverseFailure(
        ConverseFailureKind.ANSWERED,
        code=str(response.get("Error", {}).get("Code", "")),
        http_status=int(metadata.get("HTTPStatusCode", 0)),
        retry_after=metadata.get("HTTPHeaders", {}).get("retry-after"),
    )
