"""Owns the changes of web connections and providers' keys: an owner's settings for one capability
are replaced as a whole, with the key that belongs to them, in one transaction.

Refuses to leave a connection on without its owner's key, to write over settings that changed
meanwhile, and to give a key back: it is sealed for its owner, its provider, that provider's address
and one version, under a data key of its own. Nothing is provisioned anywhere else, so there are no
steps (`docs/decisions/web-connections-need-no-steps.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mesh.control import connections
from mesh.control.agents import STANDS, not_found, version_conflict
from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.connections import INSTANCE_OWNER, Shelf
from mesh.control.rows import item_of, record_of
from mesh.control.web_rules import Wanted, check as check_wanted, config_of, refused
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Conflict, Failed, FieldProblem
from mesh.kernel.ids import Random
from mesh.kernel.limits import TRANSACTION_TRIES
from mesh.records.agent import Agent
from mesh.records.connection import Capability, Connection, Mode, Provider
from mesh.records.value import CredentialSource, SealedValue
from mesh.security.sealing import DataKey, KeyWrapper, seal
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.keys import Key
from mesh.storage.table import Cancelled, Reason, Table, Why
from mesh.storage.writes import Write, check, put


def used_provider(
    capability: Capability, own: Shelf, instance: Shelf
) -> tuple[str, CredentialSource] | None:
    """The provider that an agent with the shelf `own` goes by, and whose key pays, whether or not
    the key is there; None where nothing would be used."""
    theirs = own.connections.get(capability)
    if theirs is not None and theirs.mode is not Mode.INHERIT:
        return _used(theirs, CredentialSource.AGENT)
    return _used(instance.connections.get(capability), CredentialSource.INSTANCE)


def _used(
    connection: Connection | None, source: CredentialSource
) -> tuple[str, CredentialSource] | None:
    if connection is None or connection.mode is not Mode.CUSTOM or connection.provider is None:
        return None
    return connection.provider, source


@dataclass(frozen=True, slots=True)
class _Owner:
    """Whose settings are changed."""

    owner_id: str
    label: str
    """What its audit rows begin with."""
    agent_id: str | None = None


@dataclass(slots=True)
class _Plan:
    """A transaction, as it was worked out from what was read. Its first write is the
    connection's; the second, for an agent, holds that the agent is there."""

    connection: Connection
    writes: list[Write] = field(default_factory=list)


_CONNECTION: Final = 0
_AGENT: Final = 1


