"""Every adapter tells every failure by how far the request got and what kept it, in no word of the
provider's, and never asks twice."""

from __future__ import annotations

import datetime as dt
import gzip
import socket
import ssl
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Mapping
from email.utils import format_datetime
from typing import Any

import pytest
import trustme

from mesh.kernel.limits import PROVIDER_ANSWER_BYTES_MAX
from mesh.tools.web.contract import FailureKind, ProviderFailure, Stage
from tests.fakes.model_servers import WireReply, as_json
from tests.fakes.web_servers import JSON, PRIVATE
from tests.unit.security.peer import Peer, Script, drips, ends_properly, hangs, resets, says
from tests.unit.web.apis import SAID, Api, outcome

ANSWER, PAGE, REQUEST = Stage.ANSWER, Stage.PAGE, Stage.REQUEST
K = FailureKind
Outcomes = tuple[Stage, FailureKind] | tuple[tuple[Stage, FailureKind], ...]

UNREACHABLE = (PAGE, K.UNREACHABLE)
EXPECTED: Mapping[str, Mapping[str, Outcomes]] = {
    "brave": {
        "bad key": (ANSWER, K.AUTHORIZATION),
        "bad key, plural": (ANSWER, K.AUTHORIZATION),
        "no key": (ANSWER, K.AUTHORIZATION),
        "bad parameter": (ANSWER, K.REFUSED),
        "bad parameter, plural": (ANSWER, K.REFUSED),
        "no subscription": (ANSWER, K.NOT_FOUND),
        "option not in plan": (ANSWER, K.AUTHORIZATION),
        "rate": (ANSWER, K.RATE),
        "quota": (ANSWER, K.QUOTA),
        "unauthorized": (ANSWER, K.AUTHORIZATION),
        "forbidden": (ANSWER, K.AUTHORIZATION),
        "internal": (ANSWER, K.UNAVAILABLE),
        "unavailable": (ANSWER, K.UNAVAILABLE),
    },
    "perplexity": {
        "bad request": (ANSWER, K.REFUSED),
        "bad key": (ANSWER, K.AUTHORIZATION),
        "bad key, as a page of the edge": (ANSWER, K.AUTHORIZATION),
        "no credit": (ANSWER, K.QUOTA),
        "forbidden": (ANSWER, K.AUTHORIZATION),
        "not found": (ANSWER, K.NOT_FOUND),
        "conflict": (ANSWER, K.REFUSED),
        "bad body": (ANSWER, K.REFUSED),
        "rate": (ANSWER, K.RATE),
        "rate, as a page of the edge": (ANSWER, K.RATE),
        "internal": (ANSWER, K.UNAVAILABLE),
        "gateway": (ANSWER, K.UNAVAILABLE),
        "unavailable": (ANSWER, K.UNAVAILABLE),
        "timeout of the edge": (ANSWER, K.TIMEOUT),
        "unavailable, without a word": (ANSWER, K.UNAVAILABLE),
    },
    "firecrawl": {
        "bad request": (ANSWER, K.REFUSED),
        "no JSON": (ANSWER, K.REFUSED),
        "actions": (ANSWER, K.REFUSED),
        "content too large": ((PAGE, K.TOO_LARGE), (ANSWER, K.TOO_LARGE)),
        "unknown key": (ANSWER, K.REFUSED),
        "bad key": (ANSWER, K.AUTHORIZATION),
        "no credits": (ANSWER, K.QUOTA),
        "no credits, in an envelope": (ANSWER, K.QUOTA),
        "forbidden": ((ANSWER, K.AUTHORIZATION), (ANSWER, K.REFUSED)),
        "terms": ((ANSWER, K.REFUSED), (ANSWER, K.AUTHORIZATION), (PAGE, K.REFUSED)),
        "site not supported": ((PAGE, K.REFUSED), (ANSWER, K.REFUSED)),
        "site blocked": ((PAGE, K.REFUSED), (ANSWER, K.REFUSED)),
        "site in safe mode": (PAGE, K.REFUSED),
        "injection": (PAGE, K.REFUSED),
        "media": (PAGE, K.REFUSED),
        "not found": (ANSWER, K.NOT_FOUND),
        "no copy": ((PAGE, K.REFUSED), (ANSWER, K.NOT_FOUND)),
        "no copy, locked down": ((PAGE, K.REFUSED), (ANSWER, K.NOT_FOUND)),
        "gone": (ANSWER, K.NOT_FOUND),
        "timeout": ((PAGE, K.TIMEOUT), (ANSWER, K.TIMEOUT)),
        "timeout of a large PDF": (PAGE, K.TIMEOUT),
        "queue timeout": ((ANSWER, K.TIMEOUT), (ANSWER, K.RATE), (ANSWER, K.UNAVAILABLE)),
        "conflict": (ANSWER, K.REFUSED),
        "too large": ((ANSWER, K.REFUSED), (ANSWER, K.TOO_LARGE), (PAGE, K.TOO_LARGE)),
        "schema": (ANSWER, K.REFUSED),
        "rate": (ANSWER, K.RATE),
        "rate, without envelope": (ANSWER, K.RATE),
        "dns, as a success": UNREACHABLE,
        "dns": UNREACHABLE,
        "certificate": UNREACHABLE,
        "site": UNREACHABLE,
        "all engines": UNREACHABLE,
        "retries": UNREACHABLE,
        "file": (PAGE, K.REFUSED),
        "PDF": (PAGE, K.REFUSED),
        "retention": (ANSWER, K.REFUSED),
        "action": (ANSWER, K.UNAVAILABLE),
        "unknown": (ANSWER, K.UNAVAILABLE),
        "internal": (ANSWER, K.UNAVAILABLE),
        "gateway": (ANSWER, K.UNAVAILABLE),
        "unavailable": (ANSWER, K.UNAVAILABLE),
        "timeout of the gateway": (ANSWER, K.TIMEOUT),
        "unsuccessful": ((ANSWER, K.UNAVAILABLE), (ANSWER, K.MALFORMED)),
        "unsuccessful, without a word": ((ANSWER, K.UNAVAILABLE), (ANSWER, K.MALFORMED)),
    },
    "cloudflare": {
        "bad request": (ANSWER, K.REFUSED),
        "malformed token": (ANSWER, K.AUTHORIZATION),
        "bad token": (ANSWER, K.AUTHORIZATION),
        "no access to the account": (ANSWER, K.AUTHORIZATION),
        "forbidden": (ANSWER, K.AUTHORIZATION),
        "no such account": (ANSWER, K.NOT_FOUND),
        "timeout": ((PAGE, K.TIMEOUT), (ANSWER, K.TIMEOUT)),
        "too large": ((ANSWER, K.REFUSED), (ANSWER, K.TOO_LARGE), (PAGE, K.TOO_LARGE)),
        "certificate": UNREACHABLE,
        "address": UNREACHABLE,
        "connection timed out": (UNREACHABLE, (PAGE, K.TIMEOUT)),
        "too many redirects": (UNREACHABLE, (PAGE, K.HTTP_ERROR), (PAGE, K.REFUSED)),
        "http2": UNREACHABLE,
        "dns": UNREACHABLE,
        "reset": UNREACHABLE,
        "http error": (PAGE, K.HTTP_ERROR),
        "refused connection": UNREACHABLE,
        "other network error": UNREACHABLE,
        "blocked address": (PAGE, K.REFUSED),
        "empty answer": (PAGE, K.EMPTY),
        "page crash": (UNREACHABLE, (PAGE, K.UNAVAILABLE)),
        "page closed": (UNREACHABLE, (PAGE, K.UNAVAILABLE)),
        "page timeout": (PAGE, K.TIMEOUT),
        "page failed": ((PAGE, K.UNAVAILABLE), UNREACHABLE),
        "too much time today": (ANSWER, K.QUOTA),
        "rate": (ANSWER, K.RATE),
        "rate, with a code": (ANSWER, K.RATE),
        "internal": (ANSWER, K.UNAVAILABLE),
        "no browser": (ANSWER, K.UNAVAILABLE),
        "gateway": (ANSWER, K.UNAVAILABLE),
        "unsuccessful": ((ANSWER, K.UNAVAILABLE), (ANSWER, K.MALFORMED)),
        "unsuccessful, with a code": UNREACHABLE,
        "unsuccessful, without a word": ((ANSWER, K.UNAVAILABLE), (ANSWER, K.MALFORMED)),
    },
}
"""What each documented error is told as; several where the documents leave it open."""


