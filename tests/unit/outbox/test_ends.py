"""How an attempt ended, told from what a receiver answered."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from mesh.outbox.ends import of_status

NOW_MS = 1_796_000_400_000
"""Mon, 30 Nov 2026 01:00:00 GMT."""


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The machine's own time zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    "date",
    [
        "Mon, 30 Nov 2026 01:10:00 GMT",
        "Monday, 30-Nov-26 01:10:00 GMT",
        "Mon Nov 30 01:10:00 2026",
        "Mon, 30 Nov 2026 01:10:00 -0000",
    ],
)
def test_a_date_in_retry_after_is_the_same_moment_in_every_time_zone(date: str) -> None:
    assert of_status(503, date, NOW_MS).retry_after_ms == 600_000


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("9" * 5000, 3600),
        ("-5", 0),
        ("1.5", 1.5),
        ("soon", 0),
        ("", 0),
        ("\xb2", 0),
        ("Mon, 30 Nov 2026 00:00:00 GMT", 0),
        ("Mon, 30 Nov 9999 00:00:00 GMT", 3600),
        ("Mon, 30 Nov 2026 25:00:00 GMT", 0),
        (None, 0),
    ],
)
def test_retry_after_is_taken_up_to_an_hour_and_nonsense_is_passed_over(
    said: str | None, seconds: float
) -> None:
    assert of_status(429, said, NOW_MS).retry_after_ms == seconds * 1000


@pytest.mark.parametrize("status", [200, 302, 404, 410, 500])
def test_retry_after_counts_with_429_and_503_alone(status: int) -> None:
    assert of_status(status, "120", NOW_MS).retry_after_ms == 0
