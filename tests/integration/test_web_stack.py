"""The web through the whole local stack: a signed message in, a scripted model that searches and
reads, the providers' own wire shapes behind `--provider-origin`, a signed reply out."""

from __future__ import annotations

import gzip
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mesh.kernel.limits import PROVIDER_ANSWER_BYTES_MAX
from mesh.models.contract import Text, ToolUse
from mesh.operator.client import ApiError
from tests.fakes import brave_server, cloudflare_server, firecrawl_server, perplexity_server
from tests.fakes.model_servers import WireReply, WireRequest
from tests.fakes.web_servers import JSON, Line as Script, told
from tests.fakes.web_stack import (
    CAPABILITY,
    SERVERS,
    WAIT_S,
    FreshMinute,
    Here,
    Line,
    Mesh,
    Others,
    Play,
    here,
    observed,
    unframed,
)
from tests.integration.test_local_stack import started, stopped
from tests.unit.security.peer import Peer, drips, hangs, resets, says

MODULES: dict[str, Any] = {
    "brave": brave_server,
    "perplexity": perplexity_server,
    "firecrawl": firecrawl_server,
    "cloudflare": cloudflare_server,
}
PAGE = "https://goats.example/ibex?a=1&b=2"
DONE: Line = [Text("done")]


@pytest.fixture
def mesh() -> Iterator[Here]:
    with here() as mesh:
        yield mesh
        assert mesh.others.model.broken == []
        assert {n: s.broken for n, s in mesh.others.providers.items() if s.broken} == {}


def search(query: str = "ibex", call_id: str = "c-1", **more: Any) -> ToolUse:
    return ToolUse(call_id, "web_search", {"query": query, **more})


def fetch(url: str = PAGE, call_id: str = "c-2", **more: Any) -> ToolUse:
    return ToolUse(call_id, "web_fetch", {"url": url, **more})


def asks(provider: str, call_id: str = "c-1") -> ToolUse:
    """A call of the tool that the provider serves."""
    return search(call_id=call_id) if CAPABILITY[provider] == "search" else fetch(call_id=call_id)


# ---- the whole way


@pytest.mark.behaviour(
    "web:tests", "web:live", "search:providers", "fetch:providers", "search:no-redirect-no-proxy"
)
def test_the_command_with_stand_ins_answers_from_what_it_searched_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, proxy = Others(), Peer(says(b"HTTP/1.1 200 OK\r\n\r\n"))
    flags = [it for pair in others.pairs for it in ("--allow-egress", pair)]
    for name, pair in others.stand_ins.items():
        flags += ["--provider-origin", f"{name}=http://{pair}"]
    with monkeypatch.context() as environment:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            environment.setenv(name, f"http://127.0.0.1:{proxy.port}")
            environment.setenv(name.lower(), f"http://127.0.0.1:{proxy.port}")
        process, ready = started(tmp_path / "log", *flags)
    mesh = Mesh(others, ready["gateway"], ready["token"])
    try:
        third = mesh.agent("ada")
        for first, second in (("brave", "firecrawl"), ("perplexity", "cloudflare")):
            # Set between two messages of one process, and live at the second.
            mesh.sets(first)
            mesh.sets(second)
            play = mesh.plays(third, f"by-{first}", [search(), fetch()], DONE)
            assert play.reply()["body"] == "done"
            assert_told_of(play, first, second)
    finally:
        mesh.close()
        assert stopped(process) == 0
        others.close()
        proxy.close()
    assert proxy.connections == 0
    for name, server in others.providers.items():
        assert (server.broken, len(server.requests), others.peers[name].connections) == ([], 1, 1)
        assert server.asked[0].credential == server.key
    log = (tmp_path / "log").read_text()
    assert all(server.key not in log for server in others.providers.values())


