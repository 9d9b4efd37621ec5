"""What is peculiar to the readers: what they are asked for beside an address, the forms in which a
title comes, and what the catalogue says of where their pages lead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.control.web_rules import HOST_FIELDS, Wanted, check
from mesh.kernel.errors import Invalid
from mesh.kernel.limits import PAGE_LOAD_MS, WEB_FRONT_MATTER_CHARS_MAX
from mesh.records.connection import Capability, Mode
from mesh.tools.web.catalogue import PROVIDERS
from mesh.tools.web.contract import Access, Page
from tests.fakes import cloudflare_server, firecrawl_server
from tests.fakes.egress import Call, ScriptedEgress, answer
from tests.fakes.time import SimulatedClock
from tests.unit.web.apis import PAGE_URL, READ, SAID, SEARCH, adapter_of

KEY = "canary-e8Vn3Lc6Tq1Mz9Xs4Wb0"


def read(name: str, document: Any) -> tuple[Page, Call]:
    """What an adapter makes of an answer, and what it asked for."""
    egress = ScriptedEgress()
    egress.otherwise = answer(200, json.dumps(document).encode())
    adapter = adapter_of(name, egress, SimulatedClock())
    page: Page = adapter.read(PAGE_URL, Access(dict(SAID[name].config), KEY))
    (call,) = egress.calls
    return page, call


def firecrawl(**data: Any) -> tuple[Page, Call]:
    return read("firecrawl", firecrawl_server.page(PAGE_URL, **data))


def cloudflare(markdown: str, **more: Any) -> Page:
    return read("cloudflare", cloudflare_server.page(markdown, **more))[0]


# ---- what is asked for


@pytest.mark.behaviour("fetch:firecrawl-no-cache", "fetch:tls", "fetch:public-only")
def test_firecrawl_is_asked_for_a_fresh_copy_that_is_not_kept_over_verified_tls() -> None:
    _, call = firecrawl()
    assert (call.method, call.url) == ("POST", "https://api.firecrawl.dev/v2/scrape")
    assert json.loads(call.body) == {
        "url": PAGE_URL,
        "formats": ["markdown"],
        "onlyMainContent": True,
        "maxAge": 0,
        "storeInCache": False,
        "skipTlsVerification": False,
        "timeout": PAGE_LOAD_MS,
    }


@pytest.mark.behaviour("fetch:public-only")
def test_cloudflare_is_asked_for_a_fresh_copy_and_told_nothing_to_open_it_with() -> None:
    _, call = read("cloudflare", cloudflare_server.page())
    account = f"https://api.cloudflare.com/client/v4/accounts/{cloudflare_server.ACCOUNT}"
    assert call.url == f"{account}/browser-rendering/markdown?cacheTTL=0"
    assert call.method == "POST"
    assert json.loads(call.body) == {"url": PAGE_URL, "gotoOptions": {"timeout": PAGE_LOAD_MS}}


@pytest.mark.behaviour("fetch:public-only")
@pytest.mark.parametrize("name", READ)
def test_no_header_is_meant_for_the_website(name: str) -> None:
    documents = {
        "firecrawl": firecrawl_server.page(PAGE_URL),
        "cloudflare": cloudflare_server.page(),
    }
    _, call = read(name, documents[name])
    assert dict(call.headers) == {
        "accept": "application/json",
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
    }
    assert KEY.encode() not in call.body
    assert KEY not in call.url


# ---- titles


@pytest.mark.parametrize(
    ("told", "title"),
    [
        ("The ibex", "The ibex"),
        (["The ibex", "Goats"], "The ibex"),
        (["", " ", "Goats"], "Goats"),
        ([None, 5, {"x": 1}, ["The ibex"], "Goats"], "Goats"),
        (["\u200b", "Goats"], "Goats"),
        ([], None),
        ([None], None),
        (None, None),
        ("", None),
        (" \n", None),
        ("\u200b", None),
        (5, None),
        (True, None),
        ({"title": "The ibex"}, None),
    ],
    ids=str,
)
def test_firecrawls_title_is_a_text_or_the_first_of_a_list_with_something_in_it(
    told: Any, title: str | None
) -> None:
    page, _ = firecrawl(metadata={"title": told})
    assert page.title == title
    assert page.markdown == firecrawl_server.MARKDOWN


BODY = "# The ibex\n\nwords\n"


@pytest.mark.parametrize(
    ("front", "title"),
    [
        ("title: The ibex\n", "The ibex"),
        ("title:   The ibex  \n", "The ibex"),
        ("title: The ibex: a goat # and more\n", "The ibex: a goat # and more"),
        ('title: "The ibex"\n', "The ibex"),
        ('title: "The \\"ibex\\" \\u00e9"\n', 'The "ibex" é'),
        ('title: "half of a pair \\ud800"\n', "half of a pair \ufffd"),
        ('title: "an escape \\x41 of YAML"\n', "an escape \\x41 of YAML"),
        ('title: "not ended\n', "not ended"),
        ("title: 'The ibex'\n", "The ibex"),
        ("title: 'The ibex''s horns'\n", "The ibex's horns"),
        ("title: >-\n  The ibex\n  and its horns\n", "The ibex and its horns"),
        ("title: |\n  The ibex\n", "The ibex"),
        ("title: >\n  The ibex\n\ndescription: of goats\n", "The ibex"),
        ("title: The ibex\n  and its horns\n", "The ibex and its horns"),
        ('title: "The ibex\n  and its horns"\n', "The ibex and its horns"),
        ("description: of goats\ntitle: The ibex\nimage: https://i.example/x.png\n", "The ibex"),
        ("tags:\n- a\n- b\ntitle: The ibex\n", "The ibex"),
        ("og:title: Another\ntitle: The ibex\n", "The ibex"),
        ("title: 山羊 der Älpler 🐐\n", "山羊 der Älpler 🐐"),
        ("title:\n", None),
        ('title: ""\n', None),
        ("title: ''\n", None),
        ("title: '\n", None),
        ("title: >-\n", None),
        ("title: \u200b\n", None),
    ],
    ids=ascii,
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_a_title_that_stands_before_cloudflares_content_is_taken_from_it(
    front: str, title: str | None, ends: str
) -> None:
    page = cloudflare(f"---\n{front}---\n".replace("\n", ends) + BODY)
    assert page.title == title
    assert page.markdown == BODY


@pytest.mark.parametrize(
    "content",
    [
        "---\n\nwords under a rule\n\n---\n\nmore\n",
        "---\ndescription: of goats\n---\nwords\n",
        "---\ntitle: The ibex\nwords without an end\n",
        "---\ntitle: The ibex\n",
        "---\nSome words: and more\nwhich are no YAML\n---\ntitle: x\n",
        "--- \nwords\n--- \n",
        "----\ntitle: The ibex\n----\nwords\n",
        "\n---\ntitle: The ibex\n---\nwords\n",
        "words\n---\ntitle: The ibex\n---\n",
        "---\n" + "a: b\n" * WEB_FRONT_MATTER_CHARS_MAX + "title: far down\n---\nwords\n",
    ],
    ids=lambda it: ascii(it[:24]),
)
def test_whatever_else_begins_with_a_rule_is_the_pages_own(content: str) -> None:
    page = cloudflare(content)
    assert page.markdown == content
    assert page.title is None


@pytest.mark.parametrize("behind", ["more", " more", "-", "- more"])
def test_a_rule_that_is_cut_by_the_bound_of_what_is_read_is_none(behind: str) -> None:
    head = "---\ntitle: The ibex\na: "
    fill = "x" * (WEB_FRONT_MATTER_CHARS_MAX - len(head) - len("\n---"))
    content = f"{head}{fill}\n---{behind}\n{BODY}"
    assert content[WEB_FRONT_MATTER_CHARS_MAX:].startswith(behind)
    assert cloudflare(content).markdown == content, "nothing of a page is left out in silence"


def test_front_matter_of_the_longest_kind_is_read() -> None:
    head = "---\ntitle: The ibex\na: "
    fill = "x" * (WEB_FRONT_MATTER_CHARS_MAX - len(head) - len("\n---\n"))
    page = cloudflare(f"{head}{fill}\n---\n{BODY}")
    assert (page.title, page.markdown) == ("The ibex", BODY)


@pytest.mark.parametrize(
    ("about", "title"),
    [
        ({"title": "Of the answer", "status": 200}, "Of the answer"),
        ({"title": " "}, "Of the content"),
        ({"title": 5}, "Of the content"),
        ({}, "Of the content"),
        (None, "Of the content"),
        ("x", "Of the content"),
    ],
    ids=str,
)
def test_a_title_beside_the_content_comes_first(about: Any, title: str) -> None:
    page = cloudflare(f"---\ntitle: Of the content\n---\n{BODY}", meta=about)
    assert (page.title, page.markdown) == (title, BODY)


# ---- what the catalogue says of them


@pytest.mark.behaviour("fetch:hosted-boundary", "web:stated-boundary")
@pytest.mark.parametrize("name", READ)
def test_a_reader_says_that_redirects_and_subrequests_are_the_providers_alone(name: str) -> None:
    provider = PROVIDERS[name]
    for told, what in (
        (provider.redirects, "where the page redirects to"),
        (provider.subrequests, "what the page loads"),
    ):
        assert told.startswith("By the provider alone: ")
        assert f"cannot see or limit {what}" in told
        assert "Mesh's own checks read the address as text; they pin no DNS answer" in told


@pytest.mark.behaviour("fetch:hosted-boundary")
@pytest.mark.parametrize("name", READ)
def test_no_name_of_a_page_is_looked_up_here(name: str) -> None:
    egress = ScriptedEgress(resolves={"goats.example": []})
    documents = {
        "firecrawl": firecrawl_server.page(PAGE_URL),
        "cloudflare": cloudflare_server.page(),
    }
    egress.otherwise = answer(200, json.dumps(documents[name]).encode())
    adapter = adapter_of(name, egress, SimulatedClock())
    assert adapter.read(PAGE_URL, Access(dict(SAID[name].config), KEY)).markdown


@pytest.mark.parametrize("name", SEARCH)
def test_a_search_says_that_it_opens_no_page(name: str) -> None:
    provider = PROVIDERS[name]
    told = "None: a search opens no page, and Mesh opens no result."
    assert (provider.redirects, provider.subrequests) == (told, told)


@pytest.mark.behaviour("fetch:no-domain-list", "web:stated-boundary")
@pytest.mark.parametrize("name", PROVIDERS)
def test_no_provider_claims_to_keep_to_hosts_and_none_takes_a_list_of_them(name: str) -> None:
    provider = PROVIDERS[name]
    assert provider.restricts_hosts is False
    assert not {each.name for each in provider.config} & HOST_FIELDS
    capability = Capability.SEARCH if name in SEARCH else Capability.READ
    plain = dict(SAID[name].config)
    given: dict[str, Any] = {"requests_per_minute": 1, "requests_per_run": 1, "provider": name}
    check(
        Wanted(capability=capability, mode=Mode.CUSTOM, config=plain, **given),
        PROVIDERS,
        inherits=False,
    )
    for field in HOST_FIELDS:
        wanted = Wanted(
            capability=capability,
            mode=Mode.CUSTOM,
            config=plain | {field: "goats.example"},
            **given,
        )
        with pytest.raises(Invalid) as caught:
            check(wanted, PROVIDERS, inherits=False)
        assert [each.path for each in caught.value.fields] == [f"config.{field}"]


@pytest.mark.behaviour("fetch:config:cloudflare", "fetch:config:firecrawl")
def test_what_a_reader_needs_is_told_to_operators() -> None:
    (account,) = PROVIDERS["cloudflare"].config
    assert (account.name, account.pattern) == ("account_id", "[0-9a-f]{32}")
    assert "Browser Rendering → Edit" in PROVIDERS["cloudflare"].key_hint
    assert PROVIDERS["firecrawl"].config == ()
    assert "API key of Firecrawl" in PROVIDERS["firecrawl"].key_hint
