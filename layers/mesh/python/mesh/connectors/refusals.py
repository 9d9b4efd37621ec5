"""Owns what is kept of refusals to proven callers: one row per install, reason and minute, and a
pointer to it from each request's id.

Refuses to write anything for a caller that is not proven, and anything of a body.
"""

from __future__ import annotations

import msgspec

from mesh.kernel.clock import DAY_MS
from mesh.kernel.ids import story_of
from mesh.records.run import Refusal
from mesh.storage import keys
from mesh.storage.table import Table
from mesh.storage.writes import put, update


def note_refusal(
    table: Table,
    *,
    install_id: str,
    reason: str,
    request_id: str,
    at_ms: int,
    skew_s: int,
    kept_days: int,
) -> None:
    """Counts one refusal, and notes under its request id where. `skew_s` is the caller's clock less
    ours. Raises Failed."""
    ttl = (at_ms + kept_days * DAY_MS) // 1000
    table.write(
        update(
            keys.refused(install_id, at_ms, reason),
            "SET #n = if_not_exists(#n, :zero) + :one,"
            " #reason = :reason, #install_id = :install_id,"
            " #first_at = if_not_exists(#first_at, :at), #last_at = :at,"
            " #first_request_id = if_not_exists(#first_request_id, :request_id),"
            " #last_request_id = :request_id, #last_skew_s = :skew_s, #ttl = :ttl",
            zero=0,
            one=1,
            reason=reason,
            install_id=install_id,
            at=at_ms,
            request_id=request_id,
            skew_s=skew_s,
            ttl=ttl,
        )
    )
    pointer = Refusal(install_id=install_id, reason=reason, at=at_ms, skew_s=skew_s)
    table.write(
        put(keys.refusal(story_of(request_id)), {**msgspec.to_builtins(pointer), "ttl": ttl})
    )