def assert_one_of(failure: ProviderFailure, expected: Outcomes) -> None:
    among = expected if isinstance(expected[0], tuple) else (expected,)
    assert outcome(failure) in among


def assert_found_or_malformed(found: object) -> None:
    if isinstance(found, ProviderFailure):
        assert outcome(found) == (ANSWER, K.MALFORMED)


def assert_found_or_malformed_or_unavailable(found: object) -> None:
    if isinstance(found, ProviderFailure):
        assert outcome(found) in ((ANSWER, K.MALFORMED), (ANSWER, K.UNAVAILABLE))


# ---- errors of the API


def test_every_error_that_a_stand_in_knows_is_expected() -> None:
    assert {name: set(said.errors) for name, said in SAID.items()} == {
        name: set(errors) for name, errors in EXPECTED.items()
    }


@pytest.mark.behaviour("web:tests", "web:failures")
@pytest.mark.parametrize(
    ("name", "error"), [(name, error) for name, said in SAID.items() for error in said.errors]
)
def test_an_error_of_the_api_is_told_as_what_it_is_and_not_asked_for_again(
    name: str, error: str, secured: Callable[[str], Any]
) -> None:
    api = Api(name, secured(name))
    api.server.sends(api.errors[error], WireReply(200, as_json(api.good()), JSON))
    failure = api.fails()
    api.close()
    assert_one_of(failure, EXPECTED[name][error])
    assert api.peer.connections == 1
    assert len(api.server.requests) == 1


