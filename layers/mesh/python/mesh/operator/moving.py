"""Owns what becomes of replies that wait when their receiver's host changes.

Refuses to send one to a host that it was not made for unless the operator says so.
"""

from __future__ import annotations

from mesh.control.installs import Keep, host_of
from mesh.kernel.errors import Conflict
from mesh.kernel.limits import DISCARDS_PER_REQUEST
from mesh.operator.entries import counts, discard, standing, walk_outbox
from mesh.operator.route import Call
from mesh.records.install import Install
from mesh.records.outbox import EntryState


def host_changes(install: Install, url: str | Keep | None) -> bool:
    """Whether replies that wait would go to another host than they were made for."""
    if install.delivery_host is None or url is None or isinstance(url, Keep):
        return False
    return url != install.delivery_shown and host_of(url) != install.delivery_host


def waits(call: Call, install: Install) -> bool:
    agent = call.plane.agents.by_id(install.agent_id)
    if agent is None:
        return False
    return counts(call.plane, agent, [install.install_id])[install.install_id].pending > 0


def discard_waiting(call: Call, install: Install) -> None:
    """Discards what waits, each entry with an audit row of its own, before the host changes.

    Raises Conflict when something is left that would go to the new host: put the same again.
    """
    agent = call.plane.agents.by_id(install.agent_id)
    if agent is None:
        return
    walk = walk_outbox(call.plane, agent, None, None)
    done = 0
    for each in standing(call.plane, walk):
        entry = each.entry
        if entry.install_id != install.install_id or entry.state is not EntryState.PENDING:
            continue
        if done == DISCARDS_PER_REQUEST:
            raise Conflict("state_conflict", "more replies wait; put the same again")
        discard(call, each.conversation_id, entry)
        done += 1
