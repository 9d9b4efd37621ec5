"""Owns the shapes of what is told before it runs: the plan of an enablement.

Refuses a delivery URL and a secret: a plan names steps.
"""

from __future__ import annotations

from mesh.operator.shapes.base import Shown, Taken, Time
from mesh.records.install import InstallState


class PlanTaken(Taken):
    """Which enabling is planned."""

    skip_ping: bool = False


class PlannedStep(Shown):
    """One step: what it will do, and whether it is passed over because it is done."""

    name: str
    description: str
    done: bool


class EnablePlan(Shown):
    """What enabling would run, in order."""

    steps: list[PlannedStep]
    next: str


class DisablePlan(Shown):
    """What disabling would do, in order, and what is under way now."""

    steps: list[PlannedStep]
    in_flight: int
    in_flight_until: Time | None
    """When the last delivery in flight ends at the latest."""
    waiting: int
    """How many replies wait, of the newest; they would be held."""


class PlanShown(Shown):
    """What turning a connector on or off would do; nothing was done."""

    install_id: str
    state: InstallState
    state_reason: str | None
    enable: EnablePlan
    disable: DisablePlan
