"""`Retry-After` is seconds or a date, and anything else asks for nothing."""

from __future__ import annotations

import pytest

from mesh.kernel.retry_after import milliseconds_of, seconds_of

NOW_MS = 1_796_000_000_000  # 30 November 2026, 00:53:20 UTC


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 1.5 ", 1.5),
        ("999999999999", 3600.0),
        ("9" * 5000, 3600.0),
        ("Mon, 30 Nov 2026 00:54:20 GMT", 60.0),
        ("Monday, 30-Nov-26 00:54:20 GMT", 60.0),
        ("Mon Nov 30 00:54:20 2026", 60.0),
        ("Sun, 29 Nov 2026 00:00:00 GMT", 0.0),
        ("Mon, 30 Nov 9999 00:00:00 GMT", 3600.0),
    ],
)
def test_seconds_and_dates_of_every_form_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text, NOW_MS) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "nan",
        "inf",
        "-1",
        "1_0",
        "1e3",
        "\u0661",
        "Mon, 99 Nov 2026 00:00:00 GMT",
        "1 2 3",
    ],
)
def test_nonsense_asks_for_nothing(text: str) -> None:
    assert seconds_of(text, NOW_MS) is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("1500", 1.5), ("0", 0.0), ("9" * 99, 3600.0), ("nan", None), ("", None)]
)
def test_milliseconds_are_a_number_alone(text: str, seconds: float | None) -> None:
    assert milliseconds_of(text) == seconds
