"""Owns the conversation with an operator API: requests out, answers and errors in.

Refuses to retry or to guess: an error says what came back, and whether trying later may help. The
command line is built on it, and so can be any other tool of an operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.security import urls
from mesh.security.addresses import parse_address

if TYPE_CHECKING:
    import httpx

CONNECT_S: Final = 5.0
ANSWER_S: Final = 35.0
"""Over the gateway's own 30 s, so that its answer is seen and not our time-out."""
LATER: Final = frozenset({429, 502, 503, 504})
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

Json = Any
"""A JSON document of the API. Its shapes are the API's word; the command line only shows them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of any status, for those who judge it themselves."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    json: Json
    """None where the body is no JSON."""


class ApiError(Exception):
    """The API refused or failed. `code` is its stable word, or empty when a gateway answered."""

    def __init__(self, answer: Answer, path: str = "") -> None:
        document = answer.json if isinstance(answer.json, dict) else {}
        error = document.get("error")
        error = error if isinstance(error, dict) else {}
        message = error.get("message") or document.get("message") or f"HTTP {answer.status}"
        super().__init__(str(message))
        self.status = answer.status
        self.path = path
        self.code = str(error.get("code", ""))
        self.message = str(message)
        self.fields: list[Json] = [f for f in error.get("fields") or [] if isinstance(f, dict)]
        self.request_id = error.get("request_id")
        self.retry_after = answer.headers.get("retry-after")
        self.current_version = error.get("current_version")

    @property
    def later(self) -> bool:
        """Whether the same may pass at another time."""
        return self.status in LATER


class UnreachableError(Exception):
    """No answer came. `later` when it was only slow; `sent` when the request may have arrived."""

    def __init__(self, message: str, *, later: bool, sent: bool) -> None:
        super().__init__(message)
        self.later = later
        self.sent = sent


class BadNameError(ValueError):
    """A name that would lead a request to another address than the one that is meant."""


class BadUrlError(ValueError):
    """An address that a token must not be sent to, or none at all."""


class BadHeaderError(ValueError):
    """A value that no header can carry."""


def checked_url(url: str) -> str:
    """`url` without a slash at its end. Raises BadUrlError.

    A token is a credential: it travels over https, or over http to this machine alone.
    """
    parts = urls.parse(url)
    if isinstance(parts, urls.Refusal) or parts.host is None:
        raise BadUrlError(f"{url!r} is not a URL; it looks like https://mesh.example.com")
    if parts.scheme not in ("https", "http") or parts.userinfo or parts.fragment:
        raise BadUrlError("the URL must be https:// and a host, without user, password or fragment")
    if "?" in parts.path:
        raise BadUrlError("the URL must have no query")
    if parts.scheme == "http" and not is_loopback(parts):
        raise BadUrlError("http would show the token to the network; use https")
    return url.rstrip("/")


def is_loopback(parts: urls.Parts) -> bool:
    """Whether the parts name this machine."""
    if parts.host is None or urls.is_local_name(parts.host):
        return parts.host is not None
    address = parse_address(parts.host)
    return address is not None and address.is_loopback


class OperatorClient:
    """Calls one instance of Mesh. `transport` is what a test puts in the network's place."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        transport: httpx.BaseTransport | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        import httpx

        self.url = checked_url(url)
        parts = urls.parse(self.url)
        headers = {"User-Agent": "mesh-cli", "Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(answer_s, connect=CONNECT_S),
            transport=transport,
            # A proxy from the environment has no way to this machine's own loopback.
            trust_env=not (isinstance(parts, urls.Parts) and is_loopback(parts)),
        )

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Json = None,
        content: bytes | None = None,
    ) -> Answer:
        """One request, and its answer whatever the status. Raises UnreachableError,
        BadHeaderError."""
        import httpx

        for name, value in (headers or {}).items():
            if not value.isascii() or not value.isprintable():
                raise BadHeaderError(f"{name} takes printable ASCII alone")
        given: dict[str, Json] = {}
        if content is not None:
            given["content"] = content
        elif body is not None:
            given["json"] = body
        try:
            response = self._http.request(
                method, self.url + path, params=params or None, headers=headers, **given
            )
        except httpx.ConnectTimeout:
            raise UnreachableError(f"{self.url} does not answer", later=True, sent=False) from None
        except httpx.ConnectError:
            raise UnreachableError(
                f"cannot connect to {self.url}; is it running, and is the URL right?",
                later=False,
                sent=False,
            ) from None
        except httpx.TimeoutException:
            raise UnreachableError(f"{self.url} took too long", later=True, sent=True) from None
        except httpx.RequestError:
            raise UnreachableError(
                f"the connection to {self.url} broke", later=True, sent=True
            ) from None
        try:
            document = response.json() if response.content else None
        except ValueError:
            document = None
        return Answer(response.status_code, response.headers, response.content, document)

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json = None,
        content: bytes | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
    ) -> Json:
        """One request whose answer's document is wanted: an object, or None with a 204.

        `content` goes out as it is, in place of a body, labelled `content_type`.

        Raises ApiError and UnreachableError, the latter also when another server answered.
        """
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        if content_type is not None:
            headers["Content-Type"] = content_type
        answer = self.send(method, path, params=params, headers=headers, body=body, content=content)
        if not 200 <= answer.status < 300:
            raise ApiError(answer, path)
        if answer.status != 204 and not isinstance(answer.json, dict):
            raise self._stranger()
        return answer.json

    def _stranger(self) -> UnreachableError:
        """What is said of an answer that no Mesh gives, such as a web page."""
        return UnreachableError(
            f"what answers at {self.url} is not Mesh; is the URL right?", later=False, sent=False
        )

    def pages(self, path: str, params: Mapping[str, str] | None = None) -> Iterator[Json]:
        """Every page of a list, `{"items":[…],"next_cursor":…}`, until there is no next."""
        asked = dict(params or {})
        while True:
            page = self.call("GET", path, params=asked)
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                raise self._stranger()
            yield page
            cursor = page.get("next_cursor")
            if cursor is None:
                return
            asked["cursor"] = cursor

    def items(self, path: str, params: Mapping[str, str] | None = None) -> Iterator[Json]:
        """Every item of a list."""
        for page in self.pages(path, {"limit": "200", **(params or {})}):
            yield from page["items"]


def segment(text: str) -> str:
    """`text` as one segment of a path. Raises BadNameError for what no path has as a segment."""
    if text in ("", ".", ".."):  # each would make it the path of something else
        raise BadNameError(f"{text!r} names nothing")
    return "".join(
        char if char in _UNRESERVED else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in text
    )
