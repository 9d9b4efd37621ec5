"""Owns the ring after an operator let an install or an agent work again, so that held work need not
wait for a sweep.

Refuses to matter: the release row was written with the change, and the sweep does what is left
here.
"""

from __future__ import annotations

from contextlib import suppress

from mesh.control.holds import Release, release_some
from mesh.kernel.errors import Failed
from mesh.kernel.limits import WAKE_AT_ONCE_MAX
from mesh.operator.route import Call
from mesh.records.agent import Agent
from mesh.records.install import Install
from mesh.storage import keys


def wake(call: Call, install: Install) -> None:
    """What waited for an install."""
    _wake(call, install.agent_id, keys.held(install.install_id), keys.degraded(install.install_id))


def wake_agent(call: Call, agent: Agent) -> None:
    """What waited for an agent."""
    _wake(call, agent.agent_id, keys.held(agent.agent_id))


def _wake(call: Call, agent_id: str, *sources: str) -> None:
    """Gives some of the held marks back to the due index, and rings for their conversations."""
    deps = call.plane.deps
    now = deps.clock.now_ms()
    for source in sources:
        with suppress(Failed):
            release = Release(source=source, until=now)
            for key in release_some(deps.table, release, now, WAKE_AT_ONCE_MAX):
                conversation_id = key.pk.removeprefix("CONV#")
                if key.sk == keys.OUTBOX:
                    deps.bell.delivery(conversation_id)
                elif key.sk == keys.ORDER:
                    deps.bell.turn(conversation_id, agent_id)
