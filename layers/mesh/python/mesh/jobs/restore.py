"""Owns the end of a restore: every connector is held, and every agent taken over into the epoch.

Refuses to take an agent over before its connectors are held: one that is open sends under numbers
that may have been used since the backup, and none can be opened before its agent is taken over.
"""

from __future__ import annotations

from typing import Final

from mesh.control.agents import Agents
from mesh.control.audit import Cause
from mesh.control.installs import Installs
from mesh.control.restore import Restoring
from mesh.jobs.contract import Progress
from mesh.kernel.limits import JOB_PAGE_ROWS
from mesh.records.job import Job


class FinishRestore:
    """Goes through the agents by slug, and through each one's installs.

    Its place is the agent that is under way (its slug and its id) and the last install that was
    looked at; or the slug of the last agent that is done. One thing that it has done is a connector
    that it held.
    """

    ended: Final = "instance.restored"

    def __init__(self, agents: Agents, installs: Installs, restoring: Restoring) -> None:
        self._agents = agents
        self._installs = installs
        self._restoring = restoring

    def step(self, job: Job, stop_at_ms: int) -> Progress:  # noqa: ARG002 - a page is short
        """A page of one agent's installs, or the next agent. Raises Failed."""
        slug, agent_id = job.place.get("slug"), job.place.get("agent_id")
        if agent_id is None:
            agents, last = self._agents.page(1, slug)
            if not agents:  # at the end, or at a slug whose agent is gone
                return Progress(place=None if last is None else {"slug": last})
            return Progress(place={"slug": agents[0].slug, "agent_id": agents[0].agent_id})
        epoch = job.wanted["epoch"]
        agent = self._agents.by_id(agent_id)
        if agent is None or agent.epoch >= epoch:  # nothing of its installs is touched again
            return Progress(place={"slug": slug})
        cause = Cause(job.actor, job.request_id)
        ids, last = self._installs.of_agent(agent_id, JOB_PAGE_ROWS, job.place.get("after"))
        held = sum(self._restoring.hold(install_id, cause) for install_id in ids)
        if last is not None:
            return Progress(place={"slug": slug, "agent_id": agent_id, "after": last}, done=held)
        self._restoring.take_over(agent_id, epoch)
        return Progress(place={"slug": slug}, done=held)
