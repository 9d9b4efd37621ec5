"""What an agent has set for the web goes with its file, but for its providers' keys: until one is
given there, the agent neither goes by the instance's nor is left without a word about it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.line import GatewayTransport, Line
from tests.fakes.operators import admin
from tests.fakes.system import System

KEY = "canary-provider-key-0123456789"
ACCOUNT = "0123456789abcdef" * 2
LIMITS = {"requests_per_minute": 30, "requests_per_run": 7}
OF_ITS_OWN = {"mode": "custom", "provider": "brave", "config": {}, "limits": LIMITS}
A_READER = {
    "mode": "custom",
    "provider": "cloudflare",
    "config": {"account_id": ACCOUNT},
    "limits": LIMITS,
}
OFF = {"mode": "disabled", "provider": None, "config": {}, "limits": None}
LESS = {
    "mode": "inherit",
    "provider": None,
    "config": {},
    "limits": {"requests_per_minute": None, "requests_per_run": 3},
}


class Instances:
    """Two instances with an agent each, whose own settings an operator reads and writes."""

    def __init__(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.here = Line(admin(System()), tmp_path, capsys)
        self.there = Line(admin(System()), tmp_path, capsys)
        self.file = tmp_path / "ada.json"

    def put(self, line: Line, capability: str, settings: Mapping[str, Any], **more: Any) -> None:
        path = f"/api/agents/ada/web-access/{capability}"
        stands = line.api.ok("GET", path)["settings"]
        version = 0 if stands is None else stands["version"]
        line.api.ok("PUT", path, {**settings, **more, "version": version})

    def stands(self, line: Line, slug: str = "ada") -> dict[str, Any]:
        """What is set by capability, and whether anything is available by it."""
        shown = line.api.ok("GET", f"/api/agents/{slug}/web-access")["capabilities"]
        return {
            each["capability"]: each["settings"]
            and {name: value for name, value in each["settings"].items() if name != "version"}
            for each in shown
        }

    def moved(self, *arguments: str) -> str:
        self.here.ok("agent", "export", "ada", "--output", str(self.file))
        return self.there.ok("agent", "apply", str(self.file), *arguments)


class Silent(GatewayTransport):
    """Lets nothing through."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        raise AssertionError(request.url)