def test_a_key_that_the_api_does_not_know_is_told_as_that(api: Api) -> None:
    api.server.key = "canary-another-key"
    with pytest.raises(ProviderFailure) as caught:
        api.ask()
    assert outcome(caught.value) == (ANSWER, K.AUTHORIZATION)


OPEN_STATUSES: Mapping[tuple[str, int], tuple[tuple[Stage, FailureKind], ...]] = {
    # A site that it does not open, and terms that are not agreed to, are 403 as well.
    ("firecrawl", 403): ((ANSWER, K.REFUSED), (PAGE, K.REFUSED)),
    # Whatever is wrong with the page is 422, and nothing else is.
    ("cloudflare", 422): ((PAGE, K.UNAVAILABLE), (PAGE, K.UNREACHABLE)),
}
"""What a status may be told as beside what it says of itself, because the API means more by it."""


@pytest.mark.parametrize("body", [b"", b"<html>" + PRIVATE.encode(), b"[" * 90_000, b"\xff{}"])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, K.REFUSED),
        (401, K.AUTHORIZATION),
        (403, K.AUTHORIZATION),
        (404, K.NOT_FOUND),
        (422, K.REFUSED),
        (429, K.RATE),
        (500, K.UNAVAILABLE),
        (502, K.UNAVAILABLE),
        (503, K.UNAVAILABLE),
        (529, K.UNAVAILABLE),
    ],
)
def test_an_error_without_words_is_told_by_its_status(
    api: Api, status: int, kind: FailureKind, body: bytes
) -> None:
    api.server.sends(WireReply(status, body, {"Content-Type": "text/html"}))
    open_ones = OPEN_STATUSES.get((api.name, status), ())
    assert_one_of(api.fails(), ((ANSWER, kind), *open_ones))


@pytest.mark.parametrize(
    "words",
    [
        {"error": None},
        {"error": []},
        {"error": 5, "errors": {"code": 5}},
        {"error": {"code": {"x": 1}, "meta": []}, "errors": [None, [], "x", {"code": []}]},
        {"code": ["SCRAPE_TIMEOUT"], "errors": [{"code": 1e400}]},
        {"errors": [{"code": True}], "code": 10_000},
        [],
        "RATE_LIMITED",
        None,
    ],
    ids=str,
)
def test_an_error_in_strange_words_is_told_by_its_status(api: Api, words: Any) -> None:
    api.server.says(words, 503)
    assert outcome(api.fails()) == (ANSWER, K.UNAVAILABLE)


# ---- redirects


@pytest.mark.behaviour("web:tests", "search:no-redirect-no-proxy")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_nobody_goes_there(api: Api, status: int) -> None:
    other = Peer(says(b"HTTP/1.1 200 OK\r\n\r\n"))
    location = f"http://127.0.0.1:{other.port}/{PRIVATE.split()[0]}"
    api.server.sends(WireReply(status, as_json(api.good()), {**JSON, "Location": location}))
    failure = api.fails()
    other.close()
    assert failure.stage is ANSWER
    assert failure.kind in (K.MALFORMED, K.REFUSED, K.UNAVAILABLE)
    assert (other.connections, api.peer.connections) == (0, 1)


