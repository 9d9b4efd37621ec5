"""`mesh web …` over the real API: what each command sets, keeps, says, and never shows."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from mesh.control.connections import open_provider_key, read_grants
from mesh.kernel.limits import REQUESTS_PER_MINUTE_DEFAULT, REQUESTS_PER_RUN_DEFAULT
from mesh.records.connection import Capability, Grant
from mesh.storage import keys
from mesh.storage.writes import delete, update
from mesh.tools.web.catalogue import PROVIDERS, kept_for
from tests.fakes.line import GatewayTransport, Line
from tests.fakes.operators import Api, admin, minted
from tests.fakes.system import System

KEY = "canary-provider-key-0123456789"
OTHER = "canary-another-key-0123456789"
ACCOUNT = "0123456789abcdef" * 2


class Terminal:
    """A command line of one token, what is piped into it, and the API beside it."""

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        self.system = System()
        self.api = admin(self.system)
        self.line = Line(self.api, folder, capsys)
        self._patch = patch

    def as_one(self, api: Api) -> Line:
        return Line(api, self.line.folder, self.line.capsys)

    def ok(self, line: str, piped: str | None = None) -> str:
        """The output of `mesh web LINE`, which must succeed."""
        self.pipe(piped or "")
        return self.line.ok("web", *line.split())

    def fails(self, line: str, code: int = 1, piped: str = "") -> str:
        """What `mesh web LINE` says on standard error: one line, and nothing beside it."""
        self.pipe(piped)
        ended, out, err = self.line("web", *line.split())
        assert (ended, out) == (code, ""), err
        assert err.startswith("mesh: ")
        assert err.count("\n") == 1
        return err

    def pipe(self, text: str) -> None:
        self._patch.setattr("sys.stdin", io.StringIO(text))

    def get(self, capability: str = "search", agent: str | None = None) -> Any:
        base = "/api" if agent is None else f"/api/agents/{agent}"
        return self.api.ok("GET", f"{base}/web-access/{capability}")

    def opened(self, capability: Capability = Capability.SEARCH) -> str | None:
        """The key that the agent's next call would be made with."""
        agent_id = self.system.agent.agent_id
        grant = read_grants(self.system.table, agent_id, [capability])[capability]
        assert isinstance(grant, Grant), grant
        provider = PROVIDERS[grant.provider]
        wrapper = self.system.control.wrapper
        return open_provider_key(self.system.table, wrapper, agent_id, grant, kept_for(provider))