class Reading(GatewayTransport):
    """Lets nothing but what reads through."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert request.method == "GET"
        return super().handle_request(request)


def command(out: str) -> list[str]:
    """The command that is told, as a shell takes it."""
    return shlex.split(out.partition("to give one:\n")[2].replace("\\\n", ""))


@pytest.fixture
def two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Instances:
    return Instances(tmp_path, capsys)


@pytest.mark.parametrize("settings", [OFF, LESS])
@pytest.mark.parametrize("slug", ["ada", "eve"])
def test_an_opt_out_and_a_lower_allowance_go_with_the_file(
    two: Instances, settings: Mapping[str, Any], slug: str
) -> None:
    two.put(two.here, "search", settings)
    out = two.moved("--slug", slug)
    assert "update web access search at version 0" in out
    assert two.stands(two.there, slug) == {"search": settings, "read": None}
    assert two.there.ok("agent", "apply", str(two.file), "--slug", slug).startswith(
        f"{slug} matches"
    )


def test_a_connection_waits_for_its_key_and_does_not_go_by_the_instances(two: Instances) -> None:
    two.put(two.here, "read", A_READER, api_key=KEY)
    shared = {"mode": "custom", "provider": "firecrawl", "limits": LIMITS, "api_key": KEY}
    two.there.api.ok("PUT", "/api/web-access/read", {**shared, "version": 0})
    out = two.moved()
    assert KEY not in two.file.read_text()
    assert "disabled until a key of cloudflare is given" in out
    waiting = A_READER | {"mode": "disabled", "limits": None}
    assert two.stands(two.there) == {"search": None, "read": waiting}
    (read,) = [
        each
        for each in two.there.api.ok("GET", "/api/agents/ada/web-access")["capabilities"]
        if each["capability"] == "read"
    ]
    assert (read["available"], read["effective_provider"]) == (False, None)
    # The line that it tells is the one that mends it.
    assert command(out) == [
        *("mesh", "web", "set", "read", "--agent", "ada", "--provider", "cloudflare"),
        *("--config", f"account_id={ACCOUNT}", "--requests-per-minute", "30"),
        *("--requests-per-run", "7", "--key-stdin"),
    ]
    assert two.there.ok("agent", "apply", str(two.file)).startswith("ada matches")
    two.put(two.there, "read", A_READER, api_key=KEY)
    assert two.there.ok("agent", "apply", str(two.file)).startswith("ada matches")


def test_where_the_agent_has_the_providers_key_its_connection_is_on_at_once(two: Instances) -> None:
    two.put(two.here, "search", OF_ITS_OWN, api_key=KEY)
    two.put(
        two.there, "search", OF_ITS_OWN | {"limits": LIMITS | {"requests_per_run": 1}}, api_key=KEY
    )
    out = two.moved()
    assert "update web access search at version 1: limits.requests_per_run" in out
    assert "--key-stdin" not in out
    assert two.stands(two.there)["search"] == OF_ITS_OWN


def test_a_plan_tells_what_waits_for_a_key_and_sets_nothing(two: Instances) -> None:
    two.put(two.here, "search", OF_ITS_OWN, api_key=KEY)
    out = two.moved("--dry-run")
    first, _, next_ = out.partition("\n\n")
    assert first == "update web access search at version 0: disabled until a key of brave is given"
    assert next_.startswith(
        "its search goes by a key of brave of its own; to give one:\n  mesh web"
    )
    assert two.stands(two.there)["search"] is None
    told = json.loads(two.there.ok("agent", "apply", str(two.file), "--json"))
    assert told["done"][0]["awaits_key_of"] == "brave"


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_a_file_that_stands_but_for_a_key_tells_of_it_each_time(
    two: Instances, dry_run: tuple[str, ...]
) -> None:
    two.put(two.here, "read", A_READER, api_key=KEY)
    first = command(two.moved())
    two.there.transport = Reading
    out = two.there.ok("agent", "apply", str(two.file), *dry_run)
    assert out.startswith(f"ada matches {two.file}, but for a key\n\nits read goes by a key")
    assert command(out) == first
    told = json.loads(two.there.ok("agent", "apply", str(two.file), *dry_run, "--json"))
    (awaited,) = told["awaits"]
    assert (awaited["capability"], awaited["provider"]) == ("read", "cloudflare")
    assert shlex.split(awaited["command"]) == first
    assert (told["done"], told["left"]) == ([], [])
    two.there.transport = GatewayTransport
    two.put(two.there, "read", A_READER, api_key=KEY)
    assert two.there.ok("agent", "apply", str(two.file)) == f"ada matches {two.file}\n"
    told = json.loads(two.there.ok("agent", "apply", str(two.file), "--json"))
    assert told["awaits"] == []


def test_what_is_awaited_is_told_in_the_document_of_the_first_run_and_of_a_plan(
    two: Instances,
) -> None:
    two.put(two.here, "search", OF_ITS_OWN, api_key=KEY)
    for options in (("--slug", "eve", "--dry-run"), ("--slug", "eve")):
        (awaited,) = json.loads(two.moved(*options, "--json"))["awaits"]
        assert awaited == {
            "capability": "search",
            "provider": "brave",
            "command": "mesh web set search --agent eve --provider brave"
            " --requests-per-minute 30 --requests-per-run 7 --key-stdin",
        }


def test_the_told_command_is_one_that_a_shell_takes_as_it_is_meant(two: Instances) -> None:
    document = json.loads(two.here.ok("agent", "export", "ada"))
    config = {"account_id": "a b'; touch x #", "$(y)": "*"}
    document["web_access"] = {"re ad": A_READER | {"provider": "c;d", "config": config}}
    two.file.write_text(json.dumps(document))
    out = two.there.ok("agent", "apply", str(two.file), "--dry-run")
    assert command(out) == [
        *("mesh", "web", "set", "re ad", "--agent", "ada", "--provider", "c;d"),
        *("--config", "$(y)=*", "--config", "account_id=a b'; touch x #"),
        *("--requests-per-minute", "30", "--requests-per-run", "7", "--key-stdin"),
    ]
    document["web_access"]["re ad"]["provider"] = "c\x1b[2J"
    two.file.write_text(json.dumps(document))
    assert "\x1b" not in two.there.ok("agent", "apply", str(two.file), "--dry-run")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (3, "at `$.web_access[...]`"),
        ({"mode": ["custom"]}, "at `$.web_access[...].mode`"),
        ({"mode": "on"}, "at `$.web_access[...].mode`"),
        ({"mode": "custom"}, "custom names no provider - at `$.web_access.search`"),
        ({"provider": None}, "custom names no provider - at `$.web_access.search`"),
        ({"provider": []}, "at `$.web_access[...].provider`"),
        ({"mode": "inherit", "provider": 3}, "at `$.web_access[...].provider`"),
        ({"config": 3}, "at `$.web_access[...].config`"),
        ({"config": None}, "at `$.web_access[...].config`"),
        ({"config": {"account_id": 3}}, "at `$.web_access[...].config[...]`"),
        ({"limits": [1]}, "at `$.web_access[...].limits`"),
        ({"limits": 0}, "at `$.web_access[...].limits`"),
        ({"limits": {"requests_per_day": 1}}, "unknown field `requests_per_day`"),
        ({"limits": {"requests_per_run": True}}, "at `$.web_access[...].limits.requests_per_run`"),
        ({"limits": {"requests_per_run": "7"}}, "at `$.web_access[...].limits.requests_per_run`"),
        ({"limits": {"requests_per_run": 7.5}}, "at `$.web_access[...].limits.requests_per_run`"),
    ],
)
def test_settings_of_a_wrong_type_are_refused_before_anything_is_asked(
    two: Instances, settings: Any, told: str
) -> None:
    document = json.loads(two.here.ok("agent", "export", "ada"))
    if isinstance(settings, dict) and "mode" not in settings:
        settings = OF_ITS_OWN | settings
    document["web_access"] = {"search": settings}
    two.file.write_text(json.dumps(document))
    two.there.transport = Silent
    code, _, err = two.there("agent", "apply", str(two.file), "--slug", "eve")
    assert (code, err.count("\n")) == (2, 1)
    assert told in err


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_capability_that_no_address_can_have_is_refused_before_anything_is_asked(
    two: Instances, name: str
) -> None:
    document = json.loads(two.here.ok("agent", "export", "ada"))
    two.file.write_text(json.dumps(document | {"web_access": {name: OFF}}))
    two.there.transport = Silent
    code, _, err = two.there("agent", "apply", str(two.file), "--slug", "eve")
    assert (code, err.count("\n")) == (2, 1)
    assert "a name that cannot be" in err


def test_what_is_left_out_or_null_is_taken_and_an_unknown_capability_is_the_apis_to_judge(
    two: Instances,
) -> None:
    document = json.loads(two.here.ok("agent", "export", "ada"))
    minute_alone = {"requests_per_minute": 3, "requests_per_run": None}
    document["web_access"] = {
        "read": {"mode": "disabled"},
        "search": {"mode": "custom", "provider": "brave", "limits": minute_alone},
    }
    two.file.write_text(json.dumps(document))
    assert command(two.there.ok("agent", "apply", str(two.file)))[-4:] == [
        *("brave", "--requests-per-minute", "3", "--key-stdin"),
    ]
    document["web_access"] = {"dream": OFF}
    two.file.write_text(json.dumps(document))
    code, _, err = two.there("agent", "apply", str(two.file))
    assert (code, err.count("\n")) == (1, 1)
    assert "stopped at step 1 of 1 (update web access dream" in err
