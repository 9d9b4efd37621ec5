"""The command line against an API that a test plays: exit codes, one-line errors, documents."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from infra import layers
from mesh.operator.cli.command import Invocation
from mesh.operator.cli.main import cli, run
from mesh.operator.cli.third_party import read_headers
from mesh.security import signing

INSTALL = "ins_01M8PKES5HBKJKV82EPYV7NM13"
SECRET = "whsec_" + "A" * 43 + "="
TOKEN = "mop_AAAABBBBCCCC_canary-of-a-token"

AGENT = {
    "agent_id": "agt_1",
    "slug": "ada",
    "name": "Ada",
    "handle": "ada",
    "instructions": "",
    "model": {"kind": "offline", "name": None, "base_url": None, "credential_present": False},
    "limits": {"steps": 50, "tool_calls": 25},
    "status": "active",
    "version": 3,
    "created_at": "2026-11-30T05:42:35.123Z",
}
CONNECTOR = {
    "install_id": INSTALL,
    "kind": "generic",
    "name": "generic",
    "ingress_url": "http://127.0.0.1:1/generic/events",
    "state": "disabled",
    "state_reason": None,
    "secret": {"version": 1, "created_at": "2026-11-30T05:42:35.123Z"},
    "delivery_url": "https://x.example/… 0011",
    "allow_hosts": [],
    "engagement": {"policy": "addressed", "allow_actors": [], "deny_actors": [], "busy": "queue"},
    "caps": {"conversations": 10},
    "failure_replies": True,
    "delivery": {"state": "ok", "reason": None},
    "version": 7,
}
MINTED = CONNECTOR | {"secret": SECRET}

Answer = Callable[[httpx.Request], httpx.Response]


class Api:
    """Answers by method and path, and keeps what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {}
        self.requests: list[httpx.Request] = []

    def on(self, route: str, status: int, document: Any, **headers: str) -> Api:
        self.answers[route] = (status, document, headers)
        return self

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers[f"{request.method} {request.url.path}"]
        if isinstance(answer[1], Exception):
            raise answer[1]
        status, document, headers = answer
        if document is None:
            return httpx.Response(status, headers=headers)
        return httpx.Response(status, json=document, headers=headers)

    def body(self, index: int = -1) -> Any:
        return json.loads(self.requests[index].content)


