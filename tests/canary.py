"""Owns the watch over every secret of every test: what was minted, shown or sealed, and whether it
turns up where it must not.

Refuses to ask a test what its secrets are: each has a form of its own (`whsec_…`, `mop_…`; what
tests give begins with `canary-`), and the newest that were minted or sealed are known by value. It
listens to every row, queue message, log line, error and HTTP answer of the whole suite;
`tests/conftest.py` fails the test in which something was found.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final
from weakref import WeakKeyDictionary

from infra.local.aws.messages import Message, Queue
from infra.local.aws.rows import Rows
from infra.local.aws.values import Item
from infra.local.gateway import Gateway, Request, Response
from infra.local.runtime import FunctionError, Runtime
from mesh.control.operators import MintedToken, Operators
from mesh.kernel.errors import MeshError
from mesh.kernel.log import JsonLog
from mesh.security import sealing, signing

FORMS: Final = (
    ("whsec_", re.compile(r"whsec_[A-Za-z0-9+/]{40,}=*")),
    ("mop_", re.compile(r"mop_[0-9A-HJKMNP-TV-Z]{12}_[A-Za-z0-9_-]{43}")),
    ("canary-", re.compile(r"canary-\S*")),
)
"""How a secret looks, each with what is searched for first."""
KNOWN_MAX: Final = 64
"""How many secrets are known by their value, the newest: what is shown without its prefix."""
SHOWN_IN: Final = ("secret", "token", "webhook_secret")
"""The fields of an answer that show a secret, once."""
_HOST_ALONE: Final = re.compile(r"https?://[^/]*/?\Z")


class Watch:
    """What is searched for, and what was found."""

    def __init__(self) -> None:
        self.known: deque[str] = deque(maxlen=KNOWN_MAX)
        self._shown: WeakKeyDictionary[object, set[str]] = WeakKeyDictionary()
        self._found: list[str] = []
        self._lock = threading.Lock()  # scenarios with threads leave by many doors at once

    def know(self, secret: str) -> None:
        """From now on `secret` is found by its value, also without the prefix of its form.

        A URL's secret is its path; without one it is shown whole.
        """
        if _HOST_ALONE.match(secret):
            return
        bare = secret.removeprefix("whsec_") if secret.startswith("whsec_") else secret[-43:]
        with self._lock:
            if len(bare) >= 16 and bare not in self.known:
                self.known.append(bare)

    def look(self, where: str, text: str) -> None:
        """Searches `text`, which left the process by `where`."""
        for begins, form in FORMS:
            if begins in text and (found := form.search(text)) is not None:
                self._found.append(f"{where}: {found[0][:24]}…")
        with self._lock:
            known = tuple(self.known)
        self._found += [f"{where}: …{each[:12]}…" for each in known if each in text]

    def look_at_error(self, where: str, error: BaseException) -> None:
        """Searches all that Lambda would log of an error: it, its causes, and what they carry."""
        told: list[str] = []
        each: BaseException | None = error
        while each is not None and len(told) < 20:
            told.append(f"{each!r} {each} {each.args!r} {getattr(each, '__notes__', '')}")
            context = None if each.__suppress_context__ else each.__context__
            each = each.__cause__ or context
        self.look(where, "\n".join(told))

    def look_at_answer(self, by: object, asked: str, headers: str, body: str) -> None:
        """Searches an HTTP answer of `by`. That of a minting shows its secret, and no other does
        after it."""
        shown = self._shown.setdefault(by, set())
        for secret in _shown(body) if asked in ("POST", "PUT") else ():
            if secret not in shown:
                shown.add(secret)
                body = body.replace(secret, "")
        self.look("an HTTP answer", headers + body)

    def drain(self) -> list[str]:
        """What was found since the last time."""
        found, self._found = self._found, []
        return sorted(set(found))


WATCH: Final = Watch()


def _shown(body: str) -> Iterator[str]:
    try:
        document = json.loads(body)
    except ValueError:
        return
    if isinstance(document, dict):
        yield from (each for name in SHOWN_IN if isinstance(each := document.get(name), str))


def _texts(values: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Every text and every blob in wire values, a blob as the text of its bytes."""
    for value in values:
        ((kind, inner),) = value.items()
        match kind:
            case "S":
                yield inner
            case "B":
                yield base64.b64decode(inner).decode("latin-1")
            case "M":
                yield from _texts(inner.values())
            case "L":
                yield from _texts(inner)
            case "SS":
                yield from inner


def _row(item: Item) -> None:
    WATCH.look("a row", "\n".join(_texts(item.values())))


def _message(message: Message) -> None:
    WATCH.look("a queue message", f"{message.body} {message.group} {message.attributes}")


def install() -> None:
    """Listens from now on. Once, and before anything else of the product is imported: a module
    that has taken `seal` or `mint_secret` for its own is not heard."""
    Rows.listeners.append(_row)
    Queue.listeners.append(_message)
    _listen_to_secrets()
    _listen_to_words()


def _listen_to_secrets() -> None:
    mint, seal, create = signing.mint_secret, sealing.seal, Operators.create

    def minted(random: Any) -> str:
        secret = mint(random)
        WATCH.know(secret)
        return secret

    def sealed(key: Any, context: Any, plaintext: bytes, random: Any) -> bytes:
        WATCH.know(plaintext.decode("latin-1"))
        return seal(key, context, plaintext, random)

    def created(*given: Any, **more: Any) -> MintedToken:
        made = create(*given, **more)
        WATCH.know(made.token)
        return made

    signing.mint_secret, sealing.seal = minted, sealed
    Operators.create = created  # type: ignore[method-assign]


def _listen_to_words() -> None:
    log, refuse, answer, invoke = (
        JsonLog.__call__,
        MeshError.__init__,
        Gateway.answer,
        Runtime.invoke,
    )

    def logged(self: JsonLog, event: str, /, **fields: Any) -> None:
        WATCH.look("a log line", f"{event} {fields}")
        log(self, event, **fields)

    def refused(self: MeshError, *given: Any, **more: Any) -> None:
        refuse(self, *given, **more)
        WATCH.look("an error", f"{given} {more}")
        if (handled := sys.exc_info()[1]) is not None:
            WATCH.look_at_error("an error that became an answer", handled)

    def answered(self: Gateway, request: Request) -> Response:
        response = answer(self, request)
        WATCH.look_at_answer(
            self,
            request.method,
            repr(response.headers),
            response.body.decode("utf-8", "replace"),
        )
        return response

    def invoked(self: Runtime, name: str, event: dict[str, Any]) -> Any:
        try:
            return invoke(self, name, event)
        except FunctionError as crash:
            WATCH.look_at_error("an error that escaped a function", crash)
            raise

    JsonLog.__call__ = logged  # type: ignore[method-assign]
    MeshError.__init__ = refused  # type: ignore[method-assign]
    Gateway.answer = answered  # type: ignore[method-assign]
    Runtime.invoke = invoked  # type: ignore[method-assign]
