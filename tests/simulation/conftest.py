"""What the simulation's tests share: how much of it runs."""

from __future__ import annotations

from typing import Any

import pytest

CRASH_POINTS = "crash points explored"
SCHEDULES = "schedules drawn"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--exhaustive", action="store_true", help="every call, more seeds (`make simulate`)"
    )


@pytest.fixture(scope="session")
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether all of the simulation runs, and not only what covers every place once."""
    return bool(request.config.getoption("--exhaustive", default=False))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says how much was explored."""
    for what in (CRASH_POINTS, SCHEDULES):
        count = sum(
            value
            for report in terminalreporter.stats.get("passed", ())
            for name, value in report.user_properties
            if name == what
        )
        if count:
            terminalreporter.write_line(f"simulation: {count} {what}")