# ---- when to come again


def rate_error(api: Api) -> WireReply:
    reply = api.errors["rate"]
    kept = {
        name: value
        for name, value in reply.headers.items()
        if name != "Retry-After" and not name.startswith("X-RateLimit")
    }
    return WireReply(429, reply.body, kept)


def told_to_wait(api: Api, **headers: str) -> float | None:
    reply = rate_error(api)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    api.server.sends(WireReply(429, reply.body, {**reply.headers, **named}))
    return api.fails().retry_after_s


def test_what_an_api_says_of_when_to_come_again_is_told(api: Api) -> None:
    assert told_to_wait(api) is None
    assert told_to_wait(api, Retry_After="7") == 7.0
    at = dt.datetime.fromtimestamp(api.clock.now_ms() / 1000 + 90, dt.UTC)
    assert told_to_wait(api, Retry_After=format_datetime(at, usegmt=True)) == 90.0


@pytest.mark.parametrize(
    "said", ["soon", "-5", "", "1e9", "nan", "inf", "9" * 400, "٧", "7, 8", "0x10", "Mon, 99 Foo"]
)
def test_nonsense_of_when_to_come_again_is_not_believed(api: Api, said: str) -> None:
    if not said.isascii():
        api.server.sends(_raw(api, b"Retry-After: " + said.encode() + b"\r\n"))
        waits = api.fails().retry_after_s
    else:
        waits = told_to_wait(api, Retry_After=said)
    assert waits is None or 0 <= waits < 1e9


def test_a_date_that_is_over_asks_for_no_wait(api: Api) -> None:
    past = told_to_wait(api, Retry_After="Sun, 06 Nov 1994 08:49:37 GMT")
    assert past in (None, 0.0)


@pytest.mark.parametrize(
    ("remaining", "reset", "waits"),
    [
        ("0, 1000", "1, 1419704", 1.0),
        ("1, 0", "1, 1419704", 1_419_704.0),
        ("0, 0", "1, 1419704", None),
        ("1, 5", "1, 1419704", None),
        ("0", "3", 3.0),
        ("0,5", "3,9", 3.0),
        ("0, 1000", "1", 1.0),
        ("0, 1000", "soon, 5", None),
        ("", "", None),
        ("x, y", "1, 2", None),
        ("0, 1", "-4, 2", None),
    ],
)
def test_braves_windows_tell_when_to_come_again(
    remaining: str, reset: str, waits: float | None
) -> None:
    api = Api("brave")
    found = told_to_wait(api, X_RateLimit_Remaining=remaining, X_RateLimit_Reset=reset)
    api.close()
    if (remaining, reset) == ("0, 0", "1, 1419704"):
        assert found in (1.0, 1_419_704.0)
    else:
        assert found == waits


def test_firecrawl_and_cloudflare_tell_it_with_their_own_errors(read: Api) -> None:
    read.server.sends(read.errors["rate"])
    assert read.fails().retry_after_s == 7.0


# ---- pages


@pytest.mark.behaviour("fetch:failures")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 429, 500, 503])
def test_a_page_that_answers_with_an_error_is_no_page(status: int) -> None:
    api = Api("firecrawl")
    error = {"statusCode": status, "error": PRIVATE}
    api.server.says(api.module.page("https://goats.example/", metadata=error))
    failure = api.fails()
    api.close()
    assert outcome(failure) == (PAGE, K.HTTP_ERROR)
    assert failure.page_status == status


@pytest.mark.behaviour("fetch:failures")
@pytest.mark.parametrize("empty", ["", " \n\t\n ", "\u200b" * 0, None])
def test_a_page_without_content_is_no_page(read: Api, empty: str | None) -> None:
    if read.name == "firecrawl":
        read.server.says(read.module.page("https://goats.example/", markdown=empty))
    else:
        read.server.says(read.module.page(empty))
    failure = read.fails()
    assert failure.kind in ((K.EMPTY,) if empty is not None else (K.EMPTY, K.MALFORMED))
    assert failure.stage in (PAGE, ANSWER)


# ---- answers that are none


