"""What a provider found is cut where readers see a character end, to the bytes that a model is
shown, and says that it was cut."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest

from mesh.kernel.limits import (
    OBSERVATION_BYTES_MAX,
    PAGE_BYTES_MAX,
    PAGE_OBSERVATION_BYTES_MAX,
    SEARCH_OBSERVATION_BYTES_MAX,
    URL_CHARS_MAX,
    WEB_EXCERPT_BYTES_MAX,
    WEB_RESULTS_MAX,
    WEB_TITLE_BYTES_MAX,
)
from mesh.security.untrusted import shown
from mesh.tools.web.contract import FailureKind, Hit, Page, ProviderFailure, Stage
from mesh.tools.web.cutting import cut, is_blank, page_observation, search_observation, size_of

URL = "https://goats.example/"
AT = "2026-11-30T12:00:00Z"
ROOM = 1_000_000
FAMILY = "👨\u200d👩\u200d👧\u200d👦"

PASSAGES = {
    "German": "Der Älpler sah über die Füße der Steinböcke hinweg – »schön«, sagte er.\n\n",
    "Greek": "Οἱ αἶγες τοῦ ὄρους ἀναβαίνουσιν ἕως τῶν χιόνων, καὶ οὐ φοβοῦνται. ",
    "Russian": "Горные козлы поднимаются ещё выше, чем растёт трава. ",
    "Arabic": "\u202bيتسلّق الوعل الصخور العالية قبل الشروق.\u202c ",
    "Hebrew": "הַיָּעֵל \u2067(ibex)\u2069 עוֹמֵד עַל הַסֶּלַע. ",
    "Hindi": "पहाड़ी बकरी क्षितिज तक की चढ़ाई अकेली करती है। ",
    "Tamil": "மலை ஆடு பாறையின் மேல் நிற்கிறது. ",
    "Thai": "แพะภูเขาปีนขึ้นไปบนหน้าผาที่สูงชัน ",
    "Korean": "산양은 바위 위에 서서 골짜기를 내려다본다. ",
    "Jamo": unicodedata.normalize("NFD", "산양은 바위 위에 서서 골짜기를 내려다본다. "),
    "Japanese": "山羊がくがくする崖を登っていた。「か\u3099」ではない。",
    "Chinese": "岩羊在悬崖上行走，雪豹在远处看着。𠮷野家",
    "Persian": "بز کوهی می\u200cرود بالا. ",
    "emoji": f"{FAMILY}🏳️\u200d🌈👍🏽🇨🇭🇦🇹1️⃣ ",
    "JSON": 'a "quoted" \\ path\\n and\ta tab\r\n',
    "markers": "[[end: x]] ⟦tool: y⟧ [ [ / tool ] ",
    "hidden": "a\u200bb\u00ad\u202ec\u2066d\ue000\U000e0041\x00\x1b[31m",
}


def told_of(*hits: Hit) -> dict[str, Any]:
    text, sources = search_observation(hits)
    assert len(shown(text).encode()) <= SEARCH_OBSERVATION_BYTES_MAX
    found: dict[str, Any] = json.loads(text)
    assert [each["url"] for each in found["results"]] == list(sources)
    return found


def page_of(page: Page, most: int = PAGE_BYTES_MAX) -> dict[str, Any]:
    text = page_observation(URL, page, AT, most)
    assert len(shown(text).encode()) <= PAGE_OBSERVATION_BYTES_MAX
    found: dict[str, Any] = json.loads(text)
    return found


# ---- where a cut may be


@pytest.mark.parametrize(
    "one",
    [
        "a",
        "é",
        "e\u0301",
        "e\u0301\u0323\u0308",
        "山",
        "\U00020bb7",
        FAMILY,
        "👍🏽",
        "🏳️\u200d🌈",
        "🇨🇭",
        "1\ufe0f\u20e3",
        "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
        "क्षि",
        "क्\u200dष",
        "நி",
        "กำ",
        "\uac01",
        "\u1100\u1161\u11a8",
        "\uac00\u11a8",
        "か\u3099",
        "\r\n",
        "\x00",
        "\x1b",
        "a\u200d",
        "a\ufe0f",
        "\u0600ا",
        "ا\u064b\u0651",
        "שָׁ",
    ],
    ids=ascii,
)
def test_no_cut_parts_what_readers_see_as_one(one: str) -> None:
    bytes_of = len(one.encode())
    for before in ("", "x", "x y"):
        for after in ("x", "\n", " zzz"):
            text = before + one + after
            begun = len(before.encode())
            for most in range(begun, begun + bytes_of):
                assert cut(text, most, ROOM) == (before, True)
            assert cut(text, begun + bytes_of, ROOM) == (before + one, True)
    row = one * 3
    assert cut(row, 2 * bytes_of + 1, ROOM)[1] is (bytes_of > 1)
    assert cut(row, 2 * bytes_of, ROOM) == (one * 2, True)


def test_flags_in_a_row_are_parted_in_pairs() -> None:
    flags = "🇨🇭🇦🇹🇩🇪🇮🇹"
    for most in range(len(flags.encode())):
        part, was_cut = cut(flags, most, ROOM)
        assert was_cut
        assert len(part) % 2 == 0
        assert len(part) == most // 8 * 2
    assert cut("🇨" + flags, 4 + 8, ROOM) == ("🇨🇨", True), "as a reader pairs them, from the left"


def test_direction_marks_are_characters_of_their_own() -> None:
    text = "a\u202bיעל\u202cb"
    found = {cut(text, most, ROOM)[0] for most in range(len(text.encode()) + 1)}
    assert found == {text[:end] for end in range(len(text) + 1)}


def test_what_is_one_character_and_larger_than_everything_is_left_out_whole() -> None:
    giants = ["a" + "\u0301" * 2_000_000, "क्" * 1_000_000, "👩\u200d" * 1_000_000, "ᄀ" * 2_000_000]
    for giant in giants:
        assert cut(giant, PAGE_BYTES_MAX, ROOM) == ("", True)
        assert cut("b\n" + giant, PAGE_BYTES_MAX, ROOM) == ("b\n", True)
        assert page_of(Page("b", giant))["title"] == "…"
        with pytest.raises(ProviderFailure) as failure:
            page_of(Page(giant))
        assert (failure.value.stage, failure.value.kind) == (Stage.PAGE, FailureKind.TOO_LARGE)
        (result,) = told_of(Hit(URL, giant, giant))["results"]
        assert (result["title"], result["excerpt"], result["truncated"]) == ("…", "", True)


# ---- what counts


@pytest.mark.behaviour("search:observation-32kib", "fetch:observation-30kib")
@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", 2),
        ("a", 3),
        ("é", 4),
        ("🐐", 6),
        ('"', 4),
        ("\\", 4),
        ("\n", 4),
        ("\x00", 8),
        ("\x7f", 8),
        ("\u0085", 8),
        ("\u202e", 10),
        ("\U000e0041", 11),
        ("a\u200db", 12),
        ("क्\u200dष", 14),
        ("[[end: x", 11),
    ],
    ids=ascii,
)
def test_a_size_is_that_of_what_a_model_is_shown(text: str, size: int) -> None:
    assert size_of(text) == size
    assert size_of([text]) == size + 2
    assert size_of(text) == len(shown(json.dumps(text, ensure_ascii=False)).encode())


@pytest.mark.parametrize("name", PASSAGES)
def test_a_text_that_fits_passes_as_it_is_and_one_more_byte_is_a_cut(name: str) -> None:
    text = PASSAGES[name] * 8
    size, in_bytes = size_of(text), len(text.encode())
    assert cut(text, in_bytes, size) == (text, False)
    for most in ((in_bytes - 1, size), (in_bytes, size - 1)):
        part, was_cut = cut(text, *most)
        assert was_cut
        assert text.startswith(part)
        assert part != text


@pytest.mark.parametrize("name", PASSAGES)
def test_a_cut_takes_as_much_as_fits(name: str) -> None:
    """Held against the plain way: one character after the other, as long as they fit."""
    text = PASSAGES[name] * 2
    every = [cut(text, most, ROOM)[0] for most in range(len(text.encode()) + 1)]
    assert every == sorted(every, key=len)
    ends = sorted(set(every), key=len)
    for bytes_max in range(0, len(text.encode()) + 1, 7):
        for size_max in range(2, size_of(text) + 1, 13):
            fitting = [
                end for end in ends if len(end.encode()) <= bytes_max and size_of(end) <= size_max
            ]
            assert cut(text, bytes_max, size_max) == (fitting[-1], fitting[-1] != text)


# ---- pages


@pytest.mark.behaviour("fetch:result")
def test_a_page_is_told_with_its_address_its_time_and_that_it_is_whole() -> None:
    text = "".join(PASSAGES.values())
    assert page_of(Page(text, "Ibex")) == {
        "requested_url": URL,
        "title": "Ibex",
        "content": text,
        "retrieved_at": AT,
        "truncated": False,
    }
    assert "title" not in page_of(Page(text))


@pytest.mark.behaviour("fetch:max-bytes", "fetch:result")
@pytest.mark.parametrize("most", [1, 2, 3, 4, 11_999, 12_000, PAGE_BYTES_MAX])
@pytest.mark.parametrize("one", ["a", "é", "山", "🐐"])
def test_content_has_as_many_bytes_as_are_asked_for_at_most(most: int, one: str) -> None:
    width = len(one.encode())
    fits = most // width
    if fits == 0:
        with pytest.raises(ProviderFailure, match="page: too_large"):
            page_of(Page(one), most)
        return
    assert page_of(Page(one * fits + one), most)["content"] == one * fits
    whole = page_of(Page(one * fits), most)
    assert (whole["content"], whole["truncated"]) == (one * fits, False)
    assert page_of(Page(one * (fits + 1)), most)["truncated"] is True


@pytest.mark.behaviour("fetch:observation-30kib")
@pytest.mark.parametrize(
    "piece", ["\x00", "\u202e", '"', "\\", "\n", "\U000e0001", "[[end: ", "🇨🇭"]
)
def test_a_page_of_what_is_escaped_is_cut_by_what_it_becomes(piece: str) -> None:
    url = URL + '"' * (URL_CHARS_MAX - len(URL))
    page = Page(piece * 2_000_000, piece * 2_000_000)
    text = page_observation(url, page, AT, PAGE_BYTES_MAX)
    assert len(shown(text).encode()) <= PAGE_OBSERVATION_BYTES_MAX
    told = json.loads(text)
    assert told["requested_url"] == url
    assert told["truncated"] is True
    assert told["content"]
    room = PAGE_OBSERVATION_BYTES_MAX - len(shown(text).encode())
    full = len(told["content"].encode()) > PAGE_BYTES_MAX - len(piece.encode())
    assert full or room < size_of(piece * 2)


# ---- searches


@pytest.mark.behaviour("search:result", "search:truncated-mark")
def test_a_search_is_told_in_ranks_with_what_there_is_of_each() -> None:
    text, sources = search_observation(
        [Hit(URL + "1", "One", "first", "2024-12-27"), Hit(URL + "2", "", "")]
    )
    assert json.loads(text) == {
        "results": [
            {
                "rank": 1,
                "url": URL + "1",
                "title": "One",
                "date": "2024-12-27",
                "excerpt": "first",
                "truncated": False,
            },
            {"rank": 2, "url": URL + "2", "title": "", "excerpt": "", "truncated": False},
        ]
    }
    assert sources == (URL + "1", URL + "2")


def test_a_search_that_found_nothing_says_so() -> None:
    assert search_observation([]) == ('{"results": []}', ())


def test_what_is_no_url_of_the_web_is_no_result_and_is_counted() -> None:
    urls = ["", "javascript:alert(1)", "https://a b/", "goats.example", URL + "x" * URL_CHARS_MAX]
    found = told_of(*(Hit(url, "t", "e") for url in [*urls, URL, *urls]))
    assert [(each["rank"], each["url"]) for each in found["results"]] == [(1, URL)]
    assert found["left_out"] == 2 * len(urls)


@pytest.mark.parametrize("host", ["a_b.example", "ab--c.example", "a-.example", "b.example:8443"])
def test_a_host_that_is_spelled_as_none_should_be_is_found_as_any(host: str) -> None:
    found = told_of(Hit(f"https://{host}/x", "t", "e"))
    assert [each["url"] for each in found["results"]] == [f"https://{host}/x"]
    assert "left_out" not in found


@pytest.mark.behaviour("search:truncated-mark")
def test_an_excerpt_says_whether_it_was_cut_or_came_in_part() -> None:
    whole = "x" * WEB_EXCERPT_BYTES_MAX
    found = told_of(Hit(URL, "", whole), Hit(URL, "", whole + "x"), Hit(URL, "", "x", whole=False))
    assert [(len(each["excerpt"]), each["truncated"]) for each in found["results"]] == [
        (WEB_EXCERPT_BYTES_MAX, False),
        (WEB_EXCERPT_BYTES_MAX, True),
        (1, True),
    ]


def test_a_title_that_is_cut_ends_with_its_mark_and_fits_with_it() -> None:
    for one in ("a", "é", "\\", "\x00", FAMILY):
        title = told_of(Hit(URL, one * 1_000, ""))["results"][0]["title"]
        assert title.endswith("…")
        assert title[:-1] == one * (len(title[:-1]) // len(one))
        assert size_of(title) <= WEB_TITLE_BYTES_MAX
        assert len(title) > len(one)
    fits = "a" * (WEB_TITLE_BYTES_MAX - 2)
    titles = [
        each["title"] for each in told_of(Hit(URL, fits, ""), Hit(URL, fits + "a", ""))["results"]
    ]
    assert titles == [fits, "a" * (WEB_TITLE_BYTES_MAX - 5) + "…"]


@pytest.mark.behaviour("search:observation-32kib", "web:bounded")
@pytest.mark.parametrize("piece", ["x", '"', "\x00", "\u202e", "山", "[[end: ", FAMILY])
def test_ten_of_the_longest_results_all_stay_and_share_what_is_left(piece: str) -> None:
    longest = URL + "x" * (URL_CHARS_MAX - len(URL))
    hits = [Hit(longest, piece * 10_000, piece * 100_000, "2024-12-27")] * WEB_RESULTS_MAX
    found = told_of(*hits)
    assert len(found["results"]) == WEB_RESULTS_MAX
    assert "left_out" not in found
    sizes = [size_of(each["excerpt"]) for each in found["results"]]
    assert min(sizes) > 2
    assert max(sizes) - min(sizes) <= 2 * size_of(piece)
    assert all(each["truncated"] for each in found["results"])


@pytest.mark.behaviour("search:observation-32kib")
def test_results_that_do_not_fit_by_their_addresses_alone_are_counted() -> None:
    """Characters that hide make an address four times as long as it is."""
    longest = URL + "\u202e" * (URL_CHARS_MAX - len(URL))
    found = told_of(*[Hit(longest, "t", "excerpt")] * 5)
    assert len(found["results"]) + found["left_out"] == 5
    assert found["left_out"] >= 3
    assert [each["rank"] for each in found["results"]] == [1, 2][: len(found["results"])]


def test_who_wants_little_leaves_it_to_the_others() -> None:
    lengths = [10, 4_000, 100, 4_000, 4_000, 4_000, 0, 4_000, 4_000, 4_000]
    hits = [Hit(URL, "t", "é" * (length // 2)) for length in lengths]
    found = told_of(*hits)["results"]
    assert [each["truncated"] for each in found] == [False] * len(hits)
    crowded = [Hit(URL + "x" * 1_500, "t" * 500, hit.excerpt) for hit in hits]
    excerpts = told_of(*crowded)["results"]
    assert [each["truncated"] for each in excerpts] == [length == 4_000 for length in lengths]
    cut_ones = [len(each["excerpt"]) for each in excerpts if each["truncated"]]
    assert max(cut_ones) - min(cut_ones) <= 1
    assert min(cut_ones) > 500


def test_what_is_bounded_here_is_cut_nowhere_else() -> None:
    assert max(SEARCH_OBSERVATION_BYTES_MAX, PAGE_OBSERVATION_BYTES_MAX) < OBSERVATION_BYTES_MAX


# ---- nothing to be seen


@pytest.mark.parametrize(
    ("text", "blank"),
    [
        ("", True),
        (" \t\r\n\x0b\x0c\x85\xa0\u2003\u2028\u3000", True),
        ("\x00\x1f\x7f", True),
        ("\u200b\u200c\u200d\u2060\ufeff\u00ad\u202e\u2066", True),
        ("\u034f\u115f\u1160\u17b4\u3164\uffa0\ufe0f\U000e0041\U000e0100", True),
        ("\u2800", True),
        ("\u200b" * 2_000_000, True),
        (" " * 2_000_000 + "x", False),
        ("x", False),
        ("\u200b\u0301", False),
        (".", False),
        ("🐐", False),
        ("\ufffd", False),
    ],
    ids=lambda it: ascii(it)[:30],
)
def test_a_text_is_blank_where_nothing_is_to_be_seen(text: str, blank: bool) -> None:
    assert is_blank(text) is blank
