"""What every suite shares: how Hypothesis runs, and what a warning is worth."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Two cores are shared with other work: an example's time says nothing. Runs repeat exactly.
settings.register_profile(
    "mesh",
    deadline=None,
    derandomize=True,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("mesh")
