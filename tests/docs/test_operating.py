"""What the operating page says of notices is what is sent, and its snippet takes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from mesh.kernel.clock import SystemClock
from mesh.models.contract import ModelFailureKind
from mesh.notices.document import detail_of, headers_of
from mesh.records.agent import ModelKind
from mesh.records.notice import Notice, NoticeKind
from tests.docs.blocks import blocks

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
