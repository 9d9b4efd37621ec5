"""Owns the shapes of what is told before it runs: the plan of an enablement, and a simulation.

Refuses a delivery URL, a secret and a body: steps, verdicts and reasons are told.
"""

from __future__ import annotations

from typing import Literal

from mesh.control.engagement import Verdict
from mesh.operator.shapes.base import Shown, Taken, Time
from mesh.records.install import InstallState
from mesh.records.message import BodyFormat, Topology


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


class SimulatedPayload(Taken):
    """A payload as a third party posts it, or a CloudEvent that holds one. It is judged as ingress
    judges it: what is wrong with it is part of the answer."""

    message_id: str
    conversation_key: str
    actor_id: str
    body: str
    body_format: BodyFormat = BodyFormat.MARKDOWN
    parent_id: str | None = None
    display_name: str | None = None
    topology: Topology = Topology.DIRECT
    sent_at: str | None = None


class ProblemShown(Shown):
    """A field, and what is wrong with it."""

    path: str
    problem: str


class ToldError(Shown):
    """A refusal as the caller would be told it."""

    status: int
    code: str
    message: str
    fields: list[ProblemShown]


class SimulationShown(Shown):
    """What a payload would come to. Nothing of it was kept."""

    outcome: Literal["accepted", "duplicate", "refused"]
    status: int
    """What the caller would be answered, were the connector open."""
    error: ToldError | None
    closed: ToldError | None
    """What every message is refused with at present, before it is read; null where it is open."""
    verdict: Verdict | None
    reason: str | None
    rule: str | None
    """The setting that decides."""
    text: str
    starts_run: bool
    duplicate_of: str | None
    message_id: str | None
    conversation_id: str | None