def assert_told_of(play: Play, first: str, second: str) -> None:
    """Holds that model and operator were told what came, from whom, by whose key, on what."""
    found, read = play.told()
    for told_of, provider in ((found, first), (read, second)):
        for label in (f'provider="{provider}"', 'credential="instance"'):
            assert label in told_of.split("\n")[0]
    urls = [f"https://goats.example/ibex/{n}?a=1&b=2" for n in range(5)]
    assert [hit["url"] for hit in observed(found)["results"]] == urls
    assert observed(read)["content"] == firecrawl_server.MARKDOWN
    versions = {"brave": (1, 1), "firecrawl": (1, 1)}
    for call, provider, sources in zip(play.calls(), (first, second), (urls, [PAGE]), strict=True):
        connection, key = versions.get(provider, (2, 1))
        assert call["status"] == "completed"
        assert call["payer"] == f"instance/{provider}"
        assert call["origin"]["credential"] == "instance"
        assert call["sources"] == sources
        assert (call["connection_version"], call["key_version"]) == (connection, key)
    story = play.mesh.client.call("GET", f"/api/explain/{play.run_id}")
    steps = [event for event in story["events"] if "call of the tool" in event["text"]]
    assert [event["sources"] for event in steps] == [urls, [PAGE]]
    assert f"paid by instance/{first}" in steps[0]["text"]
    assert f"provider {second}" in steps[1]["text"]


@pytest.mark.parametrize("provider", SERVERS)
def test_a_provider_is_told_nothing_of_the_conversation_but_what_is_asked_for(
    mesh: Here, provider: str
) -> None:
    third = mesh.agent("ada")
    mesh.sets(provider)
    play = mesh.plays(third, "quiet", [asks(provider)], DONE)
    (request,) = mesh.others.providers[provider].requests
    sent = _whole(request)
    words = ["quiet", "please", "canasta", "grace", "ada", "Zanzibar", third.secret]
    assert "Zanzibar" in mesh.others.model.asked[0].system
    words += ["agt_", "ins_", "run_", "cal_", "conv_", play.run_id.removeprefix("run_")]
    assert [word for word in words if word in sent] == []


def _whole(request: WireRequest) -> str:
    headers = "\n".join(f"{name}: {value}" for name, value in request.headers.items())
    return f"{request.method} {request.path}\n{headers}\n{request.body.decode()}"


# ---- texts of real pages

TEXTS = {
    "scripts": "Ελληνικά · кириллица · 日本語とかな · 한국어 · हिन्दी में · ภาษาไทย · አማርኛ · ქართული",
    "right to left": "עברית עם נִקּוּד ו־123 (סוגריים) · العَرَبِيَّة ٤٥٦ · فارسی نیم\u200cفاصله",
    "turned about": "a \u202eturned\u202c b \u2067isolated\u2069 c \u200emark\u200f d \u061c e",
    "emoji": "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 🇨🇭 🐐🏽 👍🏿 1️⃣ ❤️",
    "a flag of tags": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "marks": "e\u0301 A\u030a ﷺ ﬁ Z\u0351\u036b\u0343\u036a ｆｕｌｌ ½ ‰ “quoted” — ‚low‘",
    "controls": "nul\x00 bel\x07 esc\x1b[31m del\x7f nel\x85 tab\t cr\r\n end",
    "hidden": "ls\u2028 ps\u2029 bom\ufeff zw\u200bsp shy\u00ad word\u2060joiner",
    "json": 'a "quoted" \\ back \\n \\u0041 {"x": [1, null]} </script> \u0000',
    "beyond": "𝔊𝔬𝔞𝔱 𐍈 𓃵 \U0010ffff \ue000 \ufffd",
}


@pytest.mark.behaviour("web:tests")
@pytest.mark.parametrize("reader", ["firecrawl", "cloudflare"])
def test_the_texts_of_real_pages_reach_the_model_as_they_are(mesh: Here, reader: str) -> None:
    third = mesh.agent("ada")
    mesh.sets(reader)
    pages = ["\n\n".join(TEXTS.values()), *TEXTS.values()]
    for text in pages:
        if reader == "firecrawl":
            document = firecrawl_server.page(PAGE, markdown=text, metadata={"title": text[:40]})
        else:
            document = cloudflare_server.page(text)
        mesh.others.providers[reader].says(document)
    play = mesh.plays(third, "texts", *([fetch(call_id=f"c-{n}")] for n in range(len(pages))), DONE)
    came = [observed(each) for each in play.told()]
    assert [each["content"] for each in came] == pages
    assert {each["truncated"] for each in came} == {False}
    if reader == "firecrawl":
        assert [each["title"] for each in came] == [text[:40] for text in pages]


