"""What every suite shares: how Hypothesis runs, and the watch over every secret."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import canary

canary.install()

# Two cores are shared with other work: an example's time says nothing. Runs repeat exactly.
settings.register_profile(
    "mesh",
    deadline=None,
    derandomize=True,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("mesh")


@pytest.fixture(autouse=True)
def no_secret_is_let_out() -> Iterator[None]:
    """Fails the test in which a secret stood in a row, a message, a log line, an error or an
    answer."""
    yield
    found = canary.WATCH.drain()
    canary.WATCH.known.clear()  # another test may call the same value no secret
    assert not found, "secrets were let out:\n" + "\n".join(found)