class Line:
    """One command line, run."""

    def __init__(self, api: Answer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.api = api
        self.environ = {
            "MESH_URL": "http://127.0.0.1:8787",
            "MESH_TOKEN": TOKEN,
            "MESH_CONFIG_DIR": str(tmp_path / "config"),
        }
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        invocation = Invocation(environ=self.environ, transport=httpx.MockTransport(self.api))
        code = run(arguments, invocation)
        out, err = self._capsys.readouterr()
        return code, out, err


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def mesh(api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Line:
    return Line(api, tmp_path, capsys)


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def error(code: str, message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "request_id": "req_1", **more}}


def one_line(text: str) -> str:
    assert text.startswith("mesh: ")
    assert text.count("\n") == 1
    return text


def test_an_agent_is_created_with_a_key_that_makes_a_repetition_harmless(
    mesh: Line, api: Api
) -> None:
    api.on("POST /api/agents", 201, AGENT)
    code, out, _ = mesh("agent", "create", "ada", "--name", "Ada", "--max-steps", "7", "--json")
    assert code == 0
    assert json.loads(out) == AGENT
    assert api.body() == {"slug": "ada", "name": "Ada", "limits": {"steps": 7}}
    request = api.requests[0]
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert len(request.headers["idempotency-key"]) == 32


def test_instructions_come_from_a_file(mesh: Line, api: Api, tmp_path: Path) -> None:
    api.on("POST /api/agents", 201, AGENT)
    file = tmp_path / "instructions"
    file.write_text("Be kind.")
    assert mesh("agent", "create", "ada", "--instructions", f"@{file}")[0] == 0
    assert api.body()["instructions"] == "Be kind."


def test_an_update_puts_what_was_read_with_what_was_named_changed(mesh: Line, api: Api) -> None:
    api.on("GET /api/agents/ada", 200, AGENT).on("PUT /api/agents/ada", 200, AGENT)
    assert mesh("agent", "update", "ada", "--handle", "a", "--model-name", "m")[0] == 0
    assert api.body() == {
        "name": "Ada",
        "handle": "a",
        "instructions": "",
        "model": {"kind": "offline", "name": "m", "base_url": None},
        "limits": {"steps": 50, "tool_calls": 25},
        "retention_days": None,
        "version": 3,
    }


def test_a_connectors_update_leaves_the_saved_delivery_url_alone(mesh: Line, api: Api) -> None:
    path = f"/api/connectors/{INSTALL}"
    api.on(f"GET {path}", 200, CONNECTOR).on(f"PUT {path}", 200, CONNECTOR)
    assert mesh("connector", "update", INSTALL, "--engage", "always", "--max-waiting", "5")[0] == 0
    assert api.body() == {
        "name": "generic",
        "allow_hosts": [],
        "engagement": CONNECTOR["engagement"] | {"policy": "always"},
        "caps": {"conversations": 10, "waiting": 5},
        "failure_replies": True,
        "version": 7,
    }


def test_a_connectors_delivery_url_can_be_removed(mesh: Line, api: Api) -> None:
    path = f"/api/connectors/{INSTALL}"
    api.on(f"GET {path}", 200, CONNECTOR).on(f"PUT {path}", 200, CONNECTOR)
    assert mesh("connector", "update", INSTALL, "--no-delivery-url")[0] == 0
    assert api.body()["delivery_url"] is None


def test_creating_a_connector_shows_its_secret_once_and_says_what_comes_next(
    mesh: Line, api: Api
) -> None:
    api.on("POST /api/agents/ada/connectors", 201, MINTED)
    code, out, _ = mesh("connector", "create", "generic", "--agent", "ada")
    assert code == 0
    assert SECRET in out
    assert "shown once" in out
    assert f"mesh connector enable {INSTALL}" in out
    assert api.body() == {"kind": "generic"}


def test_enabling_comes_after_minting_so_that_the_receiver_can_have_the_secret(
    mesh: Line, api: Api
) -> None:
    api.on("POST /api/agents/ada/connectors", 201, MINTED)
    api.on(f"POST /api/connectors/{INSTALL}/enable", 200, CONNECTOR | {"state": "enabled"})
    line = ("connector", "create", "generic", "--agent", "ada", "--enable", "--skip-ping")
    code, out, _ = mesh(*line, "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["state"], document["secret"]) == ("enabled", SECRET)
    assert api.body() == {"skip_ping": True}


def test_enabling_that_ends_in_error_exits_1_and_prints_the_same_document(
    mesh: Line, api: Api
) -> None:
    reason = "ping: refused"
    failed = CONNECTOR | {"state": "error", "state_reason": reason}
    api.on("POST /api/agents/ada/connectors", 201, MINTED)
    api.on(f"POST /api/connectors/{INSTALL}/enable", 200, failed)
    code, out, err = mesh("connector", "create", "generic", "--agent", "ada", "--enable", "--json")
    document = json.loads(out)
    assert code == 1
    assert (document["state"], document["state_reason"]) == ("error", reason)
    assert document["secret"] == SECRET
    assert one_line(err).endswith(f"mesh connector enable {INSTALL}\n")


def test_the_secret_is_printed_even_when_enabling_gets_no_answer(mesh: Line, api: Api) -> None:
    api.on("POST /api/agents/ada/connectors", 201, MINTED)
    api.on(f"POST /api/connectors/{INSTALL}/enable", 0, httpx.ReadTimeout("slow"))
    code, out, err = mesh("connector", "create", "generic", "--agent", "ada", "--enable", "--json")
    assert code == 3
    assert json.loads(out)["secret"] == SECRET
    assert f"mesh connector enable {INSTALL}" in one_line(err)


def test_a_rotation_asks_for_its_overlap_in_seconds(mesh: Line, api: Api) -> None:
    answer = {"secret": SECRET, "version": 2, "previous_valid_until": None}
    api.on(f"POST /api/connectors/{INSTALL}/rotate", 200, answer)
    assert mesh("connector", "rotate", INSTALL, "--overlap", "2h")[0] == 0
    assert api.body() == {"overlap_seconds": 7200}
    assert mesh("connector", "rotate", INSTALL, "--overlap", "0", "--force")[0] == 0
    assert api.body() == {"overlap_seconds": 0, "force": True}
    assert mesh("connector", "rotate", INSTALL, "--overlap", "soon")[0] == 2


@pytest.mark.parametrize(
    ("status", "document", "headers", "exit_code", "says"),
    [
        (401, error("unauthorized", "unauthorized"), {}, 1, "mesh login"),
        (403, error("forbidden", "this needs an admin"), {}, 1, "this needs an admin"),
        (404, error("not_found", "no such agent"), {}, 1, "no such agent; see: mesh agent list"),
        (404, {"message": "Not Found"}, {}, 1, "MESH_URL"),
        (409, error("version_conflict", "it is at version 4"), {}, 1, "run the command again"),
        (
            422,
            error("invalid_request", "no", fields=[{"path": "name", "problem": "too long"}]),
            {},
            1,
            "name: too long",
        ),
        (500, error("internal", "a bug"), {}, 1, "[req_1]"),
        (429, error("rate_limited", "slower"), {"Retry-After": "7"}, 3, "try again in 7 s"),
        (503, error("unavailable", "not now"), {}, 3, "try again later"),
        (503, {"message": "Service Unavailable"}, {}, 3, "try again later"),
    ],
)
def test_a_refusal_is_one_line_that_says_what_to_do(
    mesh: Line,
    api: Api,
    *,
    status: int,
    document: Any,
    headers: dict[str, str],
    exit_code: int,
    says: str,
) -> None:
    api.on("GET /api/agents/ada", status, document, **headers)
    for as_json in ((), ("--json",)):
        code, out, err = mesh("agent", "show", "ada", *as_json)
        assert (code, out) == (exit_code, "")
        assert says in one_line(err)
        assert TOKEN not in err


@pytest.mark.parametrize(
    ("failure", "exit_code", "says"),
    [
        (httpx.ConnectError("no"), 1, "is it running"),
        (httpx.ConnectTimeout("no"), 3, "try again later"),
        (httpx.ReadTimeout("no"), 3, "try again later"),
        (httpx.RemoteProtocolError("no"), 3, "try again later"),
    ],
)
def test_silence_is_one_line_too(
    mesh: Line, api: Api, failure: Exception, exit_code: int, says: str
) -> None:
    api.on("GET /api/whoami", 0, failure)
    code, _, err = mesh("whoami")
    assert code == exit_code
    assert says in one_line(err)


def test_a_minting_that_got_no_answer_names_the_key_to_repeat_it_with(mesh: Line, api: Api) -> None:
    api.on("POST /api/agents", 0, httpx.ReadTimeout("slow"))
    code, _, err = mesh("agent", "create", "ada")
    assert code == 3
    assert f"--idempotency-key {api.requests[0].headers['idempotency-key']}" in err


@pytest.mark.parametrize(
    "line",
    [
        ("agent", "create"),
        ("agent", "create", "ada", "--no-such-option"),
        ("agent", "list", "--limit", "0"),
        ("agent", "list", "--limit", "many"),
        ("agent", "update", "ada"),
        ("agent",),
        ("no-such-command",),
        ("connector", "create", "slack", "--agent", "ada"),
        ("explain", "msg_1", "--connector", INSTALL),
        ("--url", "x"),
        ("whoami", "--url", "not a url"),
        ("whoami", "--url", "http://mesh.example.com"),
        ("whoami", "--url", "https://u:p@mesh.example.com"),
        ("whoami", "--token-file", "/nowhere/at/all"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(mesh: Line, line: tuple[str, ...]) -> None:
    code, out, err = mesh(*line)
    assert (code, out) == (2, "")
    one_line(err)


@pytest.mark.parametrize("name", ["MESH_URL", "MESH_TOKEN"])
def test_without_an_address_or_a_token_it_says_how_to_give_one(mesh: Line, name: str) -> None:
    del mesh.environ[name]
    code, _, err = mesh("whoami")
    assert code == 2
    assert "mesh login" in one_line(err)


def test_a_list_is_one_document(mesh: Line, api: Api) -> None:
    page = {"items": [AGENT], "next_cursor": "c1"}
    api.on("GET /api/agents", 200, page)
    code, out, _ = mesh("agent", "list", "--json")
    assert code == 0
    assert json.loads(out) == page
    assert dict(api.requests[0].url.params) == {"limit": "50"}


def test_all_and_jsonl_stream_every_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = {None: ([{"n": 1}, {"n": 2}], "c1"), "c1": ([{"n": 3}], None)}

    def answer(request: httpx.Request) -> httpx.Response:
        items, cursor = pages[request.url.params.get("cursor")]
        return httpx.Response(200, json={"items": items, "next_cursor": cursor})

    code, out, _ = Line(answer, tmp_path, capsys)("agent", "list", "--all", "--jsonl")
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_tables_fit_80_columns_and_cut_nothing(mesh: Line, api: Api) -> None:
    long = CONNECTOR | {"name": "a name that is rather long " * 4}
    api.on("GET /api/agents/ada/connectors", 200, {"items": [long], "next_cursor": None})
    code, out, _ = mesh("connector", "list", "--agent", "ada")
    assert code == 0
    assert INSTALL in out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    assert "\x1b" not in out


def test_a_name_from_outside_cannot_act_on_the_terminal(mesh: Line, api: Api) -> None:
    api.on("GET /api/agents/ada", 200, AGENT | {"name": "\x1b[2J\u202eevil"})
    _, out, _ = mesh("agent", "show", "ada")
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\x1b[2J" in out


def test_without_an_agent_every_agents_outbox_is_listed(mesh: Line, api: Api) -> None:
    entry = {"outbound_id": "out_1", "status": "dead", "install_id": INSTALL, "attempts": 2}
    other = AGENT | {"slug": "bob"}
    api.on("GET /api/agents", 200, {"items": [AGENT, other], "next_cursor": None})
    api.on("GET /api/agents/ada/outbox", 200, {"items": [entry], "next_cursor": None})
    api.on("GET /api/agents/bob/outbox", 200, {"items": [entry], "next_cursor": None})
    code, out, _ = mesh("outbox", "list", "--status", "dead", "--json")
    assert code == 0
    assert json.loads(out)["items"] == [entry, entry]
    assert api.requests[-1].url.params["status"] == "dead"


def test_an_installs_outbox_is_asked_of_its_agent(mesh: Line, api: Api) -> None:
    api.on(f"GET /api/connectors/{INSTALL}", 200, CONNECTOR | {"agent": "ada"})
    api.on("GET /api/agents/ada/outbox", 200, {"items": [], "next_cursor": None})
    assert mesh("outbox", "list", "--connector", INSTALL)[0] == 0
    assert dict(api.requests[-1].url.params) == {"limit": "50", "install_id": INSTALL}


def test_explain_takes_the_callers_own_ids(mesh: Line, api: Api) -> None:
    story = {
        "subject": {"id": "msg_1", "run_id": None},
        "events": [
            {
                "at": "2026-11-30T05:42:35.123Z",
                "kind": "gate",
                "rule": None,
                "reason": "direct_message",
                "ids": {"run_id": "run_1"},
                "text": "The message starts a turn.",
            }
        ],
        "next": "nothing is left to do",
    }
    api.on("GET /api/explain", 200, story)
    line = ("explain", "--connector", INSTALL, "--conversation", "k", "m/1")
    code, out, _ = mesh(*line)
    assert code == 0
    assert dict(api.requests[0].url.params) == {
        "install_id": INSTALL,
        "conversation_key": "k",
        "message_id": "m/1",
    }
    for said in ("gate (direct_message)", "The message starts a turn.", "run_1", "nothing is left"):
        assert said in out


def test_an_id_is_one_segment_of_a_path(mesh: Line, api: Api) -> None:
    for words, of in (
        (("run", "show"), "runs"),
        (("job", "show"), "jobs"),
        (("job", "wait"), "jobs"),
    ):
        api.requests.clear()
        api.on(f"GET /api/{of}/../../x?y", 404, error("not_found", "no"))
        assert mesh(*words, "../../x?y")[0] == 1
        assert api.requests[0].url.raw_path == f"/api/{of}/..%2F..%2Fx%3Fy".encode()


def test_no_path_is_made_of_what_was_given_but_by_its_segments() -> None:
    """A name that is put into a path as it is may lead a request to another thing's address."""
    for module in (layers.ROOT / "layers/mesh/python/mesh/operator/cli").glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if not isinstance(node, ast.JoinedStr):
                continue
            first, *rest = node.values
            if not (isinstance(first, ast.Constant) and str(first.value).startswith("/api/")):
                continue
            for part in rest:
                if isinstance(part, ast.FormattedValue):
                    made = ast.unparse(part.value)
                    fixed = made in ("what", "action")  # this command line's own words
                    assert made.startswith("segment(") or fixed, (module.name, made)


def test_send_signs_as_the_contract_says(
    mesh: Line, api: Api, piped: Callable[[str], None]
) -> None:
    piped(SECRET + "\n")
    answer = {
        "status": "accepted",
        "id": "msg_1",
        "message_id": "m1",
        "engagement": {"verdict": "engage", "reason": "direct_message"},
        "run_id": "run_1",
    }
    api.on("POST /generic/events", 202, answer)
    line = ("send", "--connector", INSTALL, "--secret-stdin", "--message-id", "m1", "Grüße")
    code, out, _ = mesh(*line)
    assert code == 0
    assert "mesh explain msg_1" in out
    (request,) = api.requests
    assert "authorization" not in request.headers
    headers = signing.parse_headers(
        request.headers["x-mesh-install"],
        request.headers["x-mesh-timestamp"],
        request.headers["x-mesh-signature"],
    )
    assert headers is not None
    assert signing.verify_inbound(headers, request.content, [SECRET]) == 0
    assert json.loads(request.content) == {
        "message_id": "m1",
        "conversation_key": "cli",
        "actor_id": "operator",
        "body": "Grüße",
    }


@pytest.mark.parametrize(
    ("status", "code", "exit_code", "says"),
    [
        (401, "unauthorized", 1, "mesh verify"),
        (403, "connector_disabled", 1, f"mesh connector show {INSTALL}"),
        (409, "idempotency_conflict", 1, "mesh explain --connector"),
        (503, "agent_paused", 3, "--message-id m1"),
    ],
)
def test_a_refused_utterance_is_one_line(
    mesh: Line,
    api: Api,
    piped: Callable[[str], None],
    *,
    status: int,
    code: str,
    exit_code: int,
    says: str,
) -> None:
    piped(SECRET)
    api.on("POST /generic/events", status, error(code, "no"))
    line = ("send", "--connector", INSTALL, "--secret-stdin", "--message-id", "m1", "x")
    exited, _, err = mesh(*line)
    assert exited == exit_code
    assert says in one_line(err)


def test_a_secret_is_never_taken_as_an_argument(mesh: Line, api: Api) -> None:
    code, _, err = mesh("send", "--connector", INSTALL, "--secret", SECRET, "x")
    assert code == 2
    assert SECRET not in err


def test_verify_says_why_a_delivery_fails(
    mesh: Line, tmp_path: Path, piped: Callable[[str], None]
) -> None:
    body = b'{"type":"ping"}'
    signed = signing.sign_outbound([SECRET], INSTALL, "out_1", "1796000000", body)
    headers, raw = tmp_path / "headers", tmp_path / "body"
    headers.write_text("".join(f"{name}: {value}\n" for name, value in signed.items()))
    raw.write_bytes(body)
    line = ("verify", "--secret-stdin", "--headers", str(headers), "--body", str(raw))
    piped(SECRET)
    code, out, _ = mesh(*line, "--at", "1796000000")
    assert code == 0
    assert "a delivery from Mesh" in out
    raw.write_bytes(body + b"\n")
    piped(SECRET)
    code, out, err = mesh(*line, "--at", "1796000000", "--json")
    assert code == 1
    assert json.loads(out)["finding"] == "body_trailing_newline"
    assert SECRET not in out + err


def test_headers_are_read_as_people_save_them() -> None:
    lines = b"> POST / HTTP/1.1\r\n> X-Mesh-Install: a\r\n< x-sign: b\r\nX-Sign: c"
    assert read_headers(lines) == {"X-Mesh-Install": "a", "x-sign": "b,c"}
    assert read_headers(b'{"A": ["b", "c"]}') == {"A": "b,c"}


def test_login_keeps_the_token_for_this_user_alone(
    mesh: Line, api: Api, tmp_path: Path, piped: Callable[[str], None]
) -> None:
    del mesh.environ["MESH_TOKEN"]
    me = {"id": "opr_1", "name": "me", "role": "admin", "agents": None, "expires_at": None}
    api.on("GET /api/whoami", 200, me)
    piped(TOKEN + "\n")
    code, out, err = mesh("login", "--token-stdin")
    assert code == 0
    assert TOKEN not in out + err
    file = tmp_path / "config" / "login.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    del mesh.environ["MESH_URL"]
    assert mesh("whoami", "--json")[0] == 0
    assert api.requests[-1].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_kept_token_goes_to_no_other_address(
    mesh: Line, api: Api, piped: Callable[[str], None]
) -> None:
    del mesh.environ["MESH_TOKEN"]
    api.on("GET /api/whoami", 200, {"id": "opr_1", "name": "me", "role": "admin"})
    piped(TOKEN)
    assert mesh("login", "--token-stdin")[0] == 0
    code, _, err = mesh("whoami", "--url", "https://other.example.com")
    assert code == 2
    assert "no token" in err
    assert len(api.requests) == 1


def test_a_token_that_is_refused_is_not_kept(
    mesh: Line, api: Api, tmp_path: Path, piped: Callable[[str], None]
) -> None:
    api.on("GET /api/whoami", 401, error("unauthorized", "unauthorized"))
    piped(TOKEN)
    assert mesh("login", "--token-stdin")[0] == 1
    assert not (tmp_path / "config").exists()


def test_revoking_and_deleting_answer_with_a_document(mesh: Line, api: Api) -> None:
    api.on("DELETE /api/operators/opr_1", 204, None)
    api.on(f"DELETE /api/connectors/{INSTALL}", 204, None)
    assert json.loads(mesh("operator", "revoke", "opr_1", "--json")[1])["revoked"] is True
    assert mesh("connector", "delete", INSTALL)[0] == 2
    assert json.loads(mesh("connector", "delete", INSTALL, "--yes", "--json")[1]) == {
        "install_id": INSTALL,
        "state": "deleted",
        "job_id": None,
    }


def test_every_command_takes_json_and_has_help() -> None:
    def commands(group: Any, path: tuple[str, ...] = ()) -> Any:
        for name, each in group.commands.items():
            if hasattr(each, "commands"):
                yield from commands(each, (*path, name))
            else:
                yield (*path, name), each

    found = list(commands(cli))
    assert len(found) > 30
    for path, each in found:
        assert each.help, path
        assert any("--json" in parameter.opts for parameter in each.params), path
        assert not any("--secret" in parameter.opts for parameter in each.params), path


def test_help_is_sorted_by_what_commands_are_for() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    for heading in ("Start here:", "What happened:", "The third party's side:", "local"):
        assert heading in result.output
    assert "Others:" not in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_the_command_line_alone_prints_its_help(mesh: Line) -> None:
    code, out, _ = mesh()
    assert code == 0
    assert "Exit codes" in out


# ---- what a terminal and a shell do to a command


@pytest.mark.parametrize("form", ["{}", "{}\n", "{}\r\n", "\ufeff{}", "\ufeff{}\r\n"])
def test_a_secret_is_read_whatever_wrote_the_file(
    mesh: Line, api: Api, piped: Callable[[str], None], form: str
) -> None:
    api.on("POST /generic/events", 202, {"status": "accepted", "id": "msg_1"})
    piped(form.format(SECRET))
    assert mesh("send", "--connector", INSTALL, "--secret-stdin", "x")[0] == 0
    sent = api.requests[-1]
    stamp = sent.headers["x-mesh-timestamp"]
    expected = signing.sign_inbound(SECRET, INSTALL, stamp, sent.content)
    assert sent.headers["x-mesh-signature"] == expected


def test_a_secret_that_is_no_text_is_bad_usage(
    mesh: Line, api: Api, piped: Callable[[str], None]
) -> None:
    piped("\udcff\udcfe")
    code, _, err = mesh("send", "--connector", INSTALL, "--secret-stdin", "x")
    assert (code, api.requests) == (2, [])
    assert "UTF-8" in one_line(err)


@pytest.mark.parametrize(
    "line",
    [
        ("agent", "show", "\udcff"),
        ("agent", "create", "ada", "--name", "\udcff"),
        ("agent", "create", "ada", "--idempotency-key", "é"),
        ("agent", "create", "ada", "--idempotency-key", "a\nb"),
        ("connector", "rotate", INSTALL, "--overlap", "9" * 5000),
        ("connector", "rotate", INSTALL, "--overlap", "٣h"),
        ("agent",),
        ("connector",),
    ],
)
def test_what_cannot_be_sent_is_bad_usage_in_one_line(
    mesh: Line, api: Api, line: tuple[str, ...]
) -> None:
    code, out, err = mesh(*line)
    assert (code, out, api.requests) == (2, "", [])
    assert len(one_line(err)) < 6000


@pytest.mark.parametrize("install", ["ins_é", "ins_\nX-Other: y", "ins_\x00"])
def test_an_install_that_no_header_can_name_is_bad_usage(
    mesh: Line, api: Api, piped: Callable[[str], None], install: str
) -> None:
    piped(SECRET)
    code, _, err = mesh("send", "--connector", install, "--secret-stdin", "x")
    assert (code, api.requests) == (2, [])
    assert "X-Mesh-Install" in one_line(err)


def test_a_group_without_a_command_says_where_its_help_is(mesh: Line) -> None:
    _, _, err = mesh("outbox")
    assert err == "mesh: a command is missing. See: mesh outbox --help\n"


def test_a_token_file_may_begin_with_a_byte_order_mark(
    mesh: Line, api: Api, tmp_path: Path
) -> None:
    api.on("GET /api/agents/ada", 200, AGENT)
    file = tmp_path / "token"
    file.write_bytes(b"\xef\xbb\xbf" + TOKEN.encode() + b"\r\n")
    assert mesh("agent", "show", "ada", "--token-file", str(file))[0] == 0
    assert api.requests[-1].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-", "<&- >/dev/full", "2>&-"])
def test_an_output_that_cannot_be_written_ends_without_a_traceback(redirection: str) -> None:
    code = "from mesh.operator.cli.main import main; main()"
    line = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} --version {redirection}"
    ended = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    if "/dev/full" in redirection:
        assert ended.returncode == 1
        one_line(ended.stderr)
    else:
        assert ended.returncode == 0


PAGES = [
    httpx.Response(200, text="<html>Welcome</html>"),
    httpx.Response(200, json=None),
    httpx.Response(200, json=[]),
    httpx.Response(200),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.text or "empty")
@pytest.mark.parametrize("line", [("agent", "list"), ("whoami", "--json"), ("outbox", "list")])
def test_a_server_that_is_not_mesh_is_told_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    page: httpx.Response,
    line: tuple[str, ...],
) -> None:
    code, out, err = Line(lambda _: page, tmp_path, capsys)(*line)
    assert (code, out) == (1, "")
    assert "not Mesh" in one_line(err)


@pytest.mark.parametrize("document", [{}, {"items": 3}, {"items": None}])
def test_a_list_without_items_is_no_list_of_mesh(mesh: Line, api: Api, document: Any) -> None:
    api.on("GET /api/agents", 200, document)
    code, _, err = mesh("agent", "list")
    assert code == 1
    assert "not Mesh" in one_line(err)


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (200, []),
        (202, {}),
        (200, {"status": "fine"}),
        (403, {"error": "no"}),
        (422, {"error": {"code": "a", "fields": "b"}}),
        (422, {"error": {"code": "a", "fields": [1]}}),
        (500, ["no"]),
    ],
)
def test_what_mesh_did_not_say_counts_as_no_message_taken_in(
    mesh: Line, api: Api, piped: Callable[[str], None], status: int, document: Any
) -> None:
    api.on("POST /generic/events", status, document)
    piped(SECRET)
    code, _, err = mesh("send", "--connector", INSTALL, "--secret-stdin", "x")
    assert code == 1
    one_line(err)


def test_an_answer_that_cannot_be_decoded_is_a_connection_that_broke(mesh: Line, api: Api) -> None:
    api.on("GET /api/agents", 200, httpx.DecodingError("x"))
    code, _, err = mesh("agent", "list")
    assert code == 3
    assert "broke" in one_line(err)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_name_that_the_output_cannot_show_is_escaped(encoding: str) -> None:
    code = (
        "from mesh.operator.cli import main, terminal\n"
        "def run(_):\n"
        "    shown = terminal.Terminal(as_json=False)\n"
        "    shown.table(('NAME',), [('日本',)])\n"
        "    shown.fields([('name', 'é日本')])\n"
        "    return 0\n"
        "main.run = run\n"
        "main.main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", code],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ("日本".encode() in ended.stdout) is (encoding != "latin-1")


def test_a_daily_limit_is_set_taken_away_and_shown_with_what_was_used(mesh: Line, api: Api) -> None:
    today = {"today": {"turns": 7, "tokens": None}}
    api.on("GET /api/agents/ada", 200, AGENT | today)
    api.on("PUT /api/agents/ada", 200, AGENT | today)
    code, out, _ = mesh(
        "agent", "update", "ada", "--turns-per-day", "0", "--tokens-per-day", "none"
    )
    assert code == 0
    limits = api.body()["limits"]
    assert (limits["turns_per_day"], limits["tokens_per_day"]) == (0, None)
    assert re.search(r"today turns +7", out)
    assert re.search(r"today tokens +–", out)  # it is not counted
    code, _, err = mesh("agent", "update", "ada", "--turns-per-day", "-3")
    assert (code, "turns-per-day" in err) == (2, True)