def test_a_text_that_is_cut_is_its_own_beginning(mesh: Here) -> None:
    third = mesh.agent("ada")
    mesh.sets("firecrawl")
    whole = "\n\n".join(TEXTS.values()) * 40
    mesh.others.providers["firecrawl"].says(firecrawl_server.page(PAGE, markdown=whole))
    sizes = [7, 50, 100, 5_000, 20_000]
    calls: list[Line] = [[fetch(call_id=f"c-{n}", max_bytes=n)] for n in sizes]
    for size, each in zip(sizes, mesh.plays(third, "cut", *calls, DONE).told(), strict=True):
        came = observed(each)
        assert whole.startswith(came["content"])
        assert len(came["content"].encode()) <= size
        assert came["truncated"] is True


@pytest.mark.behaviour("search:common-contract")
@pytest.mark.parametrize("provider", ["brave", "perplexity"])
def test_the_texts_of_real_results_reach_the_model_as_they_are(mesh: Here, provider: str) -> None:
    third = mesh.agent("ada")
    mesh.sets(provider)
    module = MODULES[provider]
    texts = [text for name, text in TEXTS.items() if name != "json"]  # which is markup to Brave
    excerpt = "description" if provider == "brave" else "snippet"
    results = [module.result(n, **{excerpt: text, "title": text}) for n, text in enumerate(texts)]
    mesh.others.providers[provider].says(module.found(*results))
    (came,) = map(observed, mesh.plays(third, "texts", [search(limit=10)], DONE).told())
    assert [hit["excerpt"] for hit in came["results"]] == texts
    assert [hit["title"] for hit in came["results"]] == texts
    assert {frozenset(hit) for hit in came["results"]} == {
        frozenset({"rank", "url", "title", "date", "excerpt", "truncated"})
    }


# ---- failures


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
HOSTILE: dict[str, Script] = {
    "a redirect": WireReply(302, b"{}", {"Location": "http://127.0.0.1/PRIVATE"}),
    "a page": WireReply(200, b"<!doctype html>PRIVATE", {"Content-Type": "text/html"}),
    "nothing": WireReply(200),
    "no UTF-8": WireReply(200, b'{"PRIVATE": "\xff', JSON),
    "nesting": WireReply(200, b'{"PRIVATE":' + b"[" * 50_000 + b"]" * 50_000 + b"}", JSON),
    "a bomb": WireReply(200, gzip.compress(bytes(1 << 25)), {**JSON, "Content-Encoding": "gzip"}),
    "too much": says(HEAD + b"Content-Length: %d\r\n\r\n" % (PROVIDER_ANSWER_BYTES_MAX + 1)),
    "too much, untold": says(HEAD + b"\r\n", b" " * (PROVIDER_ANSWER_BYTES_MAX + 1)),
    "a long head": says(b"HTTP/1.1 200 OK\r\nX: " + b"PRIVATE" * 10_000 + b"\r\n\r\n{}"),
    "another protocol": says(b"SSH-2.0-PRIVATE\r\n\r\n"),
    "an end in its head": says(b"HTTP/1.1 200 OK\r\nX-PRIVATE: "),
    "an end in its body": says(HEAD + b'Content-Length: 500\r\n\r\n{"PRIVATE": '),
    "a bad chunk": says(HEAD + b"Transfer-Encoding: chunked\r\n\r\nPRIVATE\r\n"),
    "an end at once": says(),
    "a reset": resets,
}
SLOW: dict[str, Script] = {
    "silence": hangs,
    "an endless head": drips(b"HTTP/1.1 200 OK\r\nX: ", b"PRIVATE"),
    "an endless body": drips(HEAD + b'\r\n{"PRIVATE": "', b"PRIVATE"),
}


