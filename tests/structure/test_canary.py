"""The watch over secrets bites: a leak on purpose is caught in each place where one could be."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import pytest

from infra.local.gateway import Gateway, Request
from infra.local.runtime import FunctionError, Runtime
from mesh.kernel.errors import Failed, Invalid
from mesh.kernel.ids import Ids
from mesh.kernel.log import JsonLog
from mesh.storage import keys
from mesh.storage.table import ConditionFailed
from mesh.storage.writes import put
from tests.canary import WATCH
from tests.fakes.door import Door, StrictLog
from tests.fakes.operators import admin
from tests.fakes.system import SilentLog, System
from tests.fakes.time import SeededRandom, SimulatedClock

GIVEN = "canary-of-the-vault"
MINTED = "whsec_" + base64.b64encode(b"thirty-two bytes that are secret").decode()
TOKEN = "mop_0123456789AB_" + "x" * 43
HERE = keys.Key("LEAK", "LEAK")


@pytest.fixture(scope="module")
def system() -> System:
    return System(lag=False)


def crash(_: str) -> Any:
    def handler(_event: Any, _context: Any) -> Any:
        raise KeyError(GIVEN)

    return handler


def crashing() -> None:
    clock = SimulatedClock()
    runtime = Runtime(crash, clock, Ids(clock, SeededRandom()), SilentLog())
    with pytest.raises(FunctionError):
        runtime.invoke("sweep_due", {})


def answering(_: System) -> None:
    def invoke(_name: str, _event: dict[str, Any]) -> Any:
        return {"statusCode": 200, "body": GIVEN}

    gateway = Gateway(invoke, SimulatedClock(), SeededRandom())
    assert gateway.answer(Request("GET", "/healthz")).body


def refusing(_: System) -> None:
    try:
        int(GIVEN)
    except ValueError:
        Failed("internal", "no word of it here")


def old_item(system: System) -> None:
    system.table.write(put(HERE, {"value": GIVEN}))
    WATCH.drain()
    with pytest.raises(ConditionFailed) as caught:
        system.table.write(put(HERE, {"value": "x"}, "attribute_not_exists(#pk)"))
    error = caught.value
    error.args = (error.old,)
    WATCH.look_at_error("an error that escaped a function", error)


def escaping_ingress(_: System) -> None:
    def handler(_event: Any, _context: Any) -> Any:
        raise LookupError(GIVEN)

    with pytest.raises(LookupError):
        Door().ask({}, b"", handler=handler)


def ring(system: System) -> None:
    url = system.stack.settings.queue_urls["turns"]
    system.stack._clients.sqs.send_message(QueueUrl=url, MessageBody=GIVEN)


LEAKS: dict[str, Callable[[System], object]] = {
    "a text in a row": lambda s: s.table.write(put(HERE, {"value": f"it is {GIVEN}"})),
    "bytes in a row": lambda s: s.table.write(put(HERE, {"value": GIVEN.encode()})),
    "deep in a row": lambda s: s.table.write(put(HERE, {"value": [{"a": GIVEN.encode()}]})),
    "a minted secret in a row": lambda s: s.table.write(put(HERE, {"value": MINTED})),
    "a token in a row": lambda s: s.table.write(put(HERE, {"value": TOKEN})),
    "a known secret without its prefix": lambda s: s.table.write(
        put(HERE, {"value": s.make_install().secret.removeprefix("whsec_")})
    ),
    "an old item in an error": old_item,
    "a queue message": ring,
    "a silent log": lambda _: SilentLog()("event", reason=GIVEN),
    "a strict log": lambda _: StrictLog()("event", reason=GIVEN),
    "the product's log": lambda _: JsonLog("leak", stream=io.StringIO())("event", reason=GIVEN),
    "an error's words": lambda _: Invalid("invalid_request", f"not {GIVEN}"),
    "what an error was made of": refusing,
    "an error that escapes": lambda _: crashing(),
    "an error that escapes the ingress": escaping_ingress,
    "an answer": answering,
}


@pytest.mark.parametrize("place", LEAKS)
def test_a_leak_on_purpose_is_caught(system: System, place: str) -> None:
    LEAKS[place](system)
    assert WATCH.drain() != []


def test_a_secret_may_be_shown_once_and_is_caught_the_second_time(system: System) -> None:
    made = admin(system).ok("POST", "/api/agents/ada/connectors", {"kind": "generic"})
    assert WATCH.drain() == []
    body = '{"secret":"' + made["secret"] + '"}'
    WATCH.look_at_answer(system.stack.gateway, "POST", "", body)
    assert WATCH.drain() != []
