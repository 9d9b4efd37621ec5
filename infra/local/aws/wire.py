"""Owns the wire between a botocore client and the embedded AWS: requests, answers and errors.

Refuses to open a socket: an answer is built in process, in the shapes that AWS sends.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from botocore.awsrequest import AWSPreparedRequest, AWSResponse

Json = dict[str, Any]
"""A parsed JSON object of AWS's protocols, whose shape the operation knows."""

_SERVICES = {
    "DynamoDB_20120810": ("dynamodb", "com.amazonaws.dynamodb.v20120810"),
    "AmazonSQS": ("sqs", "com.amazonaws.sqs"),
    "TrentService": ("kms", "com.amazonaws.kms"),
    "AWSEvents": ("events", "com.amazonaws.events"),
}


@dataclass(frozen=True, slots=True)
class Units:
    """Capacity units of one call, as AWS bills them: the table's, the indexes', and reads."""

    table_write: float = 0
    index_write: float = 0
    read: float = 0


NO_UNITS = Units()


class AwsError(Exception):
    """An error that AWS answers with. `query_code` is SQS's older name, which botocore shows."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 400,
        fields: Json | None = None,
        query_code: str | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.fields = fields or {}
        self.query_code = query_code
        self.units = NO_UNITS


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operation answers, and what it cost. `wrote` says whether rows changed."""

    body: Json
    units: Units = NO_UNITS
    wrote: bool = False


class Service(Protocol):
    """One service of the embedded AWS."""

    def call(self, operation: str, body: Json) -> Answer:
        """Carries out one operation; raises AwsError."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: which service and operation, and its parsed body."""

    service: str
    operation: str
    body: Json


def read(request: AWSPreparedRequest) -> Asked | None:
    """What `request` asks for; None when it is for a service that is not here."""
    target = _text(request.headers.get("X-Amz-Target", b""))
    prefix, _, operation = target.partition(".")
    if prefix not in _SERVICES:
        return None
    raw = request.body or b"{}"
    return Asked(_SERVICES[prefix][0], operation, json.loads(raw))


def answer(request: AWSPreparedRequest, body: Json) -> AWSResponse:
    """A 200 with `body`."""
    return _response(request, 200, json.dumps(body, separators=(",", ":")).encode(), {})


def error(request: AWSPreparedRequest, problem: AwsError) -> AWSResponse:
    """The answer that makes botocore raise `problem` as a ClientError."""
    target = _text(request.headers.get("X-Amz-Target", b""))
    namespace = _SERVICES.get(target.partition(".")[0], ("", "com.amazon.coral.service"))[1]
    body = {"__type": f"{namespace}#{problem.code}", "message": problem.message, **problem.fields}
    headers = {}
    if problem.query_code is not None:
        headers["x-amzn-query-error"] = f"{problem.query_code};Sender"
    return _response(request, problem.status, json.dumps(body).encode(), headers)


class _Raw(io.BytesIO):
    """A body as botocore reads one from urllib3."""

    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


def _response(
    request: AWSPreparedRequest, status: int, body: bytes, headers: dict[str, str]
) -> AWSResponse:
    sent = {
        "content-type": "application/x-amz-json-1.0",
        "content-length": str(len(body)),
        "x-amzn-requestid": "LOCAL",
        **headers,
    }
    return AWSResponse(request.url, status, sent, _Raw(body))


def _text(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value