@pytest.mark.behaviour(
    "web:tests",
    "web:failures",
    "web:no-fallback",
    "search:wire-2mib",
    "fetch:wire-2mib",
    "fetch:failures",
)
@pytest.mark.parametrize("provider", SERVERS)
def test_every_failure_is_an_observation_without_a_word_of_the_provider(
    mesh: Here, provider: str
) -> None:
    third = mesh.agent("ada", tool_calls=100, steps=300)
    for name in SERVERS:  # the others are there, and are not asked
        mesh.sets(name)
    mesh.sets(provider)
    server, errors = mesh.others.providers[provider], MODULES[provider].ERRORS
    server.sends(*errors.values(), *HOSTILE.values())
    expected = len(errors) + len(HOSTILE)
    calls: list[Line] = [[asks(provider, f"c-{n}")] for n in range(expected)]
    fails = mesh.plays(third, "fails", *calls, DONE)
    mesh.hurried.total_s = 0.3
    server.sends(*SLOW.values())
    late = mesh.plays(third, "late", *([asks(provider, f"c-{n}")] for n in range(3)), DONE)
    observations = list(map(unframed, [*fails.told(), *late.told()]))
    assert [it for it in observations if not re.match(rf"failed: {provider}, \w+: \w+", it)] == []
    assert [it.split()[3] for it in observations[-3:]] == ["timeout"] * 3
    assert len(server.requests) == expected + 3, "each was sent once"
    asked = {name: len(it.requests) for name, it in mesh.others.providers.items()}
    assert asked == dict.fromkeys(SERVERS, 0) | {provider: expected + 3}
    assert sum(mesh.meters().values()) == 2 * (expected + 3), "each was counted, and once"
    kept = json.dumps(
        [observations, [row for row in mesh.aws.items() if "blob" not in row]], default=str
    )
    kept += json.dumps(
        [mesh.client.call("GET", f"/api/explain/{it.run_id}") for it in (fails, late)]
    )
    pair = mesh.others.stand_ins[provider]
    assert [word for word in ("PRIVATE", server.key, pair) if word in kept] == []
    server.sends(told(_good(provider)))
    again = mesh.plays(third, "again", [asks(provider)], DONE)
    assert [call["status"] for call in again.calls()] == ["completed"], "and none of it lasts"


def _good(provider: str) -> Any:
    module = MODULES[provider]
    if CAPABILITY[provider] == "search":
        return module.found(module.result(1))
    return module.page(PAGE) if provider == "firecrawl" else module.page()


# ---- whose key


@pytest.mark.behaviour("web:live", "web:no-fallback")
@pytest.mark.parametrize(
    ("first", "second"), [("brave", "perplexity"), ("firecrawl", "cloudflare")]
)
def test_a_change_of_provider_is_live_and_no_key_goes_to_another(
    mesh: Here, first: str, second: str
) -> None:
    third = mesh.agent("ada")
    for number, provider in enumerate([first, second, first, second]):
        if number < 2:
            mesh.sets(provider)
        else:  # its key was kept
            mesh.puts(CAPABILITY[provider], **_without_key(mesh, provider))
        play = mesh.plays(third, f"n{number}", [asks(provider)], DONE)
        assert play.calls()[0]["payer"] == f"instance/{provider}"
    providers = mesh.others.providers
    for mine, other in ((first, second), (second, first)):
        assert [it.credential for it in providers[mine].asked] == [providers[mine].key] * 2
        assert all(providers[other].key not in _whole(it) for it in providers[mine].requests)


def _without_key(mesh: Here, provider: str) -> dict[str, Any]:
    config = {"account_id": cloudflare_server.ACCOUNT} if provider == "cloudflare" else {}
    limits = {"requests_per_minute": 100, "requests_per_run": 100}
    return {"mode": "custom", "provider": provider, "config": config, "limits": limits}


