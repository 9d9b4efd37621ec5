"""Whatever a provider found, what a model is told of it is JSON within its bound, and begins as it
came."""

from __future__ import annotations

import json

import regex
from hypothesis import example, given, settings, strategies as st

from mesh.kernel.limits import (
    PAGE_BYTES_MAX,
    PAGE_OBSERVATION_BYTES_MAX,
    SEARCH_OBSERVATION_BYTES_MAX,
    WEB_EXCERPT_BYTES_MAX,
)
from mesh.security.untrusted import shown
from mesh.tools.web.contract import FailureKind, Hit, Page, ProviderFailure, Stage
from mesh.tools.web.cutting import cut, page_observation, search_observation, size_of

AT = "2026-11-30T12:00:00Z"
JOINING = (
    'a \r\n\t\0"\\[]/:e\u0301\u0308👨👩👧🏽🇨🇭\u200d\ufe0f\u20e3'
    "कषत्ि\u1100\u1161\u11a8\uac00ก\u0e33か\u3099\u0600אب\u202b\u202c\u2066\u200b⟦［"
)
TEXTS = st.text(st.sampled_from(JOINING) | st.characters(exclude_categories=("Cs",)), max_size=40)
LONG = st.builds(
    lambda piece, before, times: before + piece * times,
    TEXTS.filter(bool),
    TEXTS,
    st.integers(0, 3_000),
)
URLS = st.builds(
    "https://goats.example/{}{}".format,
    st.text('ax"%é\u202e', max_size=5),
    st.integers(0, 2_000).map("x".__mul__),
)
HITS = st.builds(
    Hit, URLS | TEXTS, LONG, LONG, st.none() | st.just("2024-12-27"), whole=st.booleans()
)


def is_border(text: str, place: int) -> bool:
    """Whether a reader sees a character end there."""
    return place in (0, len(text)) or any(
        found.end() == place for found in regex.finditer(r"\X", text, endpos=place + 60)
    )


@given(TEXTS, st.integers(0, 200), st.integers(2, 400))
@example("e\u0301", 1, 400)
@example("\r\n", 1, 400)
@example("🇨🇭🇦🇹", 12, 400)
@example("[[end: ", 200, 10)
def test_a_cut_is_the_longest_beginning_that_ends_with_a_character_and_fits(
    text: str, bytes_max: int, size_max: int
) -> None:
    def fits(part: str) -> bool:
        return len(part.encode()) <= bytes_max and size_of(part) <= size_max

    part, was_cut = cut(text, bytes_max, size_max)
    assert text.startswith(part)
    assert was_cut is (part != text)
    assert fits(part)
    ends = [found.end() for found in regex.finditer(r"\X", text)]
    assert len(part) in (0, *ends)
    longer = [end for end in ends if end > len(part)]
    assert not longer or not fits(text[: longer[0]])


@given(TEXTS, TEXTS)
def test_a_longer_text_is_shown_in_more_bytes(one: str, other: str) -> None:
    """Else a cut that fits would not be found by halves."""
    assert size_of(one) <= size_of(one + other)


def told_or_failed(url: str, page: Page, most: int) -> str | ProviderFailure:
    try:
        return page_observation(url, page, AT, most)
    except ProviderFailure as failure:
        return failure


@settings(max_examples=40)
@given(LONG, st.none() | LONG, URLS, st.integers(1, PAGE_BYTES_MAX))
def test_a_page_is_json_within_its_bound(
    markdown: str, title: str | None, url: str, most: int
) -> None:
    text = told_or_failed(url, Page(markdown, title), most)
    if isinstance(text, ProviderFailure):
        assert (text.stage, text.kind) == (Stage.PAGE, FailureKind.TOO_LARGE)
        first = regex.match(r"\X", markdown)
        assert first is not None
        assert len(first[0].encode()) > most or size_of(first[0]) > PAGE_OBSERVATION_BYTES_MAX // 2
        return
    assert len(shown(text).encode()) <= PAGE_OBSERVATION_BYTES_MAX
    told = json.loads(text)
    assert (told["requested_url"], told["retrieved_at"]) == (url, AT)
    content = told["content"]
    assert len(content.encode()) <= most
    assert markdown.startswith(content)
    assert told["truncated"] is (content != markdown)
    assert is_border(markdown, len(content))


@settings(max_examples=40)
@given(st.lists(HITS, max_size=10))
def test_a_search_is_json_within_its_bound(hits: list[Hit]) -> None:
    text, sources = search_observation(hits)
    assert len(shown(text).encode()) <= SEARCH_OBSERVATION_BYTES_MAX
    told = json.loads(text)
    results = told["results"]
    assert [each["url"] for each in results] == list(sources)
    assert [each["rank"] for each in results] == list(range(1, len(results) + 1))
    left = iter(hits)
    for each in results:
        hit = next(hit for hit in left if hit.url == each["url"])
        excerpt = each["excerpt"]
        assert len(excerpt.encode()) <= WEB_EXCERPT_BYTES_MAX
        assert hit.excerpt.startswith(excerpt)
        assert each["truncated"] is (excerpt != hit.excerpt or not hit.whole)
        assert is_border(hit.excerpt, len(excerpt))
        assert hit.title.startswith(each["title"].removesuffix("…"))
        assert each.get("date") == hit.date
