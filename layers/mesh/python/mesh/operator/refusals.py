"""Owns the list of what an install's proven callers were refused, newest first.

Refuses to read without bound: so many days a request, and a cursor for the rest.
"""

from __future__ import annotations

from mesh.kernel.clock import DAY_MS, MINUTE_MS, rfc3339
from mesh.kernel.limits import LIST_DAYS_PER_REQUEST
from mesh.operator.route import Answer, Call
from mesh.operator.shapes.base import Listing
from mesh.operator.shapes.connectors import RefusalList, RefusalShown
from mesh.records.install import Install
from mesh.storage import keys
from mesh.storage.items import Item


def list_refusals(call: Call, install: Install, query: Listing) -> Answer:
    """Newest first, by day and minute; so many days a request."""
    deps = call.plane.deps
    now = deps.clock.now_ms()
    place = call.place(query.cursor)
    day, before = (now // DAY_MS, "~") if place is None else (int(place[0]), str(place[1]))
    oldest = max(install.created_at, now - deps.settings.attempts_kept_days * DAY_MS) // DAY_MS
    items: list[RefusalShown] = []
    for _ in range(LIST_DAYS_PER_REQUEST):
        if day < oldest:
            return Answer(RefusalList(items=items, next_cursor=None))
        page = deps.table.query(
            keys.refused_day(install.install_id, day * DAY_MS),
            between=("0", before),
            forward=False,
            limit=query.limit + 2,
        )
        for row in page.items:
            if row["sk"] == before:
                continue
            if len(items) == query.limit:
                return Answer(RefusalList(items=items, next_cursor=call.cursor([day, before])))
            items.append(_refusal(row))
            before = row["sk"]
        if page.last is None:
            day, before = day - 1, "~"
    return Answer(RefusalList(items=items, next_cursor=call.cursor([day, before])))


def _refusal(row: Item) -> RefusalShown:
    ids = dict.fromkeys([row["first_request_id"], row["last_request_id"]])
    return RefusalShown(
        reason=row["reason"],
        minute=rfc3339(row["first_at"] // MINUTE_MS * MINUTE_MS),
        count=row["n"],
        first_at=rfc3339(row["first_at"]),
        last_at=rfc3339(row["last_at"]),
        last_request_ids=list(ids),
        clock_skew_s=row["last_skew_s"],
    )
