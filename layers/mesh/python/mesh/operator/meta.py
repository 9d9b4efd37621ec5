"""Owns the routes about the API itself: health, the asker, the document.

Refuses to touch anything for the health check.
"""

from __future__ import annotations

from typing import Final

from mesh import __version__
from mesh.kernel.clock import rfc3339
from mesh.operator.route import Answer, Call, Needs, Route, nothing
from mesh.operator.shapes.base import Nothing
from mesh.operator.shapes.people import Health, Whoami


def _health(_: Call, __: None, ___: Nothing) -> Answer:
    return Answer(Health(status="ok", version=__version__))


def _whoami(call: Call, _: None, __: Nothing) -> Answer:
    who = call.principal
    reach = who.agents
    slugs = None if reach is None else [agent.slug for agent in call.plane.agents.many(reach)]
    return Answer(
        Whoami(
            id=who.operator_id,
            name=who.name,
            role=who.role,
            agents=slugs,
            expires_at=rfc3339(who.expires_at),
        )
    )


def _openapi(_: Call, __: None, ___: Nothing) -> Answer:
    from mesh.operator.openapi import document

    return Answer(document())


ROUTES: Final = (
    Route(
        method="GET",
        path="/healthz",
        operation="getHealth",
        summary="Whether the function runs; no token, and nothing is touched",
        needs=Needs.NOTHING,
        find=nothing,
        takes=Nothing,
        act=_health,
        answers=Health,
    ),
    Route(
        method="GET",
        path="/api/whoami",
        operation="getWhoami",
        summary="What the token may do",
        needs=Needs.VIEWER,
        find=nothing,
        takes=Nothing,
        act=_whoami,
        answers=Whoami,
    ),
    Route(
        method="GET",
        path="/api/openapi.json",
        operation="getOpenapi",
        summary="This document",
        needs=Needs.VIEWER,
        find=nothing,
        takes=Nothing,
        act=_openapi,
        answers=None,
    ),
)
