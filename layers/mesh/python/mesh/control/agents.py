"""Owns agents: the settings row, the slug that leads to it, and the copies that its installs carry.

Refuses to decide by what it read: every change is conditional on the version, and on the set of
installs, that it was worked out from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.bindings import enabled_writes
from mesh.control.epochs import current_epoch, still
from mesh.control.holds import release_write
from mesh.control.idempotency import Minting
from mesh.control.rows import assign, item_of, record_of
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Conflict, Failed, Refused
from mesh.kernel.ids import Ids
from mesh.kernel.limits import (
    INSTALLS_PER_AGENT_MAX,
    SLUG_CHARS_MAX,
    SLUG_KEPT_MS,
    TRANSACTION_TRIES,
)
from mesh.records.agent import Agent, Limits, Model
from mesh.records.install import AgentStatus
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.table import Cancelled, Table, Why
from mesh.storage.writes import Write, put, update

AGENTS = "AGENTS"
INSTALL_PREFIX = "INS#"


def not_found() -> Refused:
    """The one answer for what is not there and for what the asker may not know of."""
    return Refused("not_found", "there is nothing here by that name, or it is not yours")


def version_conflict(current: int) -> Conflict:
    """A write named another version than the one that stands."""
    return Conflict(
        "version_conflict",
        f"the settings are at version {current} by now; read them again and put that version",
        current_version=current,
    )


class Agents:
    """Reads and changes agents."""

    def __init__(self, table: Table, clock: Clock, ids: Ids, audit: AuditTrail) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids
        self._audit = audit

    def by_slug(self, slug: str) -> Agent | None:
        """The agent of that slug, read consistently; None when there is none. Raises Failed."""
        agent_id = self.id_of(slug)
        return None if agent_id is None else self.by_id(agent_id)

    def id_of(self, slug: str) -> str | None:
        """The id that goes with a slug, read consistently; None when there is none. Raises
        Failed."""
        if not 0 < len(slug) <= SLUG_CHARS_MAX:
            return None
        pointer = self._table.get(keys.slug(slug))
        if pointer is None or "deleted_at" in pointer:
            return None
        return str(pointer["agent_id"])

    def by_id(self, agent_id: str) -> Agent | None:
        """The agent of that id, read consistently; None also for one that was deleted. Raises
        Failed."""
        item = self._table.get(keys.agent(agent_id))
        agent = None if item is None else record_of(item, Agent)
        return agent if agent is not None and agent.status.stands else None

    def many(self, agent_ids: Sequence[str]) -> list[Agent]:
        """The agents of those ids that are there, by slug. Raises Failed."""
        found = self._table.get_many(keys.agent(agent_id) for agent_id in agent_ids)
        agents = (record_of(item, Agent) for item in found.values())
        return sorted((each for each in agents if each.status.stands), key=lambda a: a.slug)

    def page(self, limit: int, after: str | None) -> tuple[list[Agent], str | None]:
        """Up to `limit` agents by slug, after the slug `after`; and the slug to go on after.

        Slugs that are only kept for a deleted agent count, so a page may hold fewer.
        """
        page = self._table.query(AGENTS, between=(after or "0", "~"), limit=limit + 2)
        items = [item for item in page.items if item["sk"] != after]
        agents = self.many([i["agent_id"] for i in items[:limit] if "deleted_at" not in i])
        more = len(items) > limit
        return agents, items[limit - 1]["sk"] if more else None

    def create(
        self,
        *,
        slug: str,
        name: str,
        handle: str,
        instructions: str,
        model: Model,
        limits: Limits,
        tools: Sequence[str] = (),
        retention_days: int | None = None,
        cause: Cause,
        minting: Minting,
    ) -> Agent:
        """Makes an agent, with `tools` enabled.

        Raises Conflict (`already_exists`, `idempotency_conflict`), Minted, Failed.
        """
        now = self._clock.now_ms()
        minting.check(self._table, now)
        epoch = current_epoch(self._table)
        agent = Agent(
            agent_id=self._ids.mint("agt"),
            slug=slug,
            name=name,
            handle=handle,
            instructions=instructions,
            model=model,
            limits=limits,
            epoch=epoch.epoch,
            retention_days=retention_days,
            version=1,
            created_at=now,
        )
        writes = [
            minting.write({"agent_id": agent.agent_id}, now),
            put(
                keys.slug(slug),
                {"agent_id": agent.agent_id},
                "attribute_not_exists(#pk) OR #kept_until < :now",
                now=now,
            ),
            put(keys.agent(agent.agent_id), item_of(agent), "attribute_not_exists(#pk)"),
            *enabled_writes(agent.agent_id, tools, now),
            still(epoch),
        ]
        deed = Deed(
            action="agent.create", target=slug, agent_id=agent.agent_id, version_after=agent.version
        )
        try:
            self._audit.commit(writes, cause, deed)
        except Cancelled as cancelled:
            minting.check(self._table, now)
            if cancelled.reasons[1].why is not Why.CONDITION:
                raise Failed(
                    "unavailable", "the instance is just being restored; try again"
                ) from None
            pointer = cancelled.reasons[1].old or {}
            what = "was lately" if "deleted_at" in pointer else "is"
            raise Conflict(
                "already_exists", f"there {what} an agent {slug}; take another slug"
            ) from None
        return agent

    def update(
        self,
        agent: Agent,
        *,
        version: int,
        name: str,
        handle: str,
        instructions: str,
        model: Model,
        limits: Limits,
        retention_days: int | None = None,
        cause: Cause,
    ) -> Agent:
        """Replaces the settings. Raises Conflict `version_conflict`, Failed."""
        if agent.version != version:
            raise version_conflict(agent.version)
        changes: dict[str, object] = {
            "name": name,
            "handle": handle,
            "instructions": instructions,
            "model": item_of(model),
            "limits": item_of(limits),
            "retention_days": retention_days,
            "version": version + 1,
        }
        copies: dict[str, object] = {
            "agent_name": name,
            "agent_handle": handle,
            "retention_days": retention_days,
        }
        stands = (agent.name, agent.handle, agent.retention_days)
        changed = (name, handle, retention_days) != stands
        deed = Deed(
            action="agent.update",
            target=agent.slug,
            agent_id=agent.agent_id,
            version_before=version,
            version_after=version + 1,
        )
        return self._change(
            agent,
            changes,
            copies if changed else {},
            condition="#version = :version",
            values={"version": version},
            cause=cause,
            deed=deed,
        )

    def pause(self, agent: Agent, cause: Cause) -> Agent:
        """Stops the agent for every request that begins after this returns. Raises Failed."""
        return self._set_status(agent, AgentStatus.PAUSED, cause)

    def resume(self, agent: Agent, cause: Cause) -> Agent:
        """Lets it work again, and its held work go on. Raises Failed."""
        return self._set_status(agent, AgentStatus.ACTIVE, cause)

    def _set_status(self, agent: Agent, status: AgentStatus, cause: Cause) -> Agent:
        if agent.status is status:
            return agent
        now = self._clock.now_ms()
        resumes = status is AgentStatus.ACTIVE
        key = keys.agent(agent.agent_id)
        changes: dict[str, object] = {"status": status.value}
        if resumes:
            changes["resumed_at"] = now
        return self._change(
            agent,
            changes,
            {"agent_status": status.value},
            condition="attribute_exists(#pk)",
            values={},
            cause=cause,
            deed=Deed(
                action="agent.resume" if resumes else "agent.pause",
                target=agent.slug,
                agent_id=agent.agent_id,
                version_before=agent.version,
                version_after=agent.version,
            ),
            more=[release_write(key.pk, keys.held(agent.agent_id), now)] if resumes else [],
        )

    def _change(
        self,
        agent: Agent,
        changes: dict[str, object],
        copies: dict[str, object],
        *,
        condition: str,
        values: dict[str, object],
        cause: Cause,
        deed: Deed,
        more: Sequence[Write] = (),
    ) -> Agent:
        """One transaction over the agent and its installs' copies.

        The number that counts changes of the set of installs is part of the condition, so that an
        install which is made or deleted meanwhile is never passed over; then the set is read again.
        """
        key = keys.agent(agent.agent_id)
        for _ in range(TRANSACTION_TRIES):
            roster, installs = self._roster(agent.agent_id) if copies else (None, [])
            held = (
                " AND (attribute_not_exists(#roster) OR #roster = :roster)"
                if roster == 0
                else " AND #roster = :roster"
            )
            writes = [
                assign(
                    key,
                    changes,
                    f"{condition} AND #status IN (:active, :paused)"
                    + (held if roster is not None else ""),
                    **values,
                    **STANDS,
                    **({} if roster is None else {"roster": roster}),
                ),
                *(
                    assign(keys.settings(install_id), dict(copies), "attribute_exists(#pk)")
                    for install_id in installs
                ),
                *more,
            ]
            try:
                self._audit.commit(writes, cause, deed)
            except Cancelled as cancelled:
                stands = self.by_id(agent.agent_id)
                if stands is None:
                    raise not_found() from None
                if "version" in values and stands.version != values["version"]:
                    raise version_conflict(stands.version) from None
                if all(r.why is not Why.CONDITION for r in cancelled.reasons):
                    raise Failed("unavailable", "the rows are contended; try again") from None
                continue
            found = self.by_id(agent.agent_id)
            if found is None:
                raise not_found()
            return found
        raise Failed("unavailable", "the agent's installs are changing; try again")

    def _roster(self, agent_id: str) -> tuple[int, list[str]]:
        """How often the set of installs has changed, and the set. Both are read consistently."""
        row: Item = self._table.get(keys.agent(agent_id)) or {}
        pointers = self._table.query(keys.agent(agent_id).pk, prefix=INSTALL_PREFIX).items
        return row.get("roster", 0), [pointer["sk"][len(INSTALL_PREFIX) :] for pointer in pointers]


STANDS: Final = {"active": AgentStatus.ACTIVE.value, "paused": AgentStatus.PAUSED.value}
"""What `#status IN (:active, :paused)` names: the condition that an agent is there."""


def delete_writes(agent: Agent, now_ms: int) -> list[Write]:
    """The writes that take a paused agent away: it is gone for everybody, and its slug is kept.

    The first holds the condition that it is paused.
    """
    return [
        assign(
            keys.agent(agent.agent_id),
            {"status": AgentStatus.DELETING.value},
            "#status = :paused",
            paused=AgentStatus.PAUSED.value,
        ),
        put(
            keys.slug(agent.slug),
            {
                "agent_id": agent.agent_id,
                "deleted_at": now_ms,
                "kept_until": now_ms + SLUG_KEPT_MS,
                "ttl": (now_ms + SLUG_KEPT_MS) // 1000,
            },
            "#agent_id = :agent_id",
            agent_id=agent.agent_id,
        ),
    ]


def joined(agent: Agent, roster: int | None = None) -> Write:
    """The agent's row, as it counts one install more: a part of the transaction that makes it.

    Its condition holds while the agent is as the new install's copies say, and has room; and, where
    `roster` is given, while the set of its connectors has changed just so often.
    """
    held = {
        None: "",
        0: " AND (attribute_not_exists(#roster) OR #roster = :roster)",
    }.get(roster, " AND #roster = :roster")
    return update(
        keys.agent(agent.agent_id),
        "SET #installs = if_not_exists(#installs, :zero) + :one,"
        " #roster = if_not_exists(#roster, :zero) + :one",
        "#version = :version AND #status = :status"
        f" AND (attribute_not_exists(#installs) OR #installs < :most){held}",
        zero=0,
        one=1,
        version=agent.version,
        status=agent.status.value,
        most=INSTALLS_PER_AGENT_MAX,
        **({} if roster is None else {"roster": roster}),
    )


def left(agent_id: str) -> Write:
    """The agent's row, as it counts one install less: a part of the transaction that deletes it."""
    return update(
        keys.agent(agent_id),
        "SET #installs = #installs - :one, #roster = #roster + :one",
        "attribute_exists(#roster)",
        one=1,
    )
