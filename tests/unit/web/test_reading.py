"""A piece of HTML is read as its text, each character once, whatever somebody wrote; a date is the
day that it begins with."""

from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

from mesh.kernel.limits import WEB_MARKUP_CHARS_MAX
from mesh.tools.web.reading import date_of, plain

# ---- text


@pytest.mark.parametrize(
    "text",
    ["", "no markup", "1 > 0", "\x00\u202e", "山羊 🐐", "x" * (WEB_MARKUP_CHARS_MAX + 1)],
    ids=lambda it: ascii(it)[:20],
)
def test_a_text_without_markup_is_as_it_came(text: str) -> None:
    assert plain(text) == (text, True)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("a <strong>b</strong> c", "a b c"),
        ("<STRONG class=x>a</STRONG >", "a"),
        ("a<br>b<BR/>c<br />d", "a b c d"),
        ("<p>a</p><p>b</p>", " a b"),
        ("<ul><li>a<li>b</ul>", " a b"),
        ("<b>a</b><i>b</i>", "ab"),
        ("<my-own:tag>a</my-own:tag>", "a"),
        ("<a href='x>y' title=\">\" z = '>'>a</a>", "a"),
        ("<a don't>it's</a>", "it's"),
        ("<a\nhref=x\n>a</a\n>", "a"),
        ("<img src=x onerror=alert(1)>a", "a"),
        ("<title>a &amp; b</title>", "a & b"),
        ("<iframe>a</iframe><textarea>&lt;b</textarea>", "a<b"),
        # what has no text of its own
        ("<script>a<b>c</script>d", "d"),
        ("<SCRIPT type='a>b'>a</style></SCRIPT\n>d", "d"),
        ("<style>a</styles></style>b", "b"),
        ("<script>if (a</b) x</script >y", "y"),
        ("a<script>b", "a"),
        ("a<script/>b</script>c", "ac"),
        ("<scripts>a</scripts>", "a"),
        ("a<!-- b <i> -- > -->c", "ac"),
        ("a<!-->b<!--->c", "abc"),
        ("a<!--b--!>c", "ac"),
        ("a<!-- b", "a"),
        ("a<!DOCTYPE html>b<?php c ?>d<![CDATA[e]]>f</>g</ h>i", "abdfgi"),
        ("a<![", "a"),
        # references
        ("&lt;script&gt;a&lt;/script&gt;", "<script>a</script>"),
        ("&amp;lt;b&amp;gt;", "&lt;b&gt;"),
        ("AT&T &co &amp b", "AT&T &co & b"),
        ("&eacute;&#233;&#xE9;&#Xe9&#233x", "éééé\u00e9x"),
        ("&#0;&#xD800;&#x110000;&#1114112;&#55296;", "\ufffd" * 5),
        ("&#0000000065;&#x000000000041;", "AA"),
        ("&#99999999;&#" + "9" * 5000 + ";x", "\ufffd\ufffdx"),
        ("&#" + "0" * 5000 + "65;&#" + "0" * 5000 + ";", "A\ufffd"),
        ("&#x" + "f" * 5000 + ";&" + "a" * 5000 + ";", "\ufffd&" + "a" * 5000 + ";"),
        ("&#;&#x;&;&", "&#;&#x;&;&"),
        # what is no tag
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("a <3 <- <<b>>", "a <3 <- <>"),
        ("if a<b then &lt;c", "if a<b then <c"),
        ("<", "<"),
        ("<a href='b", "<a href='b"),
    ],
    ids=lambda it: ascii(it)[:30],
)
def test_the_text_of_a_piece_is_what_a_reader_would_see(markup: str, text: str) -> None:
    assert plain(markup) == (text, True)


def test_no_more_is_read_than_is_shown_of_any_and_that_is_said() -> None:
    most = "<b>" + "x" * (WEB_MARKUP_CHARS_MAX - 3)
    assert plain(most) == ("x" * (WEB_MARKUP_CHARS_MAX - 3), True)
    assert plain(most + "y") == ("x" * (WEB_MARKUP_CHARS_MAX - 3), False)
    assert plain(most[:-2] + "&amp;") == ("x" * (WEB_MARKUP_CHARS_MAX - 5) + "&a", False)


SMALL = """< <! <!-- <!- </ <a <a/ </a & &# &#x &#9 &a <![CDATA[ <![ <? <script> <script </script
<style> </style> --> --!> > = ' " a /"""
PIECES = [
    *SMALL.split(),
    *("<a ", "<a x=", "<a x='", '<a x="', "<a =", "<a x=y ", "<a\n", "<script ", " "),
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=30).map("".join))
@example("<![<![")
@example("<a" + "=" * 20 + "'")
def test_whatever_is_written_it_is_read(markup: str) -> None:
    text, whole = plain(markup)
    assert whole
    assert len(text) <= len(markup)


@pytest.mark.parametrize("piece", PIECES, ids=ascii)
def test_the_longest_row_of_anything_is_read_at_once(piece: str) -> None:
    """By a reader that goes over the rest again for each of them, it is not."""
    markup = "<b>" + piece * (WEB_MARKUP_CHARS_MAX // len(piece) + 1)
    for start in range(3, 13):
        text, whole = plain(markup[:3] + markup[start:])
        assert len(text) <= WEB_MARKUP_CHARS_MAX
        assert whole is (len(markup) - start + 3 <= WEB_MARKUP_CHARS_MAX)


# ---- dates


@pytest.mark.parametrize(
    ("told", "date"),
    [
        ("2024-12-27", "2024-12-27"),
        ("2024-12-27T15:49:55", "2024-12-27"),
        ("2024-12-27T15:49:55.123+02:00", "2024-12-27"),
        ("2024-12-27 15:49", "2024-12-27"),
        ("2024-02-29", "2024-02-29"),
        ("0001-01-01", "0001-01-01"),
        ("2023-02-29", None),
        ("2024-13-01", None),
        ("2024-00-00", None),
        ("0000-01-01", None),
        ("2024-12-271", None),
        ("2024-12-27\n", None),
        ("2024-12-27Z", None),
        (" 2024-12-27", None),
        ("2024-1-2", None),
        ("20241227", None),
        ("24-12-27", None),
        ("2024/12/27", None),
        ("12024-12-27", None),
        ("\u0662\u0660\u0662\u0664-12-27", None),
        ("4 days ago", None),
        ("", None),
        (None, None),
        (20241227, None),
        (["2024-12-27"], None),
    ],
    ids=ascii,
)
def test_a_date_is_the_day_that_it_begins_with(told: object, date: str | None) -> None:
    assert date_of(told) == date
