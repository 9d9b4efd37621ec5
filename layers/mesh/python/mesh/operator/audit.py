"""Owns the route of the audit trail: admins alone reach it.

Refuses to change a row: nothing can.
"""

from __future__ import annotations

from typing import Final

from mesh.control.audit import Place, Search
from mesh.kernel.clock import rfc3339
from mesh.operator.route import Answer, Call, Needs, Route, nothing
from mesh.operator.shapes.base import milliseconds
from mesh.operator.shapes.people import AuditList, AuditListing, AuditShown


def _list(call: Call, _: None, query: AuditListing) -> Answer:
    told = call.place(query.cursor)
    place = None if told is None else Place(int(told[0]), str(told[1]))
    search = Search(
        target=query.target,
        actor=query.actor,
        action=query.action,
        since=None if query.since is None else milliseconds(query.since),
        until=None if query.until is None else milliseconds(query.until),
    )
    rows, further = call.plane.audit.page(search, query.limit, place)
    items = [
        AuditShown(
            id=row.id,
            at=rfc3339(row.at),
            actor=row.actor,
            action=row.action,
            target=row.target,
            version_before=row.version_before,
            version_after=row.version_after,
            request_id=row.request_id,
        )
        for row in rows
    ]
    cursor = call.cursor(None if further is None else [further.day, further.before])
    return Answer(AuditList(items=items, next_cursor=cursor))


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/audit",
        operation="listAudit",
        summary="Who changed what, newest first",
        needs=Needs.ADMIN,
        find=nothing,
        takes=AuditListing,
        act=_list,
        answers=AuditList,
    ),
)