@pytest.fixture
def mesh(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    return Terminal(tmp_path, capsys, monkeypatch)


def limits(minute: int, run: int) -> dict[str, int]:
    return {"requests_per_minute": minute, "requests_per_run": run}


# ---- set


def test_a_first_set_takes_a_provider_a_key_and_the_defaults(mesh: Terminal) -> None:
    out = mesh.ok("set search --provider brave --key-stdin", KEY + "\n")
    assert KEY not in out
    settings = mesh.get()["settings"]
    assert settings == {
        "mode": "custom",
        "provider": "brave",
        "config": {},
        "limits": limits(REQUESTS_PER_MINUTE_DEFAULT, REQUESTS_PER_RUN_DEFAULT),
        "version": 1,
    }
    assert mesh.opened() == KEY


def test_a_set_changes_what_it_names_and_keeps_the_rest_with_the_key(
    mesh: Terminal, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    mesh.ok(
        f"set read --provider cloudflare --config account_id={ACCOUNT} --key-file {file}"
        " --requests-per-minute 7"
    )
    document = json.loads(mesh.ok("set read --requests-per-run 3 --json"))
    assert document == mesh.get("read")
    assert document["settings"]["config"] == {"account_id": ACCOUNT}
    assert document["settings"]["limits"] == limits(7, 3)
    assert mesh.opened(Capability.READ) == KEY
    mesh.ok("set read --config account_id=" + "f" * 32)
    assert mesh.get("read")["settings"]["config"] == {"account_id": "f" * 32}
    mesh.ok("set read --key-stdin", OTHER)
    assert mesh.opened(Capability.READ) == OTHER
    assert mesh.get("read")["settings"]["limits"] == limits(7, 3)


def test_another_provider_starts_without_the_ones_config_and_asks_for_its_own_key(
    mesh: Terminal,
) -> None:
    mesh.ok(f"set read --provider cloudflare --config account_id={ACCOUNT} --key-stdin", KEY)
    err = mesh.fails("set read --provider firecrawl", 2)
    assert "no key of Firecrawl is kept for the instance" in err
    assert "--key-stdin" in err
    assert mesh.get("read")["settings"]["provider"] == "cloudflare"
    mesh.ok("set read --provider firecrawl --key-stdin", OTHER)
    assert mesh.get("read")["settings"]["config"] == {}
    assert mesh.opened(Capability.READ) == OTHER
    mesh.ok(f"set read --provider cloudflare --config account_id={ACCOUNT}")
    assert mesh.opened(Capability.READ) == KEY, "the first one's key was kept"


def test_an_agent_has_its_own_and_the_instances_key_is_not_taken_for_it(mesh: Terminal) -> None:
    mesh.ok("set search --provider brave --key-stdin", KEY)
    err = mesh.fails("set search --agent ada --provider brave", 2)
    assert "no key of Brave Search is kept for ada" in err
    mesh.ok("set search --agent ada --provider brave --key-stdin", OTHER)
    assert mesh.opened() == OTHER
    assert mesh.get(agent="ada")["credential_source"] == "agent"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("set search", "mesh web set search --provider NAME, one of brave, perplexity"),
        ("set search --agent ada", "mesh web set search --agent ada --provider NAME"),
        ("set search --provider firecrawl --key-stdin", "one of brave, perplexity"),
        ("set read --provider cloudflare --key-stdin", "needs --config account_id=VALUE: 32"),
        ("set search --provider brave --config account_id --key-stdin", "NAME=VALUE"),
        ("set search --provider brave --key-stdin --key-file x", "give one of --key-stdin"),
        ("set search --provider brave --key-file /nowhere", "cannot be read"),
        ("set search --provider brave --key-prompt", "--key-stdin"),
        ("set search --provider brave --requests-per-run 0", "1<=x<=10000"),
        ("set search --provider brave --key " + KEY, "No such option"),
        ("set browser --provider brave", "browser"),
        ("inherit search", "--agent"),
        ("forget search", "nothing to forget"),
    ],
)
def test_what_is_missing_or_wrong_is_one_line_that_says_what_to_give(
    mesh: Terminal, line: str, said: str
) -> None:
    err = mesh.fails(line, 1 if line.startswith("forget") else 2, piped=KEY)
    assert said in err
    assert mesh.get()["settings"] is None


def test_a_set_that_names_nothing_changes_nothing(mesh: Terminal) -> None:
    mesh.ok("set search --provider brave --key-stdin", KEY)
    assert "at least one option" in mesh.fails("set search", 2)
    assert mesh.get()["settings"]["version"] == 1


def test_what_the_api_refuses_is_told_with_the_field(mesh: Terminal) -> None:
    err = mesh.fails("set search --provider brave --key-stdin", piped="two words")
    assert "api_key: must be printable ASCII" in err
    assert "two words" not in err
    line = "set search --provider brave --config allowed_hosts=example.com --key-stdin"
    err = mesh.fails(line, piped=KEY)
    assert "config.allowed_hosts: Brave Search cannot enforce a restriction to hosts" in err


class Desk(io.StringIO):
    """A terminal with somebody before it."""

    def isatty(self) -> bool:
        return True


def test_a_key_that_is_missing_is_asked_for_where_somebody_can_be(
    mesh: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Desk())
    asked: list[bool] = []

    def prompt(_: str, *, hide_input: bool, err: bool) -> str:
        asked.append(hide_input and err)
        return KEY

    monkeypatch.setattr(click, "prompt", prompt)
    code, out, err = mesh.line("web", "set", "search", "--provider", "brave")
    assert (code, asked) == (0, [True])
    assert "subscription token" in err, "what kind of key is wanted"
    assert KEY not in out + err
    assert mesh.opened() == KEY


class Racing(GatewayTransport):
    """Another operator's change comes between the reading and the writing of a command."""

    change: Callable[[], object]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            type(self).change()
        return super().handle_request(request)


@pytest.mark.parametrize(("agent", "shown"), [(None, "search"), ("ada", "search --agent ada")])
def test_a_change_that_came_too_late_says_where_to_look(
    mesh: Terminal, agent: str | None, shown: str
) -> None:
    option = "" if agent is None else f" --agent {agent}"
    mesh.ok(f"set search --provider brave --key-stdin{option}", KEY)
    base = "/api" if agent is None else f"/api/agents/{agent}"
    Racing.change = staticmethod(  # type: ignore[method-assign]
        lambda: mesh.api.ok("PUT", f"{base}/web-access/search", {"mode": "disabled", "version": 1})
    )
    mesh.line.transport = Racing
    err = mesh.fails(f"set search --requests-per-run 5{option}")
    assert f"look with `mesh web show {shown}`, then run the command again" in err
    assert mesh.get(agent=agent)["settings"]["mode"] == "disabled"


