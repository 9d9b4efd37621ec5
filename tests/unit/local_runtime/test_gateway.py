"""The gateway's translation between HTTP and trigger documents."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from infra.local.gateway import BODY_BYTES_MAX, Gateway, Request, Response
from infra.local.runtime import FunctionError


class Clock:
    def now_ms(self) -> int:
        return 1_796_000_000_123

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits here")


class Numbers:
    def bytes(self, count: int) -> bytes:
        return b"\x07" * count

    def uniform(self, low: float, high: float) -> float:
        return low


class Functions:
    """Answers as it is told, and remembers what it was asked."""

    def __init__(self, answer: Any = None, principal: Any = None) -> None:
        self.answer = answer if answer is not None else {"statusCode": 200, "body": "ok"}
        self.principal = principal or {"isAuthorized": True, "context": {"principal": "none"}}
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, name: str, event: dict[str, Any]) -> Any:
        self.calls.append((name, event))
        answer = self.principal if name == "operator_authorizer" else self.answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def event(self) -> dict[str, Any]:
        return self.calls[-1][1]


def gateway(functions: Functions) -> Gateway:
    return Gateway(functions, Clock(), Numbers())


def post(
    functions: Functions, body: bytes, *headers: tuple[str, str], target: str = "/generic/events"
) -> Response:
    return gateway(functions).answer(Request("POST", target, headers, body))


def test_header_names_are_lower_case_and_repeated_ones_joined_by_commas() -> None:
    functions = Functions()
    post(functions, b"", ("X-Mesh-Signature", "v1=a"), ("x-mesh-signature", " v1=b "), ("A-B", "c"))
    assert functions.event["headers"]["x-mesh-signature"] == "v1=a,v1=b"
    assert functions.event["headers"]["a-b"] == "c"


def test_a_repeated_content_type_is_joined_too() -> None:
    functions = Functions()
    post(functions, b"x", ("Content-Type", "text/a"), ("Content-Type", "application/json"))
    assert functions.event["headers"]["content-type"] == "text/a,application/json"


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "text/x"])
def test_json_and_text_travel_as_text(kind: str) -> None:
    functions = Functions()
    post(functions, '{"a":"é"}'.encode(), ("Content-Type", kind))
    assert functions.event["body"] == '{"a":"é"}'
    assert functions.event["isBase64Encoded"] is False


@pytest.mark.parametrize("kind", ["application/cloudevents+json", "application/octet-stream", ""])
def test_other_types_travel_as_base64(kind: str) -> None:
    functions = Functions()
    post(functions, b"\xff\x00", ("Content-Type", kind))
    assert base64.b64decode(functions.event["body"]) == b"\xff\x00"
    assert functions.event["isBase64Encoded"] is True


def test_an_empty_body_and_an_empty_query_are_left_out() -> None:
    functions = Functions()
    post(functions, b"")
    assert "body" not in functions.event
    assert "queryStringParameters" not in functions.event
    assert functions.event["rawQueryString"] == ""


def test_a_query_is_told_raw_and_taken_apart() -> None:
    functions = Functions()
    post(functions, b"", target="/generic/events?a=1&a=2&b=%20&c")
    assert functions.event["rawQueryString"] == "a=1&a=2&b=%20&c"
    assert functions.event["queryStringParameters"] == {"a": "1,2", "b": " ", "c": ""}
    assert functions.event["rawPath"] == "/generic/events"


def test_the_document_has_the_shape_of_payload_format_two() -> None:
    functions = Functions()
    post(functions, b"", ("User-Agent", "me"), ("Host", "127.0.0.1:8787"), ("Cookie", "a=1; b=2"))
    event = functions.event
    assert event["version"] == "2.0"
    assert event["routeKey"] == "POST /generic/events"
    assert event["cookies"] == ["a=1", "b=2"]
    assert "cookie" not in event["headers"]
    context = event["requestContext"]
    assert context["http"] == {
        "method": "POST",
        "path": "/generic/events",
        "protocol": "HTTP/1.1",
        "sourceIp": "127.0.0.1",
        "userAgent": "me",
    }
    assert context["timeEpoch"] == 1_796_000_000_123
    assert context["stage"] == "$default"
    assert "authorizer" not in context


def test_the_authorizer_is_asked_first_and_its_context_is_handed_on() -> None:
    functions = Functions(principal={"isAuthorized": True, "context": {"principal": "{}"}})
    request = Request("GET", "/api/agents/ada%20x", (("Authorization", "Bearer t"),))
    assert gateway(functions).answer(request).status == 200
    (asked, question), (name, event) = functions.calls
    assert (asked, name) == ("operator_authorizer", "operator_agents")
    assert question["type"] == "REQUEST"
    assert question["headers"]["authorization"] == "Bearer t"
    assert "body" not in question
    assert event["requestContext"]["authorizer"] == {"lambda": {"principal": "{}"}}
    assert event["pathParameters"] == {"slug": "ada x"}


def test_the_health_check_asks_no_authorizer() -> None:
    functions = Functions()
    assert gateway(functions).answer(Request("GET", "/healthz")).status == 200
    assert [name for name, _ in functions.calls] == ["operator_meta"]


def test_an_authorizer_that_denies_gets_the_gateways_own_403() -> None:
    functions = Functions(principal={"isAuthorized": False})
    response = gateway(functions).answer(Request("GET", "/api/whoami"))
    assert (response.status, response.json()) == (403, {"message": "Forbidden"})


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/generic/events"),
        ("POST", "/generic/events/"),
        ("POST", "/"),
        ("GET", "/api/agents//connectors"),
        ("HEAD", "/healthz"),
    ],
)
def test_a_route_that_is_not_there_gets_the_gateways_own_404(method: str, target: str) -> None:
    functions = Functions()
    response = gateway(functions).answer(Request(method, target))
    assert (response.status, response.json()) == (404, {"message": "Not Found"})
    assert functions.calls == []
    assert response.header("x-request-id") is None


def test_the_closest_route_wins() -> None:
    functions = Functions()
    gateway(functions).answer(Request("GET", "/api/explain"))
    assert functions.event["routeKey"] == "GET /api/explain"


def test_a_function_that_crashes_gets_the_gateways_own_500() -> None:
    response = post(Functions(FunctionError("generic_ingress")), b"{}")
    assert (response.status, response.json()) == (500, {"message": "Internal Server Error"})


def test_a_body_over_ten_megabytes_never_reaches_a_function() -> None:
    functions = Functions()
    assert post(functions, b"x" * (BODY_BYTES_MAX + 1)).status == 413
    assert functions.calls == []


def test_headers_over_ten_kilobytes_never_reach_a_function() -> None:
    functions = Functions()
    assert post(functions, b"", ("A", "x" * 10_240)).status == 431
    assert functions.calls == []


def test_an_answer_goes_out_with_its_headers_and_the_gateways() -> None:
    answer = {
        "statusCode": 202,
        "headers": {"Content-Type": "application/json", "X-Request-Id": "req_1"},
        "body": "{}",
    }
    response = post(Functions(answer), b"{}")
    assert (response.status, response.body) == (202, b"{}")
    assert [name for name, _ in response.headers] == [
        "Date",
        "Content-Type",
        "X-Request-Id",
        "Apigw-Requestid",
    ]
    assert response.header("date") == "Mon, 30 Nov 2026 00:53:20 GMT"


def test_an_answer_in_base64_is_decoded() -> None:
    body = base64.b64encode(b"\xff\xfe").decode()
    response = post(Functions({"statusCode": 200, "body": body, "isBase64Encoded": True}), b"")
    assert response.body == b"\xff\xfe"


def test_an_answer_without_a_status_is_a_json_body() -> None:
    response = post(Functions({"a": 1}), b"")
    assert (response.status, json.loads(response.body)) == (200, {"a": 1})