class WebAccess:
    """Replaces what owners have set for the web."""

    def __init__(
        self,
        table: Table,
        clock: Clock,
        random: Random,
        *,
        audit: AuditTrail,
        wrapper: KeyWrapper,
        providers: Mapping[str, Provider],
        kept_for: Callable[[Provider], str],
    ) -> None:
        """`kept_for` says what a key of a provider is sealed for: its name and its address."""
        self._table = table
        self._clock = clock
        self._random = random
        self._audit = audit
        self._wrapper = wrapper
        self._providers = providers
        self._kept_for = kept_for

    def shelf(self, agent: Agent | None) -> Shelf:
        """What the agent, or the instance (None), has set. Raises Failed."""
        return connections.read_shelf(self._table, _owner(agent).owner_id)

    def put(self, agent: Agent | None, wanted: Wanted, *, version: int, cause: Cause) -> Connection:
        """Replaces the settings of the agent, or of the instance (None), for one capability.

        `version` is the one that was read, 0 where there is no row yet. Once this returns no call
        is admitted on what was offered before; what is under way is cancelled by whoever made it.
        Raises Invalid, Conflict (`version_conflict`; `state_conflict` for a key that another
        capability uses), Refused `not_found` when the agent is gone meanwhile, Failed.
        """
        check_wanted(wanted, self._providers, inherits=agent is not None)
        owner = _owner(agent)
        deed = Deed(
            action="web_access.put",
            target=f"{owner.label}/web-access/{wanted.capability}",
            agent_id=owner.agent_id,
            version_before=version or None,
            version_after=version + 1,
        )
        for _ in range(TRANSACTION_TRIES):
            plan = self._plan(owner, wanted, version, cause)
            try:
                self._audit.commit(plan.writes, cause, deed)
            except Cancelled as cancelled:
                _judge(cancelled.reasons, owner)
            else:
                return plan.connection
        raise Failed("unavailable", "the web access is just being changed; try again")

    def _plan(self, owner: _Owner, wanted: Wanted, version: int, cause: Cause) -> _Plan:
        rows = self._table.get_many(_rows(owner, wanted))
        key = keys.connection(owner.owner_id, wanted.capability)
        stands = _connection(rows.get(key))
        if _version(stands) != version:
            raise version_conflict(_version(stands))
        connection = Connection(
            capability=wanted.capability,
            mode=wanted.mode,
            provider=wanted.provider,
            config=config_of(wanted),
            requests_per_minute=wanted.requests_per_minute,
            requests_per_run=wanted.requests_per_run,
            version=version + 1,
            updated_at=self._clock.now_ms(),
        )
        plan = _Plan(connection, [_put_as_read(key, stands, item_of(connection))])
        if owner.agent_id is not None:
            alive = check(keys.agent(owner.agent_id), "#status IN (:active, :paused)", **STANDS)
            plan.writes.append(alive)
        if wanted.mode is Mode.INHERIT:
            plan.writes += _below_the_instances(wanted, rows)
        elif wanted.provider is not None:
            plan.writes += self._key_writes(owner, wanted, rows, cause)
        return plan

    def _key_writes(
        self, owner: _Owner, wanted: Wanted, rows: Mapping[Key, Item], cause: Cause
    ) -> list[Write]:
        """What becomes of the owner's key for the provider: put, forgotten, or held to be there."""
        provider = self._providers[str(wanted.provider)]
        key = keys.provider_key(owner.owner_id, provider.name)
        old = None if key not in rows else record_of(rows[key], SealedValue)
        if wanted.clear_key:
            return [
                *_used_by_no_other(owner, wanted.capability, provider, rows),
                *self._forgotten(owner, provider, old, cause),
            ]
        if wanted.mode is not Mode.CUSTOM:
            return []
        if wanted.api_key is None:
            if old is None or not old.present:
                problem = f"is required: no key of {provider.title} is kept here"
                raise refused(FieldProblem("api_key", problem))
            return [check(key, "attribute_exists(#blob)")]
        fresh = self._sealed(owner.owner_id, provider, old, wanted.api_key)
        deed = _key_deed(owner, provider, "put", old, fresh.version)
        return [_replace(key, old, fresh), self._audit.write(cause, deed)]

    def _forgotten(
        self, owner: _Owner, provider: Provider, old: SealedValue | None, cause: Cause
    ) -> list[Write]:
        """The row stays without the key, so that no version ever names two keys."""
        key = keys.provider_key(owner.owner_id, provider.name)
        if old is None or not old.present:
            problem = f"there is none to forget: no key of {provider.title} is kept here"
            raise refused(FieldProblem("clear_key", problem))
        now = self._clock.now_ms()
        gone = SealedValue(name="", version=old.version, created_at=now, updated_at=now)
        deed = _key_deed(owner, provider, "delete", old, None)
        return [_replace(key, old, gone), self._audit.write(cause, deed)]

    def _sealed(
        self, owner_id: str, provider: Provider, old: SealedValue | None, value: str
    ) -> SealedValue:
        """The key's next version, sealed under a fresh data key. Raises Failed."""
        now, kept_for = self._clock.now_ms(), self._kept_for(provider)
        version = 1 if old is None else old.version + 1
        context = connections.provider_key_context(owner_id, kept_for, version)
        material, wrapped = self._wrapper.generate(context.encryption_context())
        return SealedValue(
            name=kept_for,
            version=version,
            wrapped=wrapped,
            blob=seal(DataKey(material), context, value.encode(), self._random),
            created_at=old.created_at if old is not None and old.present else now,
            updated_at=now,
        )


