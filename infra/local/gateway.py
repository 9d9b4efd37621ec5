"""Owns what API Gateway does in front of the functions: routes, trigger documents, answers.

Refuses to judge anything that a function judges. The shapes are those of an HTTP API with payload
format 2.0: header names lower-case, repeated ones joined by commas, JSON and text as text,
everything else as base64; a route that is not there, and a body that is too large, get the
gateway's own answers, which are not Mesh's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from infra import topology
from infra.local.runtime import FunctionError
from mesh.kernel.clock import Clock
from mesh.kernel.ids import Random

BODY_BYTES_MAX: Final = 10 * 1024 * 1024
HEADERS_BYTES_MAX: Final = 10_240

Invoke = Callable[[str, dict[str, Any]], Any]
"""Calls a function by its name with a trigger document; raises FunctionError when it crashed."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, as it came from the wire. Header names in any case, repeated ones apart."""

    method: str
    target: str
    """Path and query, percent-encoded."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)
    source_ip: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP answer."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case."""
        return next((v for k, v in self.headers if k.lower() == name.lower()), None)

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class _Route:
    route: topology.Route
    function: str
    segments: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.route.method} {self.route.path}"

    def match(self, method: str, segments: list[str]) -> dict[str, str] | None:
        """The path's parameters, decoded; None when it is another route's."""
        if method != self.route.method or len(segments) != len(self.segments):
            return None
        parameters = {}
        for pattern, segment in zip(self.segments, segments, strict=True):
            if pattern.startswith("{"):
                if not segment:
                    return None
                parameters[pattern[1:-1]] = unquote(segment)
            elif pattern != unquote(segment):
                return None
        return parameters


