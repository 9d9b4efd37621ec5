"""Owns HTTP as a Lambda function sees it: trigger documents in, response documents out.

Refuses to read a body: it hands on the bytes that were signed, decoded from base64 where the
gateway encoded them and from nothing else.

The shapes are those of API Gateway: HTTP API payload 2.0, and REST API (payload 1.0).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

import msgspec

from mesh.kernel.errors import Invalid

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class HttpRequest(msgspec.Struct, frozen=True):
    """One request. Header names are lower-case; a repeated header is one, joined by commas.

    `query` has no question mark and is empty where there is none. Headers and body stay out of the
    `repr`, so that a signature or an utterance never reaches a log by accident.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""

    def __repr__(self) -> str:
        return f"HttpRequest({self.method!r}, {self.path!r}, {self.query!r})"


class HttpResponse(msgspec.Struct, frozen=True):
    """One answer. A body of `bytes` goes out exactly as it is."""

    status: int
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: str | bytes = ""

    def __repr__(self) -> str:
        return f"HttpResponse({self.status}, {self.headers!r})"

    def to_event(self) -> dict[str, object]:
        """The answer as both kinds of gateway take it from a function."""
        encoded = isinstance(self.body, bytes)
        body = base64.b64encode(self.body).decode() if isinstance(self.body, bytes) else self.body
        return {
            "statusCode": self.status,
            "headers": dict(self.headers),
            "body": body,
            "isBase64Encoded": encoded,
        }


def from_event(event: Mapping[str, object]) -> HttpRequest:
    """The request in a trigger document of either shape.

    Raises `Invalid` (`malformed_request`) where the document is of neither shape, or where its body
    is said to be base64 and is not, to the letter: no other alphabet, white space, missing padding
    or stray bits.
    """
    if event.get("version") == "2.0":
        http = _mapping(_mapping(event.get("requestContext")).get("http"))
        return HttpRequest(
            method=_text(http.get("method")),
            path=_text(event.get("rawPath")),
            query=_text(event.get("rawQueryString", "")),
            headers=_joined(
                (name, [value]) for name, value in _mapping(event.get("headers")).items()
            ),
            body=_body(event),
        )
    return HttpRequest(
        method=_text(event.get("httpMethod")),
        path=_text(event.get("path")),
        query="&".join(
            f"{_quoted(name)}={_quoted(_text(value))}"
            for name, values in _repeated(event, "multiValueQueryStringParameters")
            for value in values
        ),
        headers=_joined(_repeated(event, "multiValueHeaders")),
        body=_body(event),
    )


def _repeated(event: Mapping[str, object], many: str) -> list[tuple[str, list[object]]]:
    """A REST event's pairs: from the map of lists or, where a tool leaves it out, the plain one."""
    if event.get(many) is not None:
        pairs = _mapping(event[many]).items()
        return [(name, values) for name, values in pairs if isinstance(values, list)]
    single = "headers" if many == "multiValueHeaders" else "queryStringParameters"
    return [(name, [value]) for name, value in _mapping(event.get(single)).items()]


def _joined(pairs: Iterable[tuple[str, list[object]]]) -> dict[str, str]:
    """Headers by lower-case name; names that differ only by case are one header."""
    headers: dict[str, str] = {}
    for name, values in pairs:
        for value in values:
            key = name.lower()
            headers[key] = f"{headers[key]},{_text(value)}" if key in headers else _text(value)
    return headers


def _body(event: Mapping[str, object]) -> bytes:
    body = event.get("body")
    if body is None:
        return b""
    text = _text(body)
    if event.get("isBase64Encoded") is not True:
        # A lone surrogate becomes bytes that no caller signed, and is refused as those are.
        return text.encode("utf-8", "surrogatepass")
    try:
        decoded = base64.b64decode(text, validate=True)
    except ValueError:
        raise _malformed() from None
    if base64.b64encode(decoded).decode() != text:
        raise _malformed()
    return decoded


def _quoted(text: str) -> str:
    """Percent-encodes what a REST event carries decoded."""
    return "".join(
        chr(byte) if byte in _UNRESERVED else f"%{byte:02X}"
        for byte in text.encode("utf-8", "surrogatepass")
    )


def _mapping(value: object) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _malformed()
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _malformed()
    return value


def _malformed() -> Invalid:
    return Invalid("malformed_request", "the request could not be read")