def _owner(agent: Agent | None) -> _Owner:
    if agent is None:
        return _Owner(INSTANCE_OWNER, "instance")
    return _Owner(agent.agent_id, agent.slug, agent.agent_id)


def _rows(owner: _Owner, wanted: Wanted) -> list[Key]:
    """Everything that a change is worked out from."""
    found = [keys.connection(owner.owner_id, capability) for capability in Capability]
    if wanted.provider is not None:
        found.append(keys.provider_key(owner.owner_id, wanted.provider))
    if wanted.mode is Mode.INHERIT:
        found.append(keys.connection(INSTANCE_OWNER, wanted.capability))
    return found


def _below_the_instances(wanted: Wanted, rows: Mapping[Key, Item]) -> list[Write]:
    """An agent that inherits may do with less than the instance lets it, and not with more."""
    asked = wanted.requests_per_run
    if asked is None:
        return []
    key = keys.connection(INSTANCE_OWNER, wanted.capability)
    instance = _connection(rows.get(key))
    most = None if instance is None else instance.requests_per_run
    if most is not None and asked > most:
        problem = f"must not be above the instance's, which is {most}"
        raise refused(FieldProblem("limits.requests_per_run", problem))
    return [_as_read(key, instance)]


def _used_by_no_other(
    owner: _Owner, capability: Capability, provider: Provider, rows: Mapping[Key, Item]
) -> list[Write]:
    """That none of the owner's other capabilities goes by the provider's key."""
    writes = []
    for other in provider.capabilities:
        if other is capability:
            continue
        key = keys.connection(owner.owner_id, other)
        theirs = _connection(rows.get(key))
        if theirs is not None and (theirs.mode, theirs.provider) == (Mode.CUSTOM, provider.name):
            raise Conflict(
                "state_conflict",
                f"{other} goes by this key of {provider.title} as well: disable that first, or"
                " disable this without clear_key",
            )
        writes.append(_as_read(key, theirs))
    return writes


def _judge(reasons: tuple[Reason, ...], owner: _Owner) -> None:
    """What kept the transaction from being applied; nothing where it is to be worked out anew.

    The agent's row tells first: with it goes all that it has.
    """
    if all(reason.why is not Why.CONDITION for reason in reasons):
        raise Failed("unavailable", "the rows are contended; try again")
    if owner.agent_id is not None and reasons[_AGENT].why is Why.CONDITION:
        raise not_found()
    mine = reasons[_CONNECTION]
    if mine.why is Why.CONDITION:
        raise version_conflict(_version(_connection(mine.old)))


def _connection(item: Item | None) -> Connection | None:
    return None if item is None else record_of(item, Connection)


def _version(connection: Connection | None) -> int:
    return 0 if connection is None else connection.version


def _as_read(key: Key, stands: Connection | None) -> Write:
    if stands is None:
        return check(key, "attribute_not_exists(#pk)")
    return check(key, "#version = :version", version=stands.version)


def _put_as_read(key: Key, stands: Connection | None, item: Item) -> Write:
    if stands is None:
        return put(key, item, "attribute_not_exists(#pk)")
    return put(key, item, "#version = :version", version=stands.version)


def _replace(key: Key, old: SealedValue | None, row: SealedValue) -> Write:
    if old is None:
        return put(key, item_of(row), "attribute_not_exists(#pk)")
    there = "attribute_exists(#blob)" if old.present else "attribute_not_exists(#blob)"
    return put(key, item_of(row), f"#version = :version AND {there}", version=old.version)


def _key_deed(
    owner: _Owner, provider: Provider, verb: str, old: SealedValue | None, after: int | None
) -> Deed:
    return Deed(
        action=f"web_key.{verb}",
        target=f"{owner.label}/web-keys/{provider.name}",
        agent_id=owner.agent_id,
        version_before=old.version if old is not None and old.present else None,
        version_after=after,
    )
