"""Owns the instance's own keys of language models: one a kind, for agents that have none.

Refuses to give one back, and to let one go anywhere but to its provider's own origin: an agent
whose model has a `base_url` brings a key of its own or has none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mesh.control.agents import not_found
from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.instance_settings import OWNER_ID, OWNER_TYPE
from mesh.control.rows import item_of, record_of
from mesh.control.vault import (
    destination,
    model_key_context,
    model_key_present,
    own_destination,
)
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed
from mesh.kernel.ids import Random
from mesh.kernel.limits import TRANSACTION_TRIES
from mesh.records.agent import Agent, ModelKind
from mesh.records.value import CredentialSource, SealedValue
from mesh.security.sealing import DataKey, KeyWrapper, SecretContext, seal
from mesh.storage import keys
from mesh.storage.table import Cancelled, Table
from mesh.storage.writes import Write, put

KINDS: Final = (ModelKind.ANTHROPIC, ModelKind.OPENAI)
"""The kinds that are asked with a key."""


def instance_key_context(kept_for: str, version: int) -> SecretContext:
    """The context of an instance's model key, by the kind and origin that it is for."""
    return SecretContext(OWNER_TYPE, OWNER_ID, f"model-key/{kept_for}", version)


def may_use_instance_key(agent: Agent) -> bool:
    """Whether the agent's model is asked at an origin that the instance's key is for."""
    return agent.model.kind in KINDS and agent.model.base_url is None


def credential_source(agent: Agent, kinds: Collection[ModelKind]) -> CredentialSource | None:
    """Whose key the model is asked with, where the instance has keys of `kinds`; None: of none."""
    if model_key_present(agent):
        return CredentialSource.AGENT
    if may_use_instance_key(agent) and agent.model.kind in kinds:
        return CredentialSource.INSTANCE
    return None


def sealed_model_key(table: Table, agent: Agent) -> tuple[SealedValue, SecretContext] | None:
    """The row of the key that the agent's model is asked with, and the context in which it opens.

    The agent's own comes first; None when there is none. The row is opened by whoever asks the
    model, for the one call. One consistent read. Raises Failed.
    """
    own = model_key_present(agent)
    if not own and not may_use_instance_key(agent):
        return None
    key = keys.model_key(agent.agent_id) if own else keys.instance_model_key(agent.model.kind.value)
    item = table.get(key)
    row = None if item is None else record_of(item, SealedValue)
    if row is None or not row.present:
        return None
    # By where the key goes, never by what its row says: a row that was moved stays shut.
    goes_to = destination(agent.model)
    if own:
        return row, model_key_context(agent.agent_id, goes_to, row.version)
    return row, instance_key_context(goes_to, row.version)


class InstanceModelKeys:
    """Sets, tells of and deletes the instance's model keys."""

    def __init__(
        self,
        table: Table,
        clock: Clock,
        random: Random,
        *,
        audit: AuditTrail,
        wrapper: KeyWrapper,
    ) -> None:
        self._table = table
        self._clock = clock
        self._random = random
        self._audit = audit
        self._wrapper = wrapper

    def kept(self) -> dict[ModelKind, SealedValue]:
        """The keys that there are, by kind, read consistently. Raises Failed."""
        rows = self._table.query(keys.INSTANCE_MODEL_KEYS, limit=len(ModelKind)).items
        found = {ModelKind(item["sk"]): record_of(item, SealedValue) for item in rows}
        return {kind: row for kind, row in found.items() if row.present}

    def set(self, kind: ModelKind, value: str, cause: Cause) -> SealedValue:
        """Keeps the key of `kind`, in the place of the one that is there. Raises Failed."""
        for _ in range(TRANSACTION_TRIES):
            old, now = self._row(kind), self._clock.now_ms()
            version = 1 if old is None else old.version + 1
            context = instance_key_context(own_destination(kind), version)
            material, wrapped = self._wrapper.generate(context.encryption_context())
            row = SealedValue(
                name=own_destination(kind),
                version=version,
                wrapped=wrapped,
                blob=seal(DataKey(material), context, value.encode(), self._random),
                created_at=old.created_at if old is not None and old.present else now,
                updated_at=now,
            )
            before = old.version if old is not None and old.present else None
            if self._done(kind, old, row, cause, _deed(kind, "put", before, version)):
                return row
        raise _contended()

    def delete(self, kind: ModelKind, cause: Cause) -> None:
        """Forgets the key of `kind`. Raises Refused `not_found`, Failed.

        The row stays without it, so that no version ever names two keys.
        """
        for _ in range(TRANSACTION_TRIES):
            old = self._row(kind)
            if old is None or not old.present:
                raise not_found()
            now = self._clock.now_ms()
            gone = SealedValue(name="", version=old.version, created_at=now, updated_at=now)
            if self._done(kind, old, gone, cause, _deed(kind, "delete", old.version, None)):
                return
        raise _contended()

    def _row(self, kind: ModelKind) -> SealedValue | None:
        item = self._table.get(keys.instance_model_key(kind.value))
        return None if item is None else record_of(item, SealedValue)

    def _done(
        self, kind: ModelKind, old: SealedValue | None, row: SealedValue, cause: Cause, deed: Deed
    ) -> bool:
        """Whether the row was written in the place of the one that was read, and of no other."""
        try:
            self._audit.commit([_replace(kind, old, row)], cause, deed)
        except Cancelled:
            return False
        return True


def _replace(kind: ModelKind, old: SealedValue | None, row: SealedValue) -> Write:
    key, item = keys.instance_model_key(kind.value), item_of(row)
    if old is None:
        return put(key, item, "attribute_not_exists(#pk)")
    stands = "attribute_exists(#blob)" if old.present else "attribute_not_exists(#blob)"
    return put(key, item, f"#version = :version AND {stands}", version=old.version)


def _deed(kind: ModelKind, verb: str, before: int | None, after: int | None) -> Deed:
    return Deed(
        action=f"model_key.{verb}",
        target=f"instance/model-keys/{kind.value}",
        version_before=before,
        version_after=after,
    )


def _contended() -> Failed:
    return Failed("unavailable", "the key is just being changed; try again")
