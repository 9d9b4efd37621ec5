"""The commands of the page on web access are run as they are written, against a local stack that is
led to the providers' stand-ins; its bounds are those of the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mesh.kernel import limits
from mesh.records.connection import Capability
from mesh.tools import packages
from tests.docs.blocks import ROOT, blocks
from tests.fakes.cloudflare_server import ACCOUNT, page
from tests.fakes.web_servers import WebServer
from tests.fakes.web_stack import SERVERS
from tests.integration.test_local_stack import started, stopped

DOCUMENT = "docs/web-access.md"
PAGE = (ROOT / DOCUMENT).read_text(encoding="utf-8")
NEW_KEY = "canary-key-of-tomorrow-0123456789abcdef"
BLOCKED = "# Attention Required!\n\nSorry, you have been blocked.\n"


@dataclass
class Desk:
    """A reader's shell, with what the page has in the environment."""

    environment: dict[str, str]
    directory: Path
    providers: dict[str, WebServer]
    tried: set[str] = field(default_factory=set)

    def run(self, block: str) -> str:
        """What a block of the page prints."""
        self.tried.add(block)
        return self.bash(blocks(DOCUMENT)[block])

    def bash(self, code: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", code],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "canary" not in done.stdout + done.stderr
        return done.stdout

    def asked(self, provider: str) -> list[str]:
        """What a provider was asked, in order."""
        assert self.providers[provider].broken == []
        return [asked.about for asked in self.providers[provider].asked]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    providers = {name: server() for name, server in SERVERS.items()}
    with ExitStack() as closing:
        flags: list[str] = []
        for name, server in providers.items():
            peer = server.on_loopback()
            closing.callback(peer.close)
            flags += ["--provider-origin", f"{name}=http://127.0.0.1:{peer.port}"]
        process, ready = started(tmp_path / "log", *flags)
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "MESH_URL": ready["gateway"],
            "MESH_TOKEN": ready["token"],
            "ACCOUNT_ID": ACCOUNT,
            "SEARCH_KEY": providers["brave"].key,
            "READ_KEY": providers["cloudflare"].key,
            "AGENT_KEY": providers["perplexity"].key,
            "NEW_KEY": NEW_KEY,
        }
        try:
            yield Desk(environment, tmp_path, providers)
        finally:
            assert stopped(process) == 0


def test_every_command_block_of_the_page_does_what_it_says(desk: Desk) -> None:
    desk.bash("mesh agent create ada")
    assert "available" in desk.run("sh setup")
    told = desk.run("sh probe")
    assert "instance/brave" in told
    assert "instance/cloudflare" in told
    assert desk.asked("brave") == ["opening hours"]
    assert desk.asked("cloudflare") == ["https://example.com/"]
    run_id = re.findall(r"run_[0-9A-Z]{26}", told)[-1]
    explained = desk.bash(f"mesh explain {run_id}") + desk.bash(f"mesh run show {run_id}")
    for words in ("paid by instance/cloudflare", "https://example.com/", "version 1 of its key"):
        assert words in explained

    assert "agent" in desk.run("sh own")
    told = desk.run("sh elsewhere")
    assert "mesh web set search --agent eve --provider perplexity" in told
    assert "perplexity" in (kept := (desk.directory / "ada.json").read_text())
    assert "canary" not in kept
    eve = json.loads(desk.bash("mesh web show search --agent eve --json"))
    assert (eve["settings"]["mode"], eve["available"]) == ("disabled", False)

    assert "instance" in desk.run("sh back")
    desk.providers["brave"].key = NEW_KEY
    desk.run("sh rotate")
    assert [asked.credential for asked in desk.providers["brave"].asked][1:] == [NEW_KEY]
    assert desk.asked("perplexity") == []
    assert "stays valid" in desk.run("sh forget")
    for shown in json.loads(desk.bash("mesh web show --json"))["capabilities"]:
        assert not shown["available"]
        assert bool(shown["kept_keys"]) is (shown["capability"] == Capability.READ)
    assert desk.tried == {name for name in blocks(DOCUMENT) if name.startswith("sh")}


@pytest.mark.behaviour("fetch:block-pages")
def test_a_block_page_comes_as_content_and_everybody_is_told_to_judge_it(desk: Desk) -> None:
    desk.bash("mesh agent create ada")
    desk.run("sh setup")
    desk.providers["cloudflare"].says(page(BLOCKED))
    probe = "mesh tool probe web_fetch --agent ada --json --arguments"
    probed = json.loads(desk.bash(f"""{probe} '{{"url": "https://example.com/"}}'"""))
    assert probed["observation_kind"] == "result", "nothing tells it from a page"
    assert json.loads(probed["text"])["content"] == BLOCKED
    assert "**A block page, a login page or an error page may come as ordinary content**" in PAGE
    (fetch,) = (
        each for each in packages.load("web").definitions if each.capability is Capability.READ
    )
    description = " ".join(fetch.description.split())
    assert "block page, login page or error page can come as ordinary content" in description
    assert "judge what you get; that there is some is not success" in description


def _kib(size: int) -> str:
    assert size % 1024 == 0
    return f"{size // 1024} KiB"


def test_the_bounds_on_the_page_are_those_of_the_code() -> None:
    section = PAGE.partition("\n## Bounds\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", section, re.MULTILINE)
    assert dict(rows[1:]) == {
        "a query": f"{limits.WEB_QUERY_BYTES_MAX:,} bytes in UTF-8",
        "results of a search": (
            f"1 to {limits.WEB_RESULTS_MAX}; {limits.WEB_RESULTS_DEFAULT} when left out"
        ),
        "a title": f"{limits.WEB_TITLE_BYTES_MAX} bytes",
        "an excerpt": _kib(limits.WEB_EXCERPT_BYTES_MAX),
        "what a model is told of a search": _kib(limits.SEARCH_OBSERVATION_BYTES_MAX),
        "content of a page (`max_bytes`)": (
            f"1 to {limits.PAGE_BYTES_MAX:,} bytes; {limits.PAGE_BYTES_DEFAULT:,} when left out"
        ),
        "what a model is told of a page": _kib(limits.PAGE_OBSERVATION_BYTES_MAX),
        "a provider's answer": f"{limits.PROVIDER_ANSWER_BYTES_MAX // 1024**2} MiB",
        "time for a search": f"{limits.PROVIDER_SEARCH_S:.0f} s",
        "time for a page": f"{limits.PROVIDER_READ_S:.0f} s",
        "a limit, per minute or per run": f"1 to {limits.REQUESTS_MAX:,}",
    }
