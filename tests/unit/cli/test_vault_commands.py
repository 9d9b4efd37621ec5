"""`mesh vault` and the model's key on the command line: read from a file or a pipe, never shown."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.unit.cli.test_commands import AGENT, Api, Line, error, one_line

VALUE = "canary-of-a-value"
SHOWN = {
    "name": "github",
    "version": 2,
    "created_at": "2026-11-30T05:42:35.123Z",
    "updated_at": "2026-11-30T06:00:00.000Z",
    "account": None,
}
VAULT = "/api/agents/ada/vault"


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def mesh(api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Line:
    return Line(api, tmp_path, capsys)


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_value_is_read_from_standard_input_or_a_file_less_one_lines_end(
    mesh: Line, api: Api, piped: Callable[[str], None], tmp_path: Path
) -> None:
    api.on(f"PUT {VAULT}/github", 200, SHOWN)
    piped(VALUE + "\n")
    code, out, err = mesh("vault", "set", "github", "--agent", "ada", "--value-stdin")
    assert (code, err, api.body()) == (0, "", {"value": VALUE})
    file = tmp_path / "value"
    file.write_bytes(f"\ufeff{VALUE}\nsecond line\r\n".encode())
    line = ("vault", "set", "github", "--agent", "ada", "--value-file", str(file), "--json")
    code, document, _ = mesh(*line)
    assert (code, api.body()) == (0, {"value": f"{VALUE}\nsecond line"})
    assert json.loads(document) == SHOWN
    assert VALUE not in out + document


def test_line_ends_within_a_piped_value_are_kept_as_they_came(
    mesh: Line, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on(f"PUT {VAULT}/key", 200, SHOWN)
    pipe = io.TextIOWrapper(io.BytesIO("\ufeffé\r\nb\rc\r\n".encode()), encoding="latin-1")
    monkeypatch.setattr("sys.stdin", pipe)
    assert mesh("vault", "set", "key", "--agent", "ada", "--value-stdin")[0] == 0
    assert api.body() == {"value": "é\r\nb\rc"}


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_a_path_cannot_hold_leads_nowhere_else(
    mesh: Line, api: Api, piped: Callable[[str], None], name: str
) -> None:
    for line in (
        ("vault", "set", name, "--agent", "ada", "--value-stdin"),
        ("vault", "set", "github", "--agent", name, "--value-stdin"),
        ("vault", "delete", name, "--agent", "ada"),
        ("run", "cancel", name),
    ):
        piped(VALUE)
        code, out, err = mesh(*line)
        assert (code, out, api.requests) == (2, "", [])
        one_line(err)


@pytest.mark.parametrize(
    "line",
    [
        ("set", "github", VALUE, "--agent", "ada"),
        ("set", "github", "--agent", "ada"),
        ("set", "github", "--value-stdin"),
        ("set", "github", "--agent", "ada", "--value-file", "/nowhere/at/all"),
        ("set", "github", "--agent", "ada", "--value-file", "/dev/null"),
        ("set", "github", "--agent", "ada", "--value-stdin", "--value-file", "/dev/null"),
    ],
)
def test_what_names_no_value_is_bad_usage_in_one_line(
    mesh: Line, api: Api, piped: Callable[[str], None], line: tuple[str, ...]
) -> None:
    piped("")
    code, out, err = mesh("vault", *line)
    assert (code, out, api.requests) == (2, "", [])
    one_line(err)


def test_a_vault_is_listed_and_a_value_deleted(mesh: Line, api: Api) -> None:
    api.on(f"GET {VAULT}", 200, {"items": [SHOWN], "next_cursor": None})
    api.on(f"DELETE {VAULT}/github", 204, None)
    code, out, _ = mesh("vault", "list", "--agent", "ada")
    assert code == 0
    assert "github" in out
    assert "2026-11-30 06:00:00" in out
    code, out, _ = mesh("vault", "delete", "github", "--agent", "ada", "--json")
    assert (code, json.loads(out)) == (0, {"name": "github", "state": "deleted"})


def test_a_models_key_is_put_after_the_agent_is_made_or_changed(
    mesh: Line, api: Api, piped: Callable[[str], None]
) -> None:
    kept = AGENT | {"model": AGENT["model"] | {"kind": "openai", "credential_present": True}}  # type: ignore[operator]
    api.on("POST /api/agents", 201, AGENT).on("GET /api/agents/ada", 200, kept)
    api.on("PUT /api/agents/ada", 200, AGENT)
    api.on("PUT /api/agents/ada/model-key", 200, {"credential_present": True})
    piped(VALUE + "\n")
    line = ("agent", "create", "ada", "--model", "openai", "--model-key-stdin")
    code, out, _ = mesh(*line, "--json")
    asked = [f"{request.method} {request.url.path}" for request in api.requests]
    assert asked == ["POST /api/agents", "PUT /api/agents/ada/model-key", "GET /api/agents/ada"]
    assert api.body(0) == {"slug": "ada", "model": {"kind": "openai"}}
    assert api.body(1) == {"value": VALUE}
    assert code == 0
    assert json.loads(out)["model"]["credential_present"] is True

    api.requests.clear()
    piped(VALUE)
    base = ("--model-base-url", "https://llm.example/v1")
    assert mesh("agent", "update", "ada", *base, "--model-key-stdin")[0] == 0
    assert [r.url.path for r in api.requests if r.method == "PUT"] == [
        "/api/agents/ada",
        "/api/agents/ada/model-key",
    ]


def test_an_agent_that_was_made_without_its_models_key_is_told_of(
    mesh: Line, api: Api, piped: Callable[[str], None]
) -> None:
    api.on("POST /api/agents", 201, AGENT)
    api.on("PUT /api/agents/ada/model-key", 422, error("invalid_request", "it is not valid"))
    piped("a key")
    line = ("agent", "create", "ada", "--model", "openai", "--model-key-stdin")
    code, out, err = mesh(*line)
    assert (code, out) == (1, "")
    one_line(err)
    assert "ada was created" in err
    assert "it is not valid" in err
    assert "mesh agent update ada --model-key-stdin" in err


def test_a_models_key_alone_is_put_or_forgotten_without_touching_the_settings(
    mesh: Line, api: Api, piped: Callable[[str], None]
) -> None:
    api.on("GET /api/agents/ada", 200, AGENT)
    api.on("PUT /api/agents/ada/model-key", 200, {"credential_present": True})
    api.on("DELETE /api/agents/ada/model-key", 204, None)
    piped(VALUE)
    assert mesh("agent", "update", "ada", "--model-key-stdin")[0] == 0
    assert mesh("agent", "update", "ada", "--forget-model-key")[0] == 0
    changed = [(r.method, r.url.path) for r in api.requests if r.method != "GET"]
    assert changed == [
        ("PUT", "/api/agents/ada/model-key"),
        ("DELETE", "/api/agents/ada/model-key"),
    ]
    piped(VALUE)
    line = ("agent", "update", "ada", "--model-key-stdin", "--forget-model-key")
    assert mesh(*line)[0] == 2


# ---- the master key


def rewrap_state(status: str, done: int) -> dict[str, object]:
    return {
        "status": status,
        "done": done,
        "total": 3,
        "rewrapped": done,
        "unopenable": 0,
        "started_at": "2026-11-30T05:42:35.123Z",
        "ended_at": None,
    }


class Steps(Api):
    """Answers one state after another."""

    def __init__(self, *states: dict[str, object]) -> None:
        super().__init__()
        self.states = iter(states)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.on("POST /api/instance/rewrap", 202, next(self.states))
        return super().__call__(request)


@pytest.mark.parametrize(("ends", "code"), [("done", 0), ("failed", 1)])
def test_a_rewrap_goes_on_until_it_has_ended_and_tells_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ends: str, code: int
) -> None:
    states = (rewrap_state("running", 1), rewrap_state("running", 2), rewrap_state(ends, 3))
    mesh = Line(Steps(*states), tmp_path, capsys)
    ended, out, err = mesh("secret", "rewrap")
    assert ended == code
    assert err.splitlines() == ["1 of 3", "2 of 3"]
    assert "3 of 3" in out
    mesh = Line(Steps(*states), tmp_path, capsys)
    ended, out, err = mesh("secret", "rewrap", "--json")
    assert (ended, err, json.loads(out)) == (code, "", states[-1])


def test_how_far_a_rewrap_is_can_be_asked_without_going_on(mesh: Line, api: Api) -> None:
    api.on("GET /api/instance/rewrap", 200, rewrap_state("running", 1))
    code, out, _ = mesh("secret", "rewrap", "--status")
    assert (code, [request.method for request in api.requests]) == (0, ["GET"])
    assert "1 of 3" in out


def test_a_value_may_be_an_acting_accounts(
    mesh: Line, api: Api, piped: Callable[[str], None]
) -> None:
    account = {"origin": "https://github.com", "name": "ada-bot"}
    api.on(f"PUT {VAULT}/github", 200, SHOWN | {"account": account})
    api.on(f"GET {VAULT}", 200, {"items": [SHOWN | {"account": account}], "next_cursor": None})
    piped(VALUE)
    given = ("--account", "https://github.com", "ada-bot")
    code, _, err = mesh("vault", "set", "github", "--agent", "ada", "--value-stdin", *given)
    assert (code, err, api.body()) == (0, "", {"value": VALUE, "account": account})
    _, out, _ = mesh("vault", "list", "--agent", "ada")
    assert "ada-bot" in out
