"""Minting the first token by invoking a deployed function."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from mesh.storage.functions import FunctionCallError, call_function


class Lambda:
    """A Lambda client that answers as it is told."""

    def __init__(self, payload: bytes = b"{}", **more: str) -> None:
        self.answer: Any = {"Payload": io.BytesIO(payload), **more}
        self.failure: Exception | None = None
        self.asked: dict[str, Any] = {}

    def invoke(self, **asked: Any) -> Any:
        self.asked = asked
        if self.failure is not None:
            raise self.failure
        return self.answer


def test_the_functions_answer_is_handed_back() -> None:
    client = Lambda(b'{"token": "t"}')
    assert call_function("mesh-dev-bootstrap", {"name": "me"}, client=client) == {"token": "t"}
    assert client.asked["FunctionName"] == "mesh-dev-bootstrap"
    assert json.loads(client.asked["Payload"]) == {"name": "me"}


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (ClientError({"Error": {"Code": "AccessDeniedException"}}, "Invoke"), "AccessDenied"),
        (EndpointConnectionError(endpoint_url="https://x.example"), "region and credentials"),
    ],
)
def test_a_call_that_fails_says_what_to_look_at(failure: Exception, says: str) -> None:
    client = Lambda()
    client.failure = failure
    with pytest.raises(FunctionCallError, match=says):
        call_function("f", {}, client=client)


@pytest.mark.parametrize(
    "client", [Lambda(b'{"errorMessage": "no"}', FunctionError="Unhandled"), Lambda(b'"text"')]
)
def test_a_function_that_crashed_is_told_without_its_text(client: Lambda) -> None:
    with pytest.raises(FunctionCallError, match="its log says why"):
        call_function("f", {}, client=client)