DEEP = b'{"success":true,"type":"search","web":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
NO_ANSWERS: Mapping[str, bytes] = {
    "nothing": b"",
    "space": b" \r\n",
    "a page": b"<!doctype html><title>" + PRIVATE.encode() + b"</title>",
    "words": PRIVATE.encode(),
    "cut short": b'{"success": true, "type": "search", "web": {"results": [{"title": "PRIVATE',
    "null": b"null",
    "a number": b"5",
    "a list": b"[]",
    "an object of nothing": b"{}",
    "very deep": DEEP,
    "a number too long": b'{"x": ' + b"9" * 50_000 + b"}",
    "not UTF-8": b'{"success": true, "x": "\xff\xfe"',
    "UTF-16": '{"success": true}'.encode("utf-16"),
    "two documents": b'{"success": true}{"success": true}',
    "NaN": b"NaN",
    "compressed": gzip.compress(b'{"success": true}'),
}


@pytest.mark.behaviour("web:tests")
@pytest.mark.parametrize("case", NO_ANSWERS)
def test_an_answer_that_is_none_is_malformed(api: Api, case: str) -> None:
    api.server.sends(WireReply(200, NO_ANSWERS[case], JSON))
    assert outcome(api.fails()) == (ANSWER, K.MALFORMED)


@pytest.mark.parametrize("status", [201, 202, 204, 206])
def test_a_success_of_another_kind_without_an_answer_is_malformed(api: Api, status: int) -> None:
    api.server.sends(says(b"HTTP/1.1 %d So\r\n\r\n" % status))
    assert api.fails().kind in (K.MALFORMED, K.UNREACHABLE)


@pytest.mark.parametrize("wrong", [5, "x", True, [], {}, [5], [[]], None], ids=str)
def test_results_of_another_shape_are_malformed_or_none(search: Api, wrong: Any) -> None:
    answers: list[Any] = [search.good() | {"results": wrong}]
    if search.name == "brave":
        answers = [search.good() | {"web": wrong}, search.good() | {"web": {"results": wrong}}]
    for answer in answers:
        search.server.says(answer)
        assert_found_or_malformed(search.came_to())


def test_an_answer_of_brave_that_is_no_search_is_malformed() -> None:
    api = Api("brave")
    answers: list[Any] = [{"type": "other"}, {"web": None}, {"type": None, "query": {}}]
    for answer in answers:
        api.server.says(answer)
        assert outcome(api.fails()) == (ANSWER, K.MALFORMED)
    api.close()


@pytest.mark.parametrize("wrong", [5, True, [], {}, ["x"], [[]]], ids=str)
def test_content_of_another_shape_is_malformed(read: Api, wrong: Any) -> None:
    if read.name == "firecrawl":
        answers = [
            read.module.page("https://goats.example/", markdown=wrong),
            {"success": True, "data": wrong},
        ]
    else:
        answers = [read.module.page(wrong)]
    for answer in answers:
        read.server.says(answer)
        assert read.fails().kind in (K.MALFORMED, K.EMPTY)


@pytest.mark.parametrize("wrong", ["true", 1, None, "yes", {}], ids=str)
def test_success_is_told_by_true_alone(read: Api, wrong: Any) -> None:
    read.server.says(read.good() | {"success": wrong})
    assert read.fails().kind in (K.MALFORMED, K.UNAVAILABLE)


@pytest.mark.behaviour("fetch:failures")
@pytest.mark.parametrize("name", ["firecrawl", "cloudflare"])
@pytest.mark.parametrize(
    ("told", "status"),
    [("404", 404), (404.0, 404), (600, 600), (999, 999), (1e308, 999), ("0999", 999)],
    ids=str,
)
def test_an_error_of_a_page_is_one_however_it_is_written(name: str, told: Any, status: int) -> None:
    api = Api(name)
    good = api.good()
    if name == "firecrawl":
        good["data"]["metadata"]["statusCode"] = told
    else:
        good["meta"] = {"status": told, "title": "T"}
    api.server.says(good)
    failure = api.fails()
    api.close()
    assert (outcome(failure), failure.page_status) == ((PAGE, K.HTTP_ERROR), status)


@pytest.mark.parametrize("wrong", [True, None, -1, 99, "", "4a4", "4" * 5000, "\u0664", [404]])
def test_a_status_of_the_page_that_is_none_does_not_hurt(wrong: Any) -> None:
    api = Api("firecrawl")
    api.server.says(api.module.page("https://goats.example/", metadata={"statusCode": wrong}))
    found = api.came_to()
    api.close()
    assert not isinstance(found, ProviderFailure)


