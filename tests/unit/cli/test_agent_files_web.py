"""What an agent has set for the web goes with its file, but for its providers' keys: until one is
given there, the agent neither goes by the instance's nor is left without a word about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.line import Line
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
    told = out.partition("to give one:\n")[2].replace("\\\n", " ").split()
    assert told == [
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
    assert out == (
        "update web access search at version 0: disabled until a key of brave is given\n"
    )
    assert two.stands(two.there)["search"] is None
    told = json.loads(two.there.ok("agent", "apply", str(two.file), "--json"))
    assert told["done"][0]["awaits_key_of"] == "brave"