@pytest.mark.behaviour("web:override-stands", "web:no-fallback")
@pytest.mark.parametrize("provider", SERVERS)
def test_an_agents_own_key_that_is_refused_is_not_helped_by_the_instances(
    mesh: Here, provider: str
) -> None:
    third = mesh.agent("ada")
    mesh.sets(provider)
    mesh.sets(provider, of="ada", key="canary-of-the-agent-0123456789")
    play = mesh.plays(third, "own", [asks(provider)], DONE)
    (told_of,) = play.told()
    assert unframed(told_of).startswith(f"failed: {provider}, answer: authorization ")
    assert play.calls()[0]["payer"] == f"agent/{provider}"
    (request,) = mesh.others.providers[provider].requests
    assert "canary-of-the-agent-0123456789" in _whole(request)
    assert mesh.others.providers[provider].key not in _whole(request)


# ---- revoked in each of the windows


class Held:
    """A provider that holds its answer back until whoever asked goes away."""

    def __init__(self) -> None:
        self.asked, self.closed = threading.Event(), threading.Event()

    def __call__(self, sock: socket.socket, _over: threading.Event) -> None:
        self.asked.set()
        sock.settimeout(WAIT_S)
        if sock.recv(1) == b"":
            self.closed.set()


def _disable(mesh: Here, provider: str) -> None:
    mesh.puts(CAPABILITY[provider], mode="disabled")


def _rotate(mesh: Here, provider: str) -> None:
    mesh.sets(provider, key="canary-of-tomorrow-0123456789")


def _forget(mesh: Here, provider: str) -> None:
    mesh.puts(CAPABILITY[provider], mode="disabled", provider=provider, clear_key=True)


def _opt_out(mesh: Here, provider: str) -> None:
    mesh.puts(CAPABILITY[provider], of="ada", mode="disabled")


REVOCATIONS: dict[str, Callable[[Here, str], None]] = {
    "disabled": _disable,
    "rotated": _rotate,
    "forgotten": _forget,
    "opted out": _opt_out,
}


@pytest.mark.behaviour("offers:stale-refused", "admission:free-before")
@pytest.mark.parametrize("provider", SERVERS)
def test_what_is_revoked_behind_its_offer_is_not_sent(mesh: Here, provider: str) -> None:
    third = mesh.agent("ada")
    for name, revoke in REVOCATIONS.items():
        mesh.sets(provider)
        mesh.puts(CAPABILITY[provider], of="ada", mode="inherit")
        play = name.replace(" ", "-")
        mesh.others.model.meanwhile[play] = lambda revoke=revoke: revoke(mesh, provider)  # type: ignore[misc]
        (told_of,) = mesh.plays(third, play, [asks(provider)], DONE).told()
        assert told_of.startswith("revoked: ")
    assert mesh.others.providers[provider].requests == []
    assert mesh.meters() == {}


@pytest.mark.behaviour("offers:poll", "admission:consumed")
@pytest.mark.parametrize(("provider", "how"), list(zip(SERVERS, REVOCATIONS, strict=True)))
def test_what_is_revoked_in_flight_is_cut_off(mesh: Here, provider: str, how: str) -> None:
    third = mesh.agent("ada")
    mesh.sets(provider)
    held = Held()
    mesh.others.providers[provider].sends(held)
    play = mesh.begins(third, "flight", [asks(provider)], DONE)
    assert held.asked.wait(WAIT_S)
    REVOCATIONS[how](mesh, provider)
    assert held.closed.wait(WAIT_S), "the request goes on"
    (told_of,) = play.ends().told()
    assert told_of.startswith("revoked: ")
    assert len(mesh.others.providers[provider].requests) == 1
    assert set(mesh.meters().values()) == {1}, "it was sent, and is paid for"


