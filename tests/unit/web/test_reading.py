"""A piece of HTML is read as its text, whatever somebody wrote; a date is the day that it begins
with."""

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
        (
            "The <STRONG class=x>ibex</STRONG > &amp; its &quot;horns&quot;",
            'The ibex & its "horns"',
        ),
        ("It&#x27;s a <strong>wild goat</strong>.", "It's a wild goat."),
        ("a<br>b<BR/>c<br />d", "a b c d"),
        ("<b>a</b><i>b</i>", "ab"),
        ("<a href='x>y' title=\">\" z = '>'>a</a>", "a"),
        ("<img src=x onerror=alert(1)>a", "a"),
        ("<iframe>&lt;a</iframe>b", "&lt;ab"),
        # what has no text of its own
        ("<script>a<b>c</script>d", "d"),
        ("<SCRIPT type='a>b'>a</style></SCRIPT\n>d", "d"),
        ("<style>a</styles></style>b", "b"),
        ("a<script>b", "a"),
        ("a<!-- b <i> -- > -->c", "ac"),
        ("a<!--b--!>c", "ac"),
        ("a<!-- b", "a"),
        # references
        ("&lt;script&gt;a&lt;/script&gt;", "<script>a</script>"),
        ("&lt;br&gt;a&amp;lt;br&amp;gt;", "<br>a&lt;br&gt;"),
        ("AT&T &co &amp b&nbsp;c", "AT&T &co & b\u00a0c"),
        ("&eacute;&#233;&#xE9;", "ééé"),
        ("&#0;&#xD800;&#x110000;", "\ufffd" * 3),
        ("&#" + "9" * 5000 + ";x", "\ufffdx"),
        # what is no tag
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("a <3 <- b", "a <3 <- b"),
        ("\u202e\u200d山羊<b>🐐</b>", "\u202e\u200d山羊🐐"),
    ],
    ids=lambda it: ascii(it)[:30],
)
def test_the_text_of_a_piece_is_what_a_reader_would_see(markup: str, text: str) -> None:
    assert plain(markup) == (text, True)


def test_blocks_are_parted() -> None:
    text, _ = plain("<p>a</p><p>b</p><ul><li>c<li>d</ul>")
    assert text.split() == ["a", "b", "c", "d"]


def test_no_more_is_read_than_is_shown_of_any_and_that_is_said() -> None:
    most = "<b>" + "x" * (WEB_MARKUP_CHARS_MAX - 3)
    assert plain(most) == ("x" * (WEB_MARKUP_CHARS_MAX - 3), True)
    assert plain(most + "y") == ("x" * (WEB_MARKUP_CHARS_MAX - 3), False)


SMALL = """< <! <!-- <!- </ <a <a/ </a & &# &#x &#9 &a <![CDATA[ <![ <? <script> <script </script
<style> </style> --> --!> > = ' " a / <p> <table> <svg> <plaintext> <textarea>"""
PIECES = [*SMALL.split(), "<a ", "<a x=", "<a x='", '<a x="', "<a x=y ", "<a\n", "<script ", " "]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=30).map("".join))
@example("<![<![")
@example("<a" + "=" * 20 + "'")
def test_whatever_is_written_it_is_read(markup: str) -> None:
    text, whole = plain(markup)
    assert whole
    text.encode("utf-8")  # whole characters alone


@pytest.mark.parametrize("piece", PIECES, ids=ascii)
def test_the_longest_row_of_anything_is_read(piece: str) -> None:
    markup = "<b>" + piece * (WEB_MARKUP_CHARS_MAX // len(piece) + 1)
    text, whole = plain(markup)
    assert (len(text) <= 2 * WEB_MARKUP_CHARS_MAX, whole) == (True, False)


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