# ---- disable, inherit, forget


@pytest.mark.behaviour("enablement:no-undo-claim")
@pytest.mark.parametrize("option", ["", " --agent ada"])
def test_disabling_keeps_the_key_and_claims_no_more_than_it_does(
    mesh: Terminal, option: str
) -> None:
    mesh.ok(f"set search --provider brave --key-stdin{option}", KEY)
    out = mesh.ok(f"disable search{option}")
    assert "already sent is not undone, and may have cost" in " ".join(out.split())
    agent = "ada" if option else None
    shown = mesh.get(agent=agent)
    assert (shown["settings"]["mode"], shown["available"]) == ("disabled", False)
    assert [each["provider"] for each in shown["kept_keys"]] == ["brave"]
    mesh.ok(f"set search{option}")
    assert mesh.opened() == KEY, "what was disabled is set again by one word"


def test_what_goes_by_a_provider_of_before_can_be_disabled(mesh: Terminal) -> None:
    mesh.ok("set search --provider brave --key-stdin", KEY)
    row = keys.connection("instance", "search")
    mesh.system.table.write(update(row, "SET #provider = :gone", gone="gone"))
    assert "gone serves no search" in mesh.fails("set search --requests-per-run 1", 2)
    mesh.ok("disable search")
    assert mesh.get()["settings"]["mode"] == "disabled"


@pytest.mark.behaviour("operator:inherit-body")
def test_an_agent_follows_the_instance_again_with_less_a_run_if_it_says_so(
    mesh: Terminal,
) -> None:
    mesh.ok("set search --provider brave --key-stdin --requests-per-run 9", KEY)
    mesh.ok("set search --agent ada --provider brave --key-stdin", OTHER)
    out = mesh.ok("inherit search --agent ada --requests-per-run 4")
    assert "instance" in out
    shown = mesh.get(agent="ada")
    assert shown["effective_limits"]["requests_per_run"] == 4
    assert mesh.opened() == KEY
    mesh.ok("inherit search --agent ada")
    assert mesh.get(agent="ada")["effective_limits"]["requests_per_run"] == 9
    err = mesh.fails("inherit search --agent ada --requests-per-run 10")
    assert "limits.requests_per_run: must not be above the instance's, which is 9" in err


def test_forgetting_deletes_the_key_and_disables_in_one_step(mesh: Terminal) -> None:
    mesh.ok("set search --provider brave --key-stdin", KEY)
    out = mesh.ok("forget search")
    assert "revoke it there" in " ".join(out.split())
    shown = mesh.get()
    assert (shown["settings"]["mode"], shown["kept_keys"]) == ("disabled", [])
    assert shown["settings"]["version"] == 2, "one change and not two"
    assert "no key of Brave Search" in mesh.fails("set search", 2)


def test_forgetting_an_unused_key_of_an_agent_says_how_it_follows_the_instance_again(
    mesh: Terminal,
) -> None:
    mesh.ok("set search --provider brave --key-stdin", KEY)
    mesh.ok("set search --agent ada --provider perplexity --key-stdin", OTHER)
    mesh.ok("inherit search --agent ada")
    out = mesh.ok("forget search --agent ada")
    assert "mesh web inherit search --agent ada" in " ".join(out.split())
    assert mesh.get(agent="ada")["kept_keys"] == []
    mesh.ok("inherit search --agent ada")
    assert mesh.opened() == KEY


def test_nothing_is_turned_off_for_a_key_that_is_not_kept_or_not_in_use(mesh: Terminal) -> None:
    mesh.ok("set search --provider brave --key-stdin", KEY)
    before = mesh.get()
    err = mesh.fails("forget search --provider perplexity")
    assert "no key of perplexity is kept for the instance; there is one of brave" in err
    assert "nothing to forget" in mesh.fails("forget search --agent ada --provider brave")
    mesh.ok("set search --provider perplexity --key-stdin", OTHER)
    mesh.ok("set search --provider brave")
    err = " ".join(mesh.fails("forget search --provider perplexity").split())
    assert "search goes by brave" in err
    assert "mesh web disable search, then this command again" in err
    shown = mesh.get()
    assert (shown["available"], shown["effective_provider"]) == (True, "brave")
    assert before["available"]
    mesh.ok("disable search")
    mesh.ok("forget search --provider perplexity")
    mesh.ok("set search --provider brave")
    assert [each["provider"] for each in mesh.get()["kept_keys"]] == ["brave"]


