"""Owns the short way to the embedded AWS: clients that skip the wire, and a hook at every call.

Refuses to differ where it counts: two tries on what an SDK tries again, the same token on both,
botocore's own errors. A simulation makes some hundred thousand calls; a wire call costs ten times
what its answer does.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from infra.local.aws import LocalAws
from infra.local.aws.faults import Kind
from infra.local.aws.recorder import caller
from infra.local.aws.wire import Asked, AwsError, Json
from mesh.kernel.limits import AWS_ATTEMPTS

_NO_DIGITS: Final = str.maketrans(dict.fromkeys("0123456789"))
_ADDRESS: Final = "https://aws.local"
_BLOBS: Final = frozenset({"Plaintext", "CiphertextBlob", "B"})
_TRIED_AGAIN: Final = frozenset(
    {"ProvisionedThroughputExceededException", "RequestThrottled", "ThrottlingException"}
)
_OPERATIONS: Final = {
    "dynamodb": {
        "get_item": "GetItem",
        "put_item": "PutItem",
        "update_item": "UpdateItem",
        "delete_item": "DeleteItem",
        "query": "Query",
        "transact_write_items": "TransactWriteItems",
        "batch_get_item": "BatchGetItem",
    },
    "sqs": {
        "send_message": "SendMessage",
        "receive_message": "ReceiveMessage",
        "delete_message": "DeleteMessage",
    },
    "kms": {
        "encrypt": "Encrypt",
        "decrypt": "Decrypt",
        "generate_data_key": "GenerateDataKey",
    },
    "events": {"put_events": "PutEvents"},
}


@dataclass(frozen=True, slots=True)
class Site:
    """One call as the world sees it. `function` is empty for what AWS does itself (pollers)."""

    function: str
    service: str
    operation: str
    body: Json

    @property
    def name(self) -> str:
        """The call's place in the system: which function does what to which kind of row."""
        return f"{self.function or 'aws'}: {self.operation}{self._what()}"

    def _what(self) -> str:
        body = self.body
        if "TransactItems" in body:
            return f" of {len(body['TransactItems'])}"
        if "QueueUrl" in body:
            return " " + str(body["QueueUrl"]).rpartition("/")[2]
        if "KeyConditionExpression" in body:
            values = body["ExpressionAttributeValues"]
            start = values.get(":lo", values.get(":sk", values[":pk"]))["S"]
            return f" {body.get('IndexName', '')}{start.partition('#')[0]}"
        key = body.get("Key", body.get("Item"))
        if key is None:
            return ""
        changed = str(body.get("UpdateExpression", "")).partition(",")[0]
        text = f" {key['sk']['S'].partition('#')[0]} {changed}".rstrip()
        return text.translate(_NO_DIGITS)


class Hooks:
    """What a world does around calls. Each may raise, move time, or run others meanwhile."""

    def before(self, site: Site) -> None:
        """Before the call is applied."""

    def after(self, site: Site) -> None:
        """After it was applied, before the caller learns of it."""

    def drops(self, site: Site) -> bool:
        """Whether a doorbell is lost on its way: sent, answered, never seen."""
        return False


class DirectClient:
    """One service's client, as far as Mesh uses it."""

    def __init__(self, aws: LocalAws, service: str, hooks: Hooks) -> None:
        self._aws = aws
        self._service = service
        self._hooks = hooks

    def __getattr__(self, method: str) -> Callable[..., Any]:
        operation = _OPERATIONS[self._service][method]
        return lambda **parameters: self._call(operation, parameters)

    def _call(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        body = json.loads(json.dumps(parameters, default=_base64))
        site = Site(caller(), self._service, operation, body)
        for attempt in range(1, AWS_ATTEMPTS + 1):
            try:
                return self._try(site)
            except BotoCoreError:
                if attempt == AWS_ATTEMPTS:
                    raise
            except ClientError as error:
                if attempt == AWS_ATTEMPTS or error.response["Error"]["Code"] not in _TRIED_AGAIN:
                    raise
            self._aws.clock.sleep(0.05)
        raise AssertionError("the last try answers or raises")

    def _try(self, site: Site) -> dict[str, Any]:
        """One try; the hook behind it comes after a refusal as well, not after a lost answer."""
        self._hooks.before(site)
        try:
            answer = self._once(site)
        except ClientError:
            self._hooks.after(site)
            raise
        self._hooks.after(site)
        return answer

    def _once(self, site: Site) -> dict[str, Any]:
        aws, operation = self._aws, site.operation
        if operation == "SendMessage" and self._hooks.drops(site):
            return {"MessageId": "lost"}
        fault = None
        if aws.faults is not None and site.function:  # a poller outlives its own failures
            fault = aws.faults.draw(self._service, operation)
        if fault is Kind.UNREACHABLE:
            raise EndpointConnectionError(endpoint_url=_ADDRESS)
        try:
            aws._refuse(fault, Asked(self._service, operation, site.body))
            answer, _ = aws._apply(Asked(self._service, operation, site.body))
        except AwsError as problem:
            raise _client_error(problem, operation) from None
        if fault is Kind.LOST and aws.faults is not None:
            if aws.faults.choose(2):
                raise ReadTimeoutError(endpoint_url=_ADDRESS)
            raise ConnectionClosedError(endpoint_url=_ADDRESS)
        opened: dict[str, Any] = _opened(answer)
        return opened


class DirectClients:
    """Implements `mesh.storage.clients.Clients`."""

    def __init__(self, aws: LocalAws, hooks: Hooks) -> None:
        self.dynamodb = DirectClient(aws, "dynamodb", hooks)
        self.sqs = DirectClient(aws, "sqs", hooks)
        self.kms = DirectClient(aws, "kms", hooks)
        self.events = DirectClient(aws, "events", hooks)

    def bedrock(self, read_s: float) -> Any:
        """No model of Bedrock is asked in a simulation."""
        raise NotImplementedError


def _base64(value: object) -> str:
    assert isinstance(value, bytes), type(value)
    return base64.b64encode(value).decode()


def _opened(value: Any) -> Any:
    """An answer with its blobs as bytes, sharing nothing with the stored rows."""
    if isinstance(value, dict):
        return {
            name: base64.b64decode(each)
            if name in _BLOBS and isinstance(each, str)
            else _opened(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_opened(each) for each in value]
    return value


def _client_error(problem: AwsError, operation: str) -> ClientError:
    response = {
        "Error": {"Code": problem.query_code or problem.code, "Message": problem.message},
        "ResponseMetadata": {"HTTPStatusCode": problem.status},
        **_opened(problem.fields),
    }
    return ClientError(response, operation)
