"""What the simulation's tests share: how much of it runs."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--exhaustive", action="store_true", help="every call, more seeds (`make simulate`)"
    )


@pytest.fixture(scope="session")
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether all of the simulation runs, and not only what covers every place once."""
    return bool(request.config.getoption("--exhaustive", default=False))
