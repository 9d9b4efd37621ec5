"""The page on web access tells what there is: its commands run, and its names and figures are the
product's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from infra.local.stack import RunningStack
from mesh.kernel import limits
from mesh.operator.cli.main import cli
from mesh.operator.cli.tools import probe
from mesh.records.connection import Capability, Missing, Mode
from mesh.tools.contract import ObservationKind
from mesh.tools.web import cloudflare, firecrawl
from mesh.tools.web.catalogue import PROVIDERS
from mesh.tools.web.contract import FailureKind, Stage
from tests.docs.blocks import assert_is_there, blocks, commands
from tests.docs.test_readme import environment, receiver, run, stack

__all__ = ["environment", "receiver", "stack"]

ROOT = Path(__file__).parents[2]
DOCUMENT = "docs/web-access.md"
PAGE = (ROOT / DOCUMENT).read_text()
WORDS = " ".join(PAGE.split())
COMMANDS = sorted(
    {
        *commands(PAGE),
        *re.findall(r"(?:^|\| )(mesh [^|\n]+)$", blocks(DOCUMENT)["sh setup"], re.MULTILINE),
    }
)


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}")[2].partition("\n## ")[0]


def names(heading: str) -> set[str]:
    """What the first cells of a section's tables name."""
    cells = re.findall(r"^\| (`[^|]+) \|", section(heading), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([a-z_]+)`", cell)}


def test_the_setup_runs_as_it_is_written(environment: dict[str, str], stack: RunningStack) -> None:
    keys = {"SEARCH_KEY": "canary-search-key-0f3b", "READ_KEY": "canary-read-key-77aa"}
    told = run(
        ["bash", "-euc", blocks(DOCUMENT)["sh setup"]],
        environment | keys | {"ACCOUNT_ID": "0123456789abcdef" * 2},
    )
    assert "canary" not in told
    shown = json.loads(run(["mesh", "web", "show", "--json"], environment))["capabilities"]
    assert {each["capability"]: each["effective_provider"] for each in shown} == {
        "search": "brave",
        "read": "cloudflare",
    }
    assert all(each["available"] for each in shown)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_on_the_page_is_there_with_its_options(line: str) -> None:
    words = assert_is_there(line)
    if line.startswith("mesh web") and words and not words[0].startswith("--"):
        assert words[0] in {each.value for each in Capability}


def test_the_page_names_each_command_of_the_group() -> None:
    group = cli.get_command(click.Context(cli), "web")
    assert isinstance(group, click.Group)
    for name in group.commands:
        assert any(line.startswith(f"mesh web {name} ") for line in COMMANDS), name


def test_every_provider_mode_failure_and_finding_has_its_row() -> None:
    told = {name for name in names("Setting it up") if name != "account_id"}
    assert told == set(PROVIDERS)
    assert names("What an agent has") == {each.value for each in Mode}
    failures = {each.value for each in Stage} | {each.value for each in FailureKind}
    assert names("What a model is told when it fails") == failures
    checks = (ROOT / "layers/mesh/python/mesh/operator/checks/web.py").read_text()
    assert names("What the doctor finds") == set(re.findall(r'"(web_\w+)",\n', checks))
    assert f"`{ObservationKind.LIMITED.value}`" in section("Limits")
    assert len(Missing) == 4, "each is told by `mesh web show`"


@pytest.mark.behaviour("fetch:config:cloudflare", "fetch:config:firecrawl")
def test_what_each_provider_needs_is_said_as_its_entry_says_it() -> None:
    rows = dict(
        re.findall(r"^\| `(\w+)` \| \w+ \| (.+) \|$", section("Setting it up"), re.MULTILINE)
    )
    for name, provider in PROVIDERS.items():
        for field in provider.config:
            assert f"`{field.name}`" in rows[name]
    assert "Account → Browser Rendering → Edit" in rows["cloudflare"]
    assert "32 hexadecimal digits" in rows["cloudflare"]
    assert "an API key of Firecrawl" in rows["firecrawl"]
    brave = PROVIDERS["brave"]
    assert f"at most {brave.query_characters_max} characters" in rows["brave"]
    assert f"{brave.query_words_max} words" in rows["brave"]


def test_the_figures_on_the_page_are_the_products() -> None:
    minute, of_run = limits.REQUESTS_PER_MINUTE_DEFAULT, limits.REQUESTS_PER_RUN_DEFAULT
    assert f"gets {minute} requests a minute and {of_run} a run" in WORDS
    assert f"waits for its call for {limits.PROBE_S:.0f} seconds" in WORDS
    assert f"waits for the call for {limits.PROBE_S:.0f} seconds" in str(probe.help)
    assert f"may take a run {limits.PROVIDER_READ_S:.0f};" in WORDS
    assert f"at most {limits.SEARCH_OBSERVATION_BYTES_MAX // 1024} KiB for the model" in WORDS
    assert f"a page {limits.PAGE_OBSERVATION_BYTES_MAX // 1024} KiB" in WORDS
    assert "maxAge" in (Path(firecrawl.__file__)).read_text()
    assert "cacheTTL=0" in (Path(cloudflare.__file__)).read_text()


@pytest.mark.behaviour("enablement:no-undo-claim")
def test_the_page_claims_no_undoing_and_no_costlessness_of_what_was_sent() -> None:
    said = " ".join(section("Turning off").split())
    assert "a request that was already sent is not undone, and may have cost" in said
    assert "It does not wait for that, and it promises no more" in said
    assert "The key stays valid where it was issued: revoke it there" in said


@pytest.mark.behaviour("web:stated-boundary", "web:local-proof-limits")
def test_the_page_says_who_enforces_what_and_what_our_tests_do_not_show() -> None:
    said = " ".join(section("What holds where").split())
    for sentence in (
        "**the provider alone isolates that**",
        "That pins no DNS answer",
        "**No restriction to hosts.** None of these providers enforces one",
        "leave `read` disabled",
        "**The final address is not verified.**",
        "**A block page, a login page or an error page may come as ordinary content**",
        "**They do not show how a provider behaves**: not its isolation, not its DNS",
    ):
        assert sentence in said
    assert not any(provider.restricts_hosts for provider in PROVIDERS.values())
