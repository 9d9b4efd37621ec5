"""Owns the figures that alarms watch: ages of work, counts, and the sweep's heartbeat.

Refuses dimensions with an unbounded number of values: a metric is the environment's, not an
install's.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

NAMESPACE: Final = "Mesh"


class Metric(StrEnum):
    """Every metric that Mesh emits; the alarms name the same."""

    OLDEST_WAITING_RUN_AGE_S = "OldestWaitingRunAgeS"
    OLDEST_DUE_ENTRY_AGE_S = "OldestDueEntryAgeS"
    SWEEP_HEARTBEAT = "SweepHeartbeat"


class Metrics(Protocol):
    """Where figures go."""

    def __call__(self, figures: dict[Metric, float], /) -> None:
        """Emits all figures as of now."""
        ...


class EmfMetrics:
    """Emits figures as CloudWatch's embedded metric format, on standard output, through Powertools.

    `environment` is their one dimension, so that no environment's heartbeat stands in for
    another's.
    """

    def __init__(self, environment: str) -> None:
        self._environment = environment

    def __call__(self, figures: dict[Metric, float], /) -> None:
        from aws_lambda_powertools.metrics import (
            Metrics as Emitter,  # only sweeps load it
            MetricUnit,
        )

        emitter = Emitter(namespace=NAMESPACE, service=self._environment)
        for metric, value in figures.items():
            heartbeat = metric is Metric.SWEEP_HEARTBEAT
            unit = MetricUnit.Count if heartbeat else MetricUnit.Seconds
            emitter.add_metric(name=metric.value, unit=unit, value=value)
        emitter.flush_metrics()
