"""Owns the job that erases what a deleted agent has: its installs, what was said, what it keeps,
and at last what its own row says.

Refuses to touch the audit trail, and the reservation of its slug.
"""

from __future__ import annotations

from contextlib import suppress

from mesh.control.accounts import leaving
from mesh.control.agents import INSTALL_PREFIX
from mesh.control.audit import Cause
from mesh.control.enablement import Enablement
from mesh.control.installs import Installs
from mesh.control.rows import item_of, record_of
from mesh.jobs.contract import Progress
from mesh.jobs.erasure import Erased
from mesh.jobs.install import Forgetting
from mesh.jobs.rounds import Rounds
from mesh.kernel.errors import Refused
from mesh.kernel.limits import JOB_PAGE_ROWS
from mesh.records.agent import Agent
from mesh.records.install import AgentStatus
from mesh.records.job import Job
from mesh.records.value import SealedValue
from mesh.storage import keys
from mesh.storage.keys import Key
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import delete, put

AGENT_DELETED = "agent_deleted"
"""Why a run ends as cancelled whose agent was deleted."""


class DeleteAgent:
    """Implements `Kind`. Its place names the phase: installs, conversations, values."""

    ended = "agent.deleted"

    def __init__(
        self,
        table: Table,
        *,
        installs: Installs,
        enablement: Enablement,
        forgetting: Forgetting,
        rounds: Rounds,
    ) -> None:
        self._table = table
        self._installs = installs
        self._enablement = enablement
        self._forgetting = forgetting
        self._rounds = rounds

    def step(self, job: Job, stop_at_ms: int) -> Progress:
        """Makes the next step of the phase that the place names. Raises Failed."""
        assert job.agent_id is not None, "it is an agent's"
        match job.place.get("phase", "installs"):
            case "installs":
                return self._install(job, job.agent_id)
            case "conversations":
                return self._conversations(job, stop_at_ms)
            case _:
                return self._values(job.agent_id)

    def _install(self, job: Job, agent_id: str) -> Progress:
        """Finds the next install, or goes on with the one that the place names.

        It is named before it is removed: the row that leads to it goes with the removal.
        """
        install_id = job.place.get("install")
        if install_id is None:
            found = self._table.query(keys.agent(agent_id).pk, prefix=INSTALL_PREFIX, limit=1).items
            if not found:
                return Progress(place={"phase": "conversations"})
            return Progress(place={"phase": "installs", "install": found[0]["install_id"]})
        self._remove(job, install_id)  # from here on nothing is noted there
        if not self._emptied(keys.notes(agent_id, install_id), ""):
            return Progress(place=job.place)
        if not self._forgetting.counts(install_id):
            return Progress(place=job.place)
        self._forgetting.install(install_id, job.started_at)
        return Progress(place={"phase": "installs"})

    def _remove(self, job: Job, install_id: str) -> None:
        whole = self._installs.find_whole(install_id)
        if whole is None:
            return  # it is a tombstone already
        try:
            self._enablement.remove(whole.install, Cause(job.actor, job.request_id))
        except Refused:
            return  # another worker was faster

    def _conversations(self, job: Job, stop_at_ms: int) -> Progress:
        def erase(conversation_id: str, _: int) -> tuple[Erased, int]:
            return self._forgetting.conversation(
                conversation_id, None, AGENT_DELETED, stop_at_ms
            ), 0

        walked = self._rounds.step(job, erase)
        phase = "values" if walked.place is None else "conversations"
        return Progress(
            place={**(walked.place or {}), "phase": phase}, done=walked.done, wait_s=walked.wait_s
        )

    def _values(self, agent_id: str) -> Progress:
        """Forgets the vault and the model's key, with the data keys that are wrapped beside them,
        the tools' bindings, what it had set for the web with its providers' keys, and the notes
        that every install's runs saw; then what the agent's row says."""
        pk = keys.agent(agent_id).pk
        for partition, prefix in (
            (pk, keys.VAULT),
            (pk, keys.TOOL),
            (keys.web(agent_id), ""),
            (keys.notes(agent_id, keys.EVERYWHERE), ""),
        ):
            if not self._emptied(partition, prefix):
                return Progress(place={"phase": "values"})
        for key in (keys.model_key(agent_id), keys.running(agent_id)):
            self._table.write(delete(key))
        self._bury(agent_id)
        return Progress(place=None)

    def _emptied(self, pk: str, prefix: str) -> bool:
        """Deletes one page of the rows of `pk` that begin with `prefix`; whether none are left."""
        page = self._table.query(pk, prefix=prefix or None, limit=JOB_PAGE_ROWS)
        for item in page.items:
            if item["sk"].startswith(keys.VAULT):
                self._give_free(keys.agent_of(Key(pk, item["sk"])), record_of(item, SealedValue))
            self._table.write(delete(Key(pk, item["sk"])))
        return page.last is None

    def _give_free(self, agent_id: str, value: SealedValue) -> None:
        """An acting account may be another agent's once its credential here is forgotten."""
        if value.account is None:
            return
        with suppress(ConditionFailed):  # another agent's by now
            self._table.write(leaving(agent_id, value.name, value.account))

    def _bury(self, agent_id: str) -> None:
        item = self._table.get(keys.agent(agent_id))
        if item is None:
            return
        agent = record_of(item, Agent)
        grave = Agent(
            agent_id=agent_id,
            slug=agent.slug,
            name="",
            handle="",
            status=AgentStatus.DELETED,
            version=agent.version,
            created_at=agent.created_at,
        )
        try:
            self._table.write(
                put(
                    keys.agent(agent_id),
                    item_of(grave),
                    "#status = :deleting",
                    deleting=AgentStatus.DELETING.value,
                )
            )
        except ConditionFailed:
            return
