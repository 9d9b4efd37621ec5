"""Owns whether replies wait, or may, that a change of their receiver's host would send elsewhere.

Refuses to take what is not known for nothing: a reply that went to another host cannot be taken
back.
"""

from __future__ import annotations

from mesh.control.installs import Keep, host_of
from mesh.kernel.clock import DAY_MS
from mesh.kernel.limits import LIST_ROWS_PER_REQUEST
from mesh.operator.entries import standing
from mesh.operator.route import Call
from mesh.records.install import Install
from mesh.records.outbox import Entry, EntryState
from mesh.storage import keys
from mesh.storage.happened import Walk


def host_changes(install: Install, url: str | Keep | None) -> bool:
    """Whether replies that wait would go to another host than they were made for."""
    if install.delivery_host is None or url is None or isinstance(url, Keep):
        return False
    return url != install.delivery_shown and host_of(url) != install.delivery_host


def may_wait(call: Call, install: Install) -> bool:
    """Whether replies of the install wait, or may: where more rows stand than a request reads, what
    is not known counts as waiting."""
    walk = _walk(call, install)
    for number, each in enumerate(standing(call.plane, walk)):
        if number == LIST_ROWS_PER_REQUEST or _is_waiting(each.entry, install):
            return True
    return False


def _is_waiting(entry: Entry, install: Install) -> bool:
    return entry.install_id == install.install_id and entry.state is EntryState.PENDING


def _walk(call: Call, install: Install) -> Walk:
    """Every day on which a reply can have been made that is still kept: one that was held on
    purpose does not age, and may be as old as any.
    """
    deps = call.plane.deps
    now = deps.clock.now_ms()
    kept_days = max(
        deps.settings.messages_kept_days,
        call.plane.instance.read().retention_days or 0,
        install.retention_days or 0,
    )
    oldest = max(install.created_at, now - kept_days * DAY_MS)
    return Walk(
        deps.table,
        lambda at_ms: keys.outbox_lists(install.agent_id, at_ms),
        newest_ms=now,
        oldest_ms=oldest,
        days=now // DAY_MS - oldest // DAY_MS + 1,
    )
