"""What the operating page says of notices is what is sent, and its snippet takes it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from infra.local.command import PROVIDERS, command as local
from infra.local.egress import ORIGINS
from mesh.kernel.clock import SystemClock
from mesh.models.contract import ModelFailureKind
from mesh.notices.document import detail_of, headers_of
from mesh.records.agent import ModelKind
from mesh.records.notice import Notice, NoticeKind
from tests.docs.blocks import blocks
from tests.integration.test_local_stack import started, stopped

DOCUMENT = "docs/operating.md"
PAGE = (Path(__file__).parents[2] / DOCUMENT).read_text()
SECRET = "whsec_JwGO+mwA4P7CTWY+ERn5oXxoeApE2OJvPNTbXQjHG7s="


def notice(**more: Any) -> Notice:
    given = {
        "notice_id": "ntc_01JDXW5Y9ZK3V7Q2M8N4P6R0ST",
        "kind": NoticeKind.ENTRY_DEAD,
        "at": 1_796_017_355_123,
        "agent_id": "agt_01JDXW5Y9ZK3V7Q2M8N4P6R0SV",
        "install_id": "ins_01JDXW5Y9ZK3V7Q2M8N4P6R0SW",
        "subject": "out_01JDXW5Y9ZK3V7Q2M8N4P6R0SX",
        "reason": "client_errors",
        "figures": {"attempts": 5, "age_s": 780},
    }
    return Notice(**{**given, **more})


def test_the_object_on_the_page_is_the_one_that_is_sent() -> None:
    shown = json.loads(blocks(DOCUMENT)["json"])
    assert shown == json.loads(detail_of(notice(), "prod"))


def test_the_page_tells_of_every_kind_of_notice() -> None:
    section = PAGE.partition("## Being told")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `([a-z.]+)` \|", section, re.MULTILINE)
    assert sorted(told) == sorted(NoticeKind)


def test_the_rule_on_the_page_names_kinds_that_there_are() -> None:
    (rule,) = re.findall(r"`(\{\"source\".+?\})`", PAGE)
    assert set(json.loads(rule)["detail-type"]) <= set(NoticeKind)


def test_the_snippet_on_the_page_takes_a_post_and_refuses_a_changed_one() -> None:
    scope: dict[str, Any] = {}
    exec(blocks(DOCUMENT)["python"], scope)
    body = detail_of(notice(), "prod").encode()
    now_ms = SystemClock().now_ms()  # the library goes by the machine's clock
    sent = headers_of(notice(), SECRET, body, now_ms)
    headers = {name.lower(): value for name, value in sent.items()}
    assert scope["told"](headers, body, SECRET)["type"] == "outbox.dead"
    with pytest.raises(WebhookVerificationError):
        scope["told"](headers, body.replace(b"dead", b"fine"), SECRET)


def test_every_way_in_which_a_model_fails_is_on_the_page_under_its_name() -> None:
    models = PAGE.partition("## Models")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(model_\w+)`", models))
    assert named == {kind.value for kind in ModelFailureKind} | {"model_refused"}
    kinds = set(re.findall(r"^\| `(\w+)` \|", models, re.MULTILINE))
    assert {kind.value for kind in ModelKind} <= kinds


def test_the_stand_in_on_the_page_serves_a_local_stack_as_it_is_told(tmp_path: Path) -> None:
    page = blocks(DOCUMENT)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PORT": "0",
    }
    code = [sys.executable, "-c", page["python standin"]]
    with subprocess.Popen(
        code, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as stand_in:
        try:
            assert stand_in.stdout is not None
            origin = stand_in.stdout.readline().strip()
            shown = page["sh standin"].replace("brave=http://127.0.0.1:9001", origin)
            assert origin in shown
            program, command, *flags = shlex.split(shown)
            assert (program, command) == ("mesh", "local")
            process, ready = started(tmp_path / "log", *flags)
            try:
                environment |= {"MESH_URL": ready["gateway"], "MESH_TOKEN": ready["token"]}
                told = subprocess.run(
                    ["bash", "-euc", page["sh probe"]],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=True,
                ).stdout
            finally:
                assert stopped(process) == 0
        finally:
            stand_in.kill()
    assert "https://goats.example/" in told
    assert "A wild goat." in told


def test_every_flag_of_the_local_stack_and_every_stand_in_is_on_the_page() -> None:
    desk = PAGE.partition("## At your desk")[2].partition("\n## ")[0]
    flags = {name for it in local.params for name in it.opts if name.startswith("--")}
    assert set(re.findall(r"^\| `(--[a-z-]+)", desk, re.MULTILINE)) == flags
    assert set(re.findall(r"`([a-z]+)`", desk.partition("are led so")[0].rpartition(". ")[2])) == (
        set(ORIGINS)
    )
    context = click.Context(local, info_name="mesh local", terminal_width=200)
    told = local.get_help(context)
    assert [name for name in PROVIDERS if name not in told] == []