def test_a_byte_order_mark_is_no_trap(api: Api) -> None:
    api.server.sends(WireReply(200, b"\xef\xbb\xbf" + as_json(api.good()), JSON))
    assert_found_or_malformed(api.came_to())


def test_fields_that_are_there_twice_are_no_trap(api: Api) -> None:
    body = as_json(api.good())
    api.server.sends(WireReply(200, body[:-1] + b', "success": true, "type": "search"}', JSON))
    assert_found_or_malformed(api.came_to())


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "br", "zstd", "gzip, gzip"])
def test_a_compressed_answer_that_nobody_asked_for_is_malformed(api: Api, coding: str) -> None:
    packed = gzip.compress(as_json(api.good()))
    packed = zlib.compress(as_json(api.good())) if coding == "deflate" else packed
    api.server.sends(WireReply(200, packed, {**JSON, "Content-Encoding": coding}))
    assert outcome(api.fails()) == (ANSWER, K.MALFORMED)


@pytest.mark.parametrize("told", [True, False], ids=["told", "untold"])
def test_a_bomb_is_not_set_off(api: Api, told: bool) -> None:
    bomb = gzip.compress(b'{"success": true, "x": "' + bytes(64 << 20))
    coding = {"Content-Encoding": "gzip"} if told else {}
    api.server.sends(WireReply(200, bomb, {**JSON, **coding}))
    tracemalloc.start()
    failure = api.fails()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert outcome(failure) == (ANSWER, K.MALFORMED)
    assert peak < 8 << 20


@pytest.mark.parametrize("status", [200, 404, 500])
def test_a_page_in_html_is_no_answer_under_any_name(api: Api, status: int) -> None:
    page = b"<!doctype html><title>" + PRIVATE.encode() + b"</title>"
    for kind in ("application/json", "text/html", "image/png", "\x01nonsense"):
        api.server.sends(WireReply(status, page, {"Content-Type": kind}))
        failure = api.fails()
        assert failure.stage in (ANSWER, PAGE)
        assert status != 200 or failure.kind is K.MALFORMED


NESTED = 40_000


@pytest.mark.parametrize("where", ["x", "results", "web", "data", "result", "error", "errors"])
def test_nesting_in_any_field_is_bounded(api: Api, where: str) -> None:
    for deep in ("[" * NESTED + "]" * NESTED, '{"a":' * NESTED + "1" + "}" * NESTED):
        body = as_json(api.good())[:-1] + f', "{where}": {deep}}}'.encode()
        api.server.sends(WireReply(200, body, JSON))
        assert outcome(api.fails()) == (ANSWER, K.MALFORMED)


@pytest.mark.parametrize("names", [("results", "web"), ("data", "result"), ("success", "type")])
def test_a_field_that_is_there_twice_is_one_of_both(api: Api, names: tuple[str, str]) -> None:
    more = "".join(f', "{name}": {{"PRIVATE": 1}}' for name in names).encode()
    api.server.sends(WireReply(200, as_json(api.good())[:-1] + more + b"}", JSON))
    found = api.came_to()
    assert_found_or_malformed_or_unavailable(found)


# ---- the wire


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.behaviour("web:tests", "search:wire-2mib", "fetch:wire-2mib", "web:bounded")
@pytest.mark.parametrize("length", [True, False], ids=["told", "untold"])
def test_an_answer_beyond_two_mebibytes_is_refused_while_it_is_read(api: Api, length: bool) -> None:
    size = PROVIDER_ANSWER_BYTES_MAX + 1
    head = HEAD + (b"Content-Length: %d\r\n" % (size * 4) if length else b"") + b"\r\n"
    api.server.sends(_endless(head))
    failure = api.fails()
    assert failure.kind is K.TOO_LARGE
    assert failure.stage in (ANSWER, REQUEST)


def _keeps_back(sock: socket.socket, over: threading.Event) -> None:
    sock.sendall(HEAD + b"Content-Length: 99\r\n\r\n{")
    over.wait(10)