@pytest.mark.behaviour("offers:withheld")
@pytest.mark.parametrize(("provider", "how"), list(zip(SERVERS, REVOCATIONS, strict=True)))
def test_a_result_that_races_a_revocation_is_withheld(mesh: Here, provider: str, how: str) -> None:
    third = mesh.agent("ada")
    mesh.sets(provider)
    document = json.dumps(_good(provider)).encode()
    body = HEAD + b"Content-Length: %d\r\n\r\n" % len(document) + document
    came = threading.Event()

    def races(sock: socket.socket, _over: threading.Event) -> None:
        REVOCATIONS[how](mesh, provider)
        sock.sendall(body)  # before anybody looked, or behind it
        came.set()

    mesh.others.providers[provider].sends(races)
    play = mesh.plays(third, "race", [asks(provider)], DONE)
    assert came.is_set()
    (told_of,) = play.told()
    assert told_of.startswith("revoked: ")
    assert "horns" not in json.dumps(mesh.rows("STEP#"), default=str)
    assert play.calls()[0]["status"] == "refused"


@pytest.mark.behaviour("offers:disabled-absent")
def test_what_was_forgotten_is_offered_to_nobody_and_its_key_is_gone(mesh: Here) -> None:
    third = mesh.agent("ada")
    mesh.sets("brave")
    assert mesh.plays(third, "before", [search()], DONE).calls()[0]["status"] == "completed"
    _forget(mesh, "brave")
    (told_of,) = mesh.plays(third, "behind", [search()], DONE).told()
    assert told_of.startswith("not_offered: ")
    assert "web_search" not in mesh.others.model.of("behind")[0].tools
    shown = mesh.client.call("GET", "/api/web-access/search")
    assert (shown["kept_keys"], shown["credential_present"], shown["available"]) == (
        [],
        False,
        False,
    )
    (key,) = [row for row in mesh.aws.items() if row["sk"].startswith("KEY#")]
    assert "blob" not in key
    with pytest.raises(ApiError) as refusal:
        mesh.puts("search", **_without_key(mesh, "brave"))
    assert refusal.value.status == 422
    assert len(mesh.others.providers["brave"].requests) == 1


# ---- limits


@pytest.mark.behaviour("meters:per-minute", "meters:inherited-limit")
def test_agents_that_inherit_share_the_minute_of_the_instance() -> None:
    with here(FreshMinute()) as mesh:
        ada, ben = mesh.agent("ada"), mesh.agent("ben")
        mesh.sets("brave", per_minute=3)
        for third in (ada, ben):
            mesh.plays(
                third,
                f"of-{third.install_id[-4:].lower()}",
                [search()],
                [search(call_id="c-2")],
                DONE,
            )
        (_, limited) = mesh.others.model.told(f"of-{ben.install_id[-4:].lower()}")
        assert limited.startswith("limited: ")
        assert "3 searches that this connection may make in a minute" in limited
        assert len(mesh.others.providers["brave"].requests) == 3
        assert mesh.meters() == {"METER#search": 3, "METER#instance#search": 3}


CALLS, ROOMS = 10, 20


@pytest.mark.behaviour("meters:per-minute", "meters:per-run", "meters:exhausted")
@pytest.mark.parametrize(("per_minute", "per_run"), [(60, 7), (1_000, 3)])
def test_a_storm_of_messages_gets_what_the_limits_admit_and_no_more(
    per_minute: int, per_run: int
) -> None:
    with here(FreshMinute()) as mesh:
        thirds = [mesh.agent(slug, runs_at_once=ROOMS) for slug in ("ada", "ben")]
        mesh.sets("brave", per_minute=per_minute, per_run=per_run)
        line = [search(call_id=f"c-{n}") for n in range(CALLS)]
        plays = [
            mesh.begins(thirds[room % 2], f"room-{room}", line, DONE, room=f"room-{room}")
            for room in range(ROOMS)
        ]
        kinds = [[it.partition(":")[0] for it in play.ends().told()] for play in plays]
        most = min(per_minute, ROOMS * per_run)
        sent = [[it for it in each if it != "limited"] for each in kinds]
        assert sum(map(len, kinds)) == CALLS * ROOMS
        assert sum(map(len, sent)) == len(mesh.others.providers["brave"].requests) == most
        assert max(map(len, sent)) <= per_run
        assert mesh.meters() == {"METER#search": most, "METER#instance#search": most}
        admitted = [row for row in mesh.rows("STEP#") if row.get("payer")]
        assert len(admitted) == most
