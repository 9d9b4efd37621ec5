"""Owns what an agent may use the web by: its own connection, or the instance's, and whose key pays.

Refuses to fall back: an agent with a connection of its own never uses the instance's key, and one
that opted out stays out. Refuses to keep a grant: it is read anew before every call, and each call
is admitted under the very rows that it was read from. Seed 001, "Configuration and identity".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mesh.control.rows import record_of
from mesh.records.connection import Capability, Connection, Grant, Missing, Mode
from mesh.records.value import CredentialSource, SealedValue
from mesh.security.sealing import DataKey, KeyWrapper, SecretContext, open_text
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.keys import Key
from mesh.storage.table import Table
from mesh.storage.writes import Write, check

INSTANCE_OWNER: Final = "instance"


def owner_id_of(source: CredentialSource, agent_id: str) -> str:
    """In whose partition the connection and the key of `source` lie."""
    return INSTANCE_OWNER if source is CredentialSource.INSTANCE else agent_id


def provider_key_context(owner_id: str, kept_for: str, version: int) -> SecretContext:
    """The context of a provider's key, by the provider and origin that it was saved for
    (`kept_for`, in the form `brave https://api.search.brave.com`)."""
    owner_type = "instance" if owner_id == INSTANCE_OWNER else "agent"
    return SecretContext(owner_type, owner_id, f"web-key/{kept_for}", version)


@dataclass(frozen=True, slots=True)
class Shelf:
    """Everything that one owner has set for the web."""

    connections: Mapping[str, Connection]
    """By capability."""
    keys: Mapping[str, SealedValue]
    """By provider; of those that were forgotten none."""


def read_shelf(table: Table, owner_id: str) -> Shelf:
    """What the owner has set, read consistently, in one read. Raises Failed."""
    page = table.query(keys.web(owner_id))
    return shelf_of({Key(item["pk"], item["sk"]): item for item in page.items}, owner_id)


def shelf_of(rows: Mapping[Key, Item], owner_id: str) -> Shelf:
    """The owner's part of rows that were read, whatever else is among them."""
    connections: dict[str, Connection] = {}
    found: dict[str, SealedValue] = {}
    for key, item in rows.items():
        if key.pk != keys.web(owner_id):
            continue
        if key.sk.startswith(keys.CONNECTION):
            connections[key.sk.removeprefix(keys.CONNECTION)] = record_of(item, Connection)
        elif key.sk.startswith(keys.PROVIDER_KEY):
            value = record_of(item, SealedValue)
            if value.present:
                found[key.sk.removeprefix(keys.PROVIDER_KEY)] = value
    return Shelf(connections, found)


def grant_of(capability: Capability, own: Shelf, instance: Shelf) -> Grant | Missing:
    """What an agent with the shelf `own` may use the capability by, or why it may not."""
    theirs = own.connections.get(capability)
    if theirs is not None and theirs.mode is Mode.DISABLED:
        return Missing.OPTED_OUT
    if theirs is not None and theirs.mode is Mode.CUSTOM:
        return _grant(
            theirs, CredentialSource.AGENT, own, own_version=theirs.version, instance_version=0
        )
    shared = instance.connections.get(capability)
    if shared is None:
        return Missing.NOT_CONFIGURED
    if shared.mode is not Mode.CUSTOM:
        return Missing.DISABLED
    return _grant(
        shared,
        CredentialSource.INSTANCE,
        instance,
        own_version=0 if theirs is None else theirs.version,
        instance_version=shared.version,
        per_run=None if theirs is None else theirs.requests_per_run,
    )


def read_grants(
    table: Table, agent_id: str, capabilities: Iterable[Capability]
) -> dict[Capability, Grant | Missing]:
    """What the agent may use each of the capabilities by, read consistently, in two reads. Raises
    Failed."""
    own, instance = read_shelf(table, agent_id), read_shelf(table, INSTANCE_OWNER)
    return {capability: grant_of(capability, own, instance) for capability in capabilities}


def _grant(
    connection: Connection,
    source: CredentialSource,
    shelf: Shelf,
    *,
    own_version: int,
    instance_version: int,
    per_run: int | None = None,
) -> Grant | Missing:
    provider = connection.provider
    if (
        provider is None
        or connection.requests_per_minute is None
        or connection.requests_per_run is None
    ):  # no write leaves it so
        return Missing.NOT_CONFIGURED
    key = shelf.keys.get(provider)
    if key is None:
        return Missing.NO_CREDENTIAL
    most = connection.requests_per_run
    return Grant(
        capability=connection.capability,
        provider=provider,
        config=connection.config,
        source=source,
        own_version=own_version,
        instance_version=instance_version,
        key_version=key.version,
        requests_per_minute=connection.requests_per_minute,
        requests_per_run=most if per_run is None else min(most, per_run),
    )


def rows_of(agent_id: str, grant: Grant) -> tuple[Key, ...]:
    """The rows that the grant is read from: equal rows give an equal grant."""
    owner_id = owner_id_of(grant.source, agent_id)
    own = keys.connection(agent_id, grant.capability)
    key = keys.provider_key(owner_id, grant.provider)
    if grant.source is CredentialSource.AGENT:
        return own, key
    return own, keys.connection(INSTANCE_OWNER, grant.capability), key


def stands(agent_id: str, grant: Grant, rows: Mapping[Key, Item]) -> bool:
    """Whether the grant is what `rows`, read from `rows_of` it, give by now."""
    own, instance = shelf_of(rows, agent_id), shelf_of(rows, INSTANCE_OWNER)
    return grant_of(grant.capability, own, instance) == grant


def conditions(agent_id: str, grant: Grant) -> list[Write]:
    """What must hold for the grant to stand, as writes of a transaction: the same rows that every
    change of settings writes."""
    own = keys.connection(agent_id, grant.capability)
    key = keys.provider_key(owner_id_of(grant.source, agent_id), grant.provider)
    held = [_at(own, grant.own_version)]
    if grant.source is CredentialSource.INSTANCE:
        instance = keys.connection(INSTANCE_OWNER, grant.capability)
        held.append(_at(instance, grant.instance_version))
    return [
        *held,
        check(key, "#version = :version AND attribute_exists(#blob)", version=grant.key_version),
    ]


def _at(key: Key, version: int) -> Write:
    if version == 0:
        return check(key, "attribute_not_exists(#pk)")
    return check(key, "#version = :version", version=version)


def open_provider_key(
    table: Table, wrapper: KeyWrapper, agent_id: str, grant: Grant, kept_for: str
) -> str | None:
    """The grant's key in the clear, for the one request; None where it is another by now, or the
    grant no longer stands: so nothing is sent on a connection that was changed before its key was
    read.

    `kept_for` is the provider and the origin that the request goes to. Raises Failed
    (`secret_unopenable` for a row that was moved, damaged or saved for another origin,
    `unavailable` where the table or KMS cannot be reached).
    """
    owner_id = owner_id_of(grant.source, agent_id)
    rows = table.get_many(rows_of(agent_id, grant))
    if not stands(agent_id, grant, rows):
        return None
    row = record_of(rows[keys.provider_key(owner_id, grant.provider)], SealedValue)
    if row.wrapped is None or row.blob is None:
        return None
    # By where the key goes, never by what its row says: a row that was moved stays shut.
    context = provider_key_context(owner_id, kept_for, row.version)
    material = wrapper.unwrap(row.wrapped, context.encryption_context())
    return open_text(DataKey(material), context, row.blob)