SLOW: Mapping[str, Script] = {
    "says nothing": hangs,
    "drips its head": drips(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "drips its body": drips(HEAD + b"\r\n{", b" "),
    "drips chunks": drips(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "keeps a part back": _keeps_back,
    "has hints": drips(b"", b"HTTP/1.1 103 Hints\r\nLink: x"),
}


@pytest.mark.behaviour("web:tests")
@pytest.mark.parametrize("case", SLOW)
@pytest.mark.parametrize("name", SAID)
def test_an_api_that_takes_too_long_is_given_up_in_time(name: str, case: str) -> None:
    api = Api(name)
    api.egress.total_s = 0.3
    api.server.sends(SLOW[case])
    failure = api.fails()
    api.close()
    assert failure.kind is K.TIMEOUT
    assert failure.stage in (REQUEST, ANSWER)
    assert api.peer.connections == 1


BROKEN: Mapping[str, tuple[Script, tuple[FailureKind, ...]]] = {
    "closes at once": (says(), (K.UNREACHABLE,)),
    "resets": (resets, (K.UNREACHABLE,)),
    "closes in its head": (says(b"HTTP/1.1 200 OK\r\nX: "), (K.UNREACHABLE,)),
    "closes in its body": (
        says(HEAD + b'Content-Length: 500\r\n\r\n{"success": true'),
        (K.UNREACHABLE, K.MALFORMED),
    ),
    "closes in a chunk": (
        says(HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{"),
        (K.UNREACHABLE, K.MALFORMED),
    ),
    "closes without TLS's end": (
        says(HEAD + b'\r\n{"success": true'),
        (K.UNREACHABLE, K.MALFORMED),
    ),
    "is cut off properly": (ends_properly(HEAD + b"\r\n{"), (K.MALFORMED,)),
    "speaks no HTTP": (says(b"SSH-2.0-PRIVATE\r\n\r\n"), (K.MALFORMED, K.UNREACHABLE)),
    "has a bad chunk": (
        says(HEAD + b"Transfer-Encoding: chunked\r\n\r\nPRIVATE\r\n"),
        (K.MALFORMED, K.UNREACHABLE),
    ),
    "has two lengths": (
        says(HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
        (K.MALFORMED, K.UNREACHABLE),
    ),
    "has a long head": (
        says(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 40_000 + b"\r\n\r\n"),
        (K.TOO_LARGE, K.MALFORMED),
    ),
    "has many headers": (says(HEAD + b"X: y\r\n" * 200 + b"\r\n{}"), (K.TOO_LARGE, K.MALFORMED)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_connection_that_breaks_is_told_and_not_tried_again(api: Api, case: str) -> None:
    script, kinds = BROKEN[case]
    api.server.sends(script)
    failure = api.fails()
    assert failure.kind in kinds
    assert failure.stage in (REQUEST, ANSWER)
    assert api.peer.connections == 1


def test_an_api_that_nobody_answers_for_is_unreachable(api: Api) -> None:
    api.peer.close()
    assert outcome(api.fails()) == (REQUEST, K.UNREACHABLE)


@pytest.mark.behaviour("fetch:tls")
@pytest.mark.parametrize("fault", ["wrong name", "unknown authority", "no TLS"])
@pytest.mark.parametrize("name", SAID)
def test_an_api_without_its_certificate_is_told_nothing(
    name: str, fault: str, authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    host = Api.host_of(name)
    if fault == "unknown authority":
        trustme.CA().issue_cert(host).configure_cert(context)
    else:
        authority.issue_cert("api.example.com").configure_cert(context)
    peer = Peer(says(b""), None if fault == "no TLS" else context, reads_request=fault != "no TLS")
    api = Api(name, (context, trusting), peer)
    failure = api.fails()
    api.close()
    assert outcome(failure) == (REQUEST, K.UNREACHABLE)
    assert peer.requests == []


@pytest.mark.parametrize("key", ["canary-k\r\nX-Evil: 1", "canary-kéy", "canary-\x00", ""])
def test_a_key_that_no_header_takes_is_a_failure_and_not_sent(api: Api, key: str) -> None:
    api.use_key(key)
    with pytest.raises(ProviderFailure) as caught:
        api.ask()
    assert caught.value.kind is K.AUTHORIZATION or caught.value.stage is Stage.CREDENTIAL
    assert api.peer.connections == 0


def _endless(head: bytes) -> Script:
    """Sends `head` and then spaces, until the other side has enough."""

    def script(sock: socket.socket, _over: threading.Event) -> None:
        sock.sendall(head)
        for _ in range(64):
            sock.sendall(b" " * (1 << 20))

    return script


def _raw(api: Api, line: bytes) -> Script:
    reply = rate_error(api)
    head = b"HTTP/1.1 429 So\r\nContent-Length: %d\r\n" % len(reply.body)
    return says(head + line + b"\r\n" + reply.body)
