"""Owns what is told of a connector before anything runs: the plan of turning it on or off, and what
a payload would come to.

Refuses any effect, an audit row among them: nothing happened.
"""

from __future__ import annotations

from mesh.connectors.gate import check_open
from mesh.connectors.generic.payload import check_media_type
from mesh.connectors.generic.simulation import Foreseen, foresee
from mesh.connectors.http import HttpRequest
from mesh.control.engagement import Verdict
from mesh.control.plan import Planned, plan
from mesh.kernel.clock import rfc3339
from mesh.kernel.errors import Conflict, Invalid, MeshError, Refused
from mesh.operator.entries import Counts, counts
from mesh.operator.explain import RULES
from mesh.operator.route import Answer, Call, Sent
from mesh.operator.shapes.foresight import (
    DisablePlan,
    EnablePlan,
    PlannedStep,
    PlanShown,
    PlanTaken,
    ProblemShown,
    SimulatedPayload,
    SimulationShown,
    ToldError,
)
from mesh.records.install import Install, InstallState
from mesh.storage import keys


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


def simulate(call: Call, install: Install, _: SimulatedPayload) -> Answer:
    """What a signed post of the body would come to now, were the connector open; nothing is kept.

    Raises Invalid `unsupported_media_type` for a body that neither ingress nor this API takes.
    """
    assert call.sent is not None, "the route takes its body unread"
    deps = call.plane.deps
    install = call.plane.installs.whole(install.install_id).install
    closed: ToldError | None = None
    try:
        check_open(install)
    except Refused as refused:
        closed = _told(refused)
    request = _request(call.sent)
    try:
        foreseen = foresee(deps.table, install, request, deps.clock.now_ms())
    except (Invalid, Conflict) as error:
        return Answer(
            SimulationShown(
                outcome="refused",
                status=error.status,
                error=_told(error),
                closed=closed,
                verdict=None,
                reason=None,
                rule=None,
                text="the caller would be refused, and nothing of the message would be kept",
                starts_run=False,
                duplicate_of=None,
                message_id=None,
                conversation_id=None,
            )
        )
    return Answer(_foreseen(install, foreseen, closed))


def _request(sent: Sent) -> HttpRequest:
    """The body as ingress would get it."""
    check_media_type(sent.content_type, sent.content_encoding)
    headers = {"content-type": sent.content_type or ""}
    return HttpRequest("POST", "", headers=headers, body=sent.body)


def _foreseen(install: Install, foreseen: Foreseen, closed: ToldError | None) -> SimulationShown:
    duplicate = foreseen.duplicate_of is not None
    rule, why = RULES.get(foreseen.reason, ("engagement", foreseen.reason))
    message = foreseen.message
    return SimulationShown(
        outcome="duplicate" if duplicate else "accepted",
        status=200 if duplicate else 202,
        error=None,
        closed=closed,
        verdict=foreseen.verdict,
        reason=foreseen.reason,
        rule=rule,
        text=why,
        starts_run=foreseen.verdict is Verdict.ENGAGE and not duplicate,
        duplicate_of=f"msg_{foreseen.duplicate_of}" if duplicate else None,
        message_id=message.message_id,
        conversation_id=keys.conversation_id(install.install_id, message.conversation_key),
    )


def _told(error: MeshError) -> ToldError:
    fields = error.fields if isinstance(error, Invalid) else ()
    return ToldError(
        status=error.status,
        code=error.code,
        message=error.message,
        fields=[ProblemShown(path=f.path, problem=f.problem) for f in fields],
    )