def test_what_is_off_shows_which_provider_would_be_turned_on_again(mesh: Terminal) -> None:
    mesh.ok("set search --provider perplexity --key-stdin", KEY)
    out = mesh.ok("disable search")
    assert re.search(r"provider +perplexity", out)
    assert "mesh web set search --provider perplexity" in " ".join(out.split())


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("set search --provider=", "--provider takes a name"),
        ("set read --config account_id=a --config account_id=b", "account_id is given twice"),
    ],
)
def test_an_option_that_says_nothing_or_two_things_changes_nothing(
    mesh: Terminal, line: str, told: str
) -> None:
    mesh.ok("set search --provider brave --key-stdin", KEY)
    assert told in mesh.fails(line, 2)
    assert mesh.get()["settings"]["version"] == 1


def test_of_several_keys_the_one_to_forget_is_named(mesh: Terminal) -> None:
    mesh.ok("set search --agent ada --provider brave --key-stdin", KEY)
    mesh.ok("set search --agent ada --provider perplexity --key-stdin", OTHER)
    mesh.ok("inherit search --agent ada")
    assert "one of brave, perplexity" in mesh.fails("forget search --agent ada", 2)
    mesh.ok("forget search --agent ada --provider brave")
    assert [each["provider"] for each in mesh.get(agent="ada")["kept_keys"]] == ["perplexity"]


# ---- show


def test_what_is_set_fits_a_terminal_and_names_the_next_command(mesh: Terminal) -> None:
    mesh.ok("set search --provider perplexity --requests-per-minute 10000 --key-stdin", KEY)
    for line in ("show", "show --agent ada", "show search", "show read --agent ada"):
        out = mesh.ok(line)
        assert max(map(len, out.splitlines())) <= 80, out
    out = mesh.ok("show --agent ada")
    assert "inherit" in out
    assert "mesh web set read --provider NAME --key-stdin" in " ".join(out.split())
    detail = " ".join(mesh.ok("show read").split())
    assert "Browser Rendering → Edit" in detail
    assert "redirects: By the provider alone" in detail
    for line, path in (
        ("show --json", "/api/web-access"),
        ("show --agent ada --json", "/api/agents/ada/web-access"),
        ("show read --json", "/api/web-access/read"),
    ):
        assert json.loads(mesh.ok(line)) == mesh.api.ok("GET", path)


def test_each_reason_for_being_off_names_the_command_that_mends_it(mesh: Terminal) -> None:
    def said(agent: str = "") -> str:
        return " ".join(mesh.ok(f"show{agent}").split())

    mesh.ok("set search --provider brave --key-stdin", KEY)
    mesh.ok("disable search")
    assert "mesh web set search" in said()
    assert "the instance has it disabled" in said(" --agent ada")
    mesh.ok("set search")
    mesh.system.table.write(delete(keys.provider_key("instance", "brave")))
    again = "its key is missing. Next: mesh web set search --provider brave --key-stdin"
    assert again in said()
    assert again in said(" --agent ada"), "it is the instance's that is missing"
    mesh.ok("disable search --agent ada")
    assert "mesh web inherit search --agent ada" in said(" --agent ada")
    mesh.ok("set search --agent ada --provider brave --key-stdin", OTHER)
    mesh.system.table.write(delete(keys.provider_key(mesh.system.agent.agent_id, "brave")))
    assert "mesh web set search --agent ada --provider brave --key-stdin" in said(" --agent ada")


def test_who_may_not_is_told_where_to_look(mesh: Terminal) -> None:
    operator = mesh.as_one(minted(mesh.api, "operator", ["ada"]))
    viewer = mesh.as_one(minted(mesh.api, "viewer", ["ada"]))
    mesh.pipe(KEY)
    code, _, err = operator("web", "set", "search", "--provider", "brave", "--key-stdin")
    assert (code, "mesh whoami" in err) == (1, True)
    for line in (operator, viewer):
        line.ok("web", "show")
        assert line("web", "show", "--agent", "nobody")[0] == 1
    assert viewer("web", "disable", "search", "--agent", "ada")[0] == 1
    operator.ok("web", "disable", "search", "--agent", "ada")
    assert "mesh agent list" in mesh.fails("show --agent nobody")
