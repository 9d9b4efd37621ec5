"""Owns the routes of an agent's tools: which there are, which it may use, one call by hand, and the
notes that one of them writes (`operator/notes.py`).

Refuses to call a tool past the gate: a probe is admitted on the offer that stands, recorded in a
run of its own, and audited.
"""

from __future__ import annotations

from typing import Final

from mesh.control.agents import not_found
from mesh.operator import notes
from mesh.operator.agents import agent_of
from mesh.operator.route import Answer, Call, Needs, Route
from mesh.operator.shapes.base import Nothing
from mesh.operator.shapes.tools import Probe, ProbeShown, ToolList, ToolPut, ToolShown
from mesh.records.agent import Agent
from mesh.tools.contract import Definition
from mesh.tools.offers import Offering, offering_of


def tool_of(call: Call) -> tuple[Agent, Definition]:
    """The path's agent and tool. Raises `not_found`."""
    agent = agent_of(call)
    definition = call.plane.gate.definitions.get(call.path["name"])
    if definition is None:
        raise not_found()
    return agent, definition


def _list(call: Call, agent: Agent, _: Nothing) -> Answer:
    offering = offering_of(call.plane.deps.table, agent, call.plane.gate.definitions)
    return Answer(
        ToolList(
            items=[
                _shown(definition, offering)
                for _, definition in sorted(call.plane.gate.definitions.items())
            ]
        )
    )


def _put(call: Call, subject: tuple[Agent, Definition], body: ToolPut) -> Answer:
    agent, definition = subject
    call.plane.tool_bindings.put(
        agent, definition.name, enabled=body.enabled, version=body.version, cause=call.cause
    )
    offering = offering_of(call.plane.deps.table, agent, call.plane.gate.definitions)
    return Answer(_shown(definition, offering))


def _probe(call: Call, subject: tuple[Agent, Definition], body: Probe) -> Answer:
    agent, definition = subject
    if body.install_id is not None:
        install = call.plane.installs.by_id(body.install_id)
        if install is None or install.agent_id != agent.agent_id:
            raise not_found()
    probed = call.plane.prober.probe(
        agent, definition, body.arguments, install_id=body.install_id, cause=call.cause
    )
    return Answer(ProbeShown.model_validate(probed))


def _shown(definition: Definition, offering: Offering) -> ToolShown:
    binding = offering.bindings.get(definition.name)
    absence, offer = offering.absent.get(definition.name), offering.offers.get(definition.name)
    # A tool of a capability needs no binding to be used: its connection decides.
    enabled = binding.enabled if binding is not None else definition.capability is not None
    return ToolShown(
        name=definition.name,
        class_=definition.replay.value,
        package=definition.package,
        description=definition.description,
        enabled=enabled,
        offered=absence is None,
        reason=None if absence is None else absence.value,
        acting=definition.acting,
        payer=None if offer is None else offer.payer,
        version=0 if binding is None else binding.version,
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/agents/{slug}/tools",
        operation="listTools",
        summary="Every tool, whether the agent is offered it, and why not",
        needs=Needs.VIEWER,
        find=agent_of,
        takes=Nothing,
        act=_list,
        answers=ToolList,
    ),
    Route(
        method="PUT",
        path="/api/agents/{slug}/tools/{name}",
        operation="putTool",
        summary="Let the agent use a tool, or not",
        needs=Needs.OPERATOR,
        find=tool_of,
        takes=ToolPut,
        act=_put,
        answers=ToolShown,
    ),
    Route(
        method="POST",
        path="/api/agents/{slug}/tools/{name}/probe",
        operation="probeTool",
        summary="Call a tool once, without a model, as a run of its own",
        needs=Needs.OPERATOR,
        find=tool_of,
        takes=Probe,
        act=_probe,
        answers=ProbeShown,
    ),
    *notes.ROUTES,
)