class Gateway:
    """Both HTTP APIs on one address: the paths of the two never meet."""

    def __init__(self, invoke: Invoke, clock: Clock, random: Random) -> None:
        self._invoke = invoke
        self._clock = clock
        self._random = random
        routes = [
            _Route(route, function.name, tuple(route.path.split("/")))
            for function in topology.FUNCTIONS
            for route in function.routes
        ]
        # As API Gateway does: the route with the fewest parameters in it is the closest.
        self._routes = sorted(routes, key=lambda route: route.route.path.count("{"))

    def answer(self, request: Request) -> Response:
        """The answer to one request. Never raises for what a caller or a function did."""
        request_id = base64.urlsafe_b64encode(self._random.bytes(11)).decode()
        if sum(len(name) + len(value) for name, value in request.headers) > HEADERS_BYTES_MAX:
            return self._own(431, "Request Header Fields Too Large", request_id)
        path, _, query = request.target.partition("?")
        if len(request.body) > BODY_BYTES_MAX:
            return self._own(413, "Request Entity Too Large", request_id)
        for route in self._routes:
            parameters = route.match(request.method, path.split("/"))
            if parameters is not None:
                break
        else:
            return self._own(404, "Not Found", request_id)
        event = self._event(
            request,
            route,
            unquote(path),
            query,
            parameters=parameters,
            request_id=request_id,
        )
        try:
            if is_authorized_route(route.route):
                context = self._principal(event)
                if context is None:
                    return self._own(403, "Forbidden", request_id)
                event["requestContext"]["authorizer"] = {"lambda": context}
            answered = self._invoke(route.function, event)
        except FunctionError:
            return self._own(500, "Internal Server Error", request_id)
        return self._response(answered, request_id)

    def _principal(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """What the authorizer says of the caller; None when it denied, which ours never does."""
        question = {
            **{name: value for name, value in event.items() if name not in _NOT_ASKED},
            "type": "REQUEST",
            "routeArn": f"arn:aws:execute-api:local:000000000000:operator/{event['routeKey']}",
            "identitySource": None,
        }
        answer = self._invoke(topology.AUTHORIZER, question)
        if not isinstance(answer, dict) or answer.get("isAuthorized") is not True:
            return None
        context = answer.get("context")
        return context if isinstance(context, dict) else {}

    def _event(
        self,
        request: Request,
        route: _Route,
        path: str,
        query: str,
        *,
        parameters: Mapping[str, str],
        request_id: str,
    ) -> dict[str, Any]:
        headers, cookies = _headers(request)
        now_ms = self._clock.now_ms()
        moment = datetime.fromtimestamp(now_ms // 1000, tz=UTC)
        host = headers.get("host", "localhost")
        event: dict[str, Any] = {
            "version": "2.0",
            "routeKey": route.key,
            "rawPath": path,
            "rawQueryString": query,
            "headers": {
                **headers,
                "x-forwarded-for": request.source_ip,
                "x-forwarded-port": host.rpartition(":")[2] if ":" in host else "80",
                "x-forwarded-proto": "http",
            },
            "requestContext": {
                "accountId": "000000000000",
                "apiId": str(route.route.api),
                "domainName": host,
                "domainPrefix": host.partition(".")[0],
                "http": {
                    "method": request.method,
                    "path": path,
                    "protocol": "HTTP/1.1",
                    "sourceIp": request.source_ip,
                    "userAgent": headers.get("user-agent", ""),
                },
                "requestId": request_id,
                "routeKey": route.key,
                "stage": "$default",
                "time": f"{moment:%d/%b/%Y:%H:%M:%S +0000}",
                "timeEpoch": now_ms,
            },
            "isBase64Encoded": False,
        }
        if cookies:
            event["cookies"] = cookies
        if parameters:
            event["pathParameters"] = dict(parameters)
        if query:
            event["queryStringParameters"] = _query(query)
        if request.body:
            event["body"], event["isBase64Encoded"] = _body(headers, request.body)
        return event

    def _response(self, answer: Any, request_id: str) -> Response:
        """A function's answer in format 2.0; anything without a status code is its JSON body."""
        if not isinstance(answer, dict) or "statusCode" not in answer:
            headers = {"Content-Type": "application/json"}
            return self._finish(200, headers, [], json.dumps(answer).encode(), request_id)
        body = answer.get("body") or ""
        if not isinstance(body, str):
            return self._own(500, "Internal Server Error", request_id)
        if answer.get("isBase64Encoded") is True:
            raw = base64.b64decode(body)
        else:
            raw = body.encode("utf-8", "surrogatepass")
        headers = {str(k): str(v) for k, v in (answer.get("headers") or {}).items()}
        cookies = [str(cookie) for cookie in answer.get("cookies") or []]
        return self._finish(int(answer["statusCode"]), headers, cookies, raw, request_id)

    def _own(self, status: int, message: str, request_id: str) -> Response:
        """An answer of the gateway itself: no `error`, no `X-Request-Id`."""
        body = json.dumps({"message": message}, separators=(",", ":")).encode()
        return self._finish(status, {"Content-Type": "application/json"}, [], body, request_id)

    def _finish(
        self,
        status: int,
        headers: dict[str, str],
        cookies: list[str],
        body: bytes,
        request_id: str,
    ) -> Response:
        moment = datetime.fromtimestamp(self._clock.now_ms() // 1000, tz=UTC)
        lines = [("Date", f"{moment:%a, %d %b %Y %H:%M:%S} GMT")]
        if not any(name.lower() == "content-type" for name in headers):
            lines.append(("Content-Type", "text/plain;charset=UTF-8"))
        lines += headers.items()
        lines += [("Set-Cookie", cookie) for cookie in cookies]
        lines.append(("Apigw-Requestid", request_id))
        return Response(status, tuple(lines), body)


_NOT_ASKED: Final = frozenset({"body", "isBase64Encoded"})
"""What an authorizer is not shown."""


def is_authorized_route(route: topology.Route) -> bool:
    """Whether the authorizer is asked first: on the operator API, its public health check apart."""
    return route.api is topology.Api.OPERATOR and route.path.startswith("/api/")


def _headers(request: Request) -> tuple[dict[str, str], list[str]]:
    """Headers by lower-case name, repeated ones joined; cookies apart, as format 2.0 has them."""
    headers: dict[str, str] = {}
    cookies: list[str] = []
    for name, raw in request.headers:
        key, value = name.lower(), raw.strip(" \t")
        if key == "cookie":
            cookies += [part.strip() for part in value.split(";")]
        else:
            headers[key] = f"{headers[key]},{value}" if key in headers else value
    return headers, cookies


def _query(query: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        values[name] = f"{values[name]},{value}" if name in values else value
    return values


def _body(headers: Mapping[str, str], body: bytes) -> tuple[str, bool]:
    """The body as a trigger document carries it, and whether that is base64.

    What a real gateway does with bytes that are not UTF-8 under a text type is not known; this one
    hands them on whole, so that what was signed is what is judged.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.startswith("text/"):
        try:
            return body.decode("utf-8"), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), True
