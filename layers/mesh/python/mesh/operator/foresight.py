"""Owns what is told of a connector before anything runs: the plan of turning it on or off.

Refuses any effect, an audit row among them: nothing happened.
"""

from __future__ import annotations

from mesh.control.plan import Planned, plan
from mesh.kernel.clock import rfc3339
from mesh.operator.entries import Counts, counts
from mesh.operator.route import Answer, Call
from mesh.operator.shapes.foresight import (
    DisablePlan,
    EnablePlan,
    PlannedStep,
    PlanShown,
    PlanTaken,
)
from mesh.records.install import Install, InstallState


def show_plan(call: Call, install: Install, body: PlanTaken) -> Answer:
    """What enabling and disabling would do, step by step, as things stand."""
    whole = call.plane.installs.whole(install.install_id)
    install = whole.install
    now = call.plane.deps.clock.now_ms()
    planned = plan(whole, call.plane.generic, now, skip_ping=body.skip_ping)
    agent = call.plane.agents.by_id(install.agent_id)
    counted = counts(call.plane, agent, [install.install_id]) if agent is not None else {}
    return Answer(
        PlanShown(
            install_id=install.install_id,
            state=install.state,
            state_reason=install.state_reason,
            enable=EnablePlan(
                steps=[_step(each) for each in planned.enabling],
                next=_next(install, [each for each in planned.enabling if not each.done]),
            ),
            disable=DisablePlan(
                steps=[_step(each) for each in planned.disabling],
                in_flight=len(planned.in_flight),
                in_flight_until=rfc3339(planned.in_flight[-1]) if planned.in_flight else None,
                waiting=counted.get(install.install_id, Counts()).pending,
            ),
        )
    )


def _step(each: Planned) -> PlannedStep:
    return PlannedStep(name=each.step.name, description=each.step.description, done=each.done)


def _next(install: Install, left: list[Planned]) -> str:
    if install.state is InstallState.ENABLED:
        return "nothing: it is enabled, and enabling again runs nothing"
    names = ", ".join(each.step.name for each in left)
    return f"mesh connector enable {install.install_id} runs: {names}"
