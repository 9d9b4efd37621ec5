"""Owns what an agent is given to keep: the named values of its vault, and the key of its model.

Refuses to give any of it back: a value comes in, is sealed under a data key of its own that KMS
wraps for exactly this owner, name and version, and is not held here in the clear afterwards. A
model's key is sealed for one kind of model at one origin as well, and counts nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mesh.control.accounts import leaving, taken, taking
from mesh.control.agents import STANDS, not_found
from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.rows import assign, item_of, record_of
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Conflict, Failed
from mesh.kernel.ids import Random
from mesh.kernel.limits import TRANSACTION_TRIES, VAULT_NAME_CHARS_MAX, VAULT_NAMES_MAX
from mesh.records.agent import Agent, Model, ModelKind
from mesh.records.value import Account, SealedValue
from mesh.security.sealing import DataKey, KeyWrapper, SecretContext, seal
from mesh.security.urls import Refusal, parse, target_of
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.table import Cancelled, Table, Why
from mesh.storage.writes import Write, check, delete, put

OWNER_TYPE: Final = "agent"
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{VAULT_NAME_CHARS_MAX - 1}}}\Z")
_ORIGINS: Final = {
    ModelKind.OPENAI: "https://api.openai.com",
    ModelKind.ANTHROPIC: "https://api.anthropic.com",
}


@dataclass(frozen=True, slots=True)
class ModelKey:
    """What may be told of a model's key."""

    version: int
    kept_for: str
    updated_at: int


def is_name(text: str) -> bool:
    """Whether `text` may name a value: a letter or digit, then letters, digits, `.`, `_`, `-`."""
    return _NAME.match(text) is not None


def value_context(
    agent_id: str, name: str, version: int, account: Account | None = None
) -> SecretContext:
    """The context of a value's version. An acting account's is bound to its origin as well."""
    bound = "" if account is None else f" {account.origin}"
    return SecretContext(OWNER_TYPE, agent_id, f"vault/{name}{bound}", version)


def model_key_context(agent_id: str, kept_for: str, version: int) -> SecretContext:
    """The context of a model key's version, by the kind and origin that it was saved for."""
    return SecretContext(OWNER_TYPE, agent_id, f"model-key/{kept_for}", version)


def own_destination(kind: ModelKind) -> str:
    """The kind and its provider's own origin, in the form `openai https://api.openai.com`."""
    return f"{kind.value} {_ORIGINS.get(kind, '')}".rstrip()


def destination(model: Model) -> str:
    """The kind and the origin that the model's key goes to, in the form `openai https://host`.

    A kind without an address of its own has its name alone.
    """
    if model.base_url is None:
        return own_destination(model.kind)
    parts = parse(model.base_url)
    target = None if isinstance(parts, Refusal) else target_of(parts)
    if target is None:  # it was judged before it was saved
        raise Failed("internal", "the model's base_url cannot be read")
    return f"{model.kind.value} {target.scheme}://{target.authority}"


def model_key_present(agent: Agent) -> bool:
    """Whether a key is kept for just this kind at just this origin."""
    return agent.model_key_for is not None and agent.model_key_for == destination(agent.model)


class Vault:
    """Sets, lists and deletes what agents keep."""

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

    # ---- the vault

    def page(
        self, agent_id: str, limit: int, after: str | None
    ) -> tuple[list[SealedValue], str | None]:
        """Up to `limit` values by name, after the name `after`; and the name to go on after.

        Consistent. Raises Failed.
        """
        low = keys.VAULT if after is None else keys.vault_value(agent_id, after).sk
        page = self._table.query(
            keys.agent(agent_id).pk, between=(low, keys.VAULT + keys.AFTER_ALL), limit=limit + 2
        )
        # The row at `low` was told before.
        found = [record_of(item, SealedValue) for item in page.items if item["sk"] != low]
        told = found[:limit]
        more = len(found) > limit or page.last is not None  # large values fill a page before
        return told, told[-1].name if more and told else None

    def set(
        self, agent: Agent, name: str, value: str, cause: Cause, account: Account | None = None
    ) -> SealedValue:
        """Keeps `value` under `name`, in the place of what was there.

        `account` says that it is the credential of that acting account; left out, it is of the
        account that the name was kept for, if of any. Raises Refused `not_found` when the agent is
        gone meanwhile, Conflict (`already_exists` for an account that is kept already,
        `state_conflict` when the vault is full), Failed.
        """
        key = keys.vault_value(agent.agent_id, name)
        for _ in range(TRANSACTION_TRIES):
            old, now = self._row(agent.agent_id, name), self._clock.now_ms()
            if old is None:
                stands = self._agent(agent.agent_id)
                version, of_agent = stands.vault_version + 1, _one_more(stands)
            else:
                version = old.version + 1
                of_agent = check(
                    keys.agent(agent.agent_id), "#status IN (:active, :paused)", **STANDS
                )
            kept_for = account or (None if old is None else old.account)
            context = value_context(agent.agent_id, name, version, kept_for)
            wrapped, blob = self._sealed(context, value)
            row = SealedValue(
                name=name,
                version=version,
                wrapped=wrapped,
                blob=blob,
                created_at=now if old is None else old.created_at,
                updated_at=now,
                account=kept_for,
            )
            deed = Deed(
                action="vault.put",
                target=f"{agent.slug}/vault/{name}",
                agent_id=agent.agent_id,
                version_before=None if old is None else old.version,
                version_after=version,
            )
            condition, values = _as_read(old)
            write = put(key, item_of(row), condition, **values)
            writes = [of_agent, write, *_moving(agent.agent_id, name, old, kept_for)]
            if self._done(writes, cause, deed, kept_for):
                return row
        raise _contended()

    def delete(self, agent: Agent, name: str, cause: Cause) -> None:
        """Forgets the value under `name`. Raises Refused `not_found`, Failed."""
        key = keys.vault_value(agent.agent_id, name)
        for _ in range(TRANSACTION_TRIES):
            old = self._row(agent.agent_id, name)
            if old is None:
                raise not_found()
            stands = self._agent(agent.agent_id)
            deed = Deed(
                action="vault.delete",
                target=f"{agent.slug}/vault/{name}",
                agent_id=agent.agent_id,
                version_before=old.version,
            )
            condition, values = _as_read(old)
            gone = delete(key, condition, **values)
            writes = [_one_less(stands, old), gone, *_moving(agent.agent_id, name, old, None)]
            if self._done(writes, cause, deed):
                return
        raise _contended()

    def _row(self, agent_id: str, name: str) -> SealedValue | None:
        item = self._table.get(keys.vault_value(agent_id, name))
        return None if item is None else record_of(item, SealedValue)

    # ---- the model's key

    def set_model_key(self, agent: Agent, value: str, cause: Cause) -> ModelKey:
        """Keeps the key for the agent's model as it stands: its kind, at its origin.

        Raises Refused `not_found` when the agent is gone meanwhile, Failed.
        """
        for _ in range(TRANSACTION_TRIES):
            stands = self._agent(agent.agent_id)
            now, old = self._clock.now_ms(), stands.model_key_version or 0
            kept_for = destination(stands.model)
            context = model_key_context(agent.agent_id, kept_for, old + 1)
            wrapped, blob = self._sealed(context, value)
            row = SealedValue(
                name=kept_for,
                version=old + 1,
                wrapped=wrapped,
                blob=blob,
                created_at=now,
                updated_at=now,
            )
            writes = [
                _told(stands, version=old + 1, kept_for=kept_for),
                put(keys.model_key(agent.agent_id), item_of(row)),
            ]
            had = stands.model_key_for is not None
            deed = _model_key_deed(stands, "put", old if had else None, old + 1)
            if self._done(writes, cause, deed):
                return ModelKey(old + 1, kept_for, now)
        raise _contended()

    def delete_model_key(self, agent: Agent, cause: Cause) -> None:
        """Forgets the key, whatever it was saved for. Raises Refused `not_found`, Failed."""
        for _ in range(TRANSACTION_TRIES):
            stands = self._agent(agent.agent_id)
            version = stands.model_key_version
            if version is None or stands.model_key_for is None:
                raise not_found()
            gone = SealedValue(
                name="",
                version=version,
                created_at=self._clock.now_ms(),
                updated_at=self._clock.now_ms(),
            )
            writes = [
                _told(stands, version=version, kept_for=None),
                put(keys.model_key(agent.agent_id), item_of(gone)),
            ]
            deed = _model_key_deed(stands, "delete", version, None)
            if self._done(writes, cause, deed):
                return
        raise _contended()

    def _agent(self, agent_id: str) -> Agent:
        item = self._table.get(keys.agent(agent_id))
        agent = None if item is None else record_of(item, Agent)
        if agent is None or not agent.status.stands:
            raise not_found()
        return agent

    # ---- both

    def _sealed(self, context: SecretContext, value: str) -> tuple[bytes, bytes]:
        """A fresh data key, wrapped; and the value, sealed under it. Raises Failed."""
        material, wrapped = self._wrapper.generate(context.encryption_context())
        return wrapped, seal(DataKey(material), context, value.encode(), self._random)

    def _done(
        self, writes: list[Write], cause: Cause, deed: Deed, account: Account | None = None
    ) -> bool:
        """Whether the writes were applied; False when another change came first.

        The first holds the agent's row: nothing is kept for an agent that is gone. The third takes
        `account`, where one is given.
        """
        try:
            self._audit.commit(writes, cause, deed)
        except Cancelled as cancelled:
            if not any(reason.why is Why.CONDITION for reason in cancelled.reasons):
                raise Failed("unavailable", "the rows are contended; try again") from None
            of_agent = cancelled.reasons[0]
            if of_agent.why is Why.CONDITION and of_agent.old is None:
                raise not_found() from None
            if account is not None and cancelled.reasons[_ACCOUNT].why is Why.CONDITION:
                raise taken(account) from None
            return False
        return True


_ACCOUNT: Final = 2
"""Where the write that takes an acting account stands among those that keep its value."""


def _moving(
    agent_id: str, name: str, old: SealedValue | None, account: Account | None
) -> list[Write]:
    """The writes that take `account` for the value, and give free the one that it was kept for."""
    writes = [] if account is None else [taking(agent_id, name, account)]
    if old is not None and old.account is not None and old.account != account:
        writes.append(leaving(agent_id, name, old.account))
    return writes


def _as_read(old: SealedValue | None) -> tuple[str, dict[str, int]]:
    """The condition under which a value's row is still the one that was read, and its values."""
    if old is None:
        return "attribute_not_exists(#pk)", {}
    return "#version = :version AND #updated_at = :at", {
        "version": old.version,
        "at": old.updated_at,
    }


def _one_more(agent: Agent) -> Write:
    """The agent's row, as it counts one name more. Raises Conflict `state_conflict`."""
    if agent.vault_names >= VAULT_NAMES_MAX:
        raise Conflict(
            "state_conflict",
            f"the vault holds {VAULT_NAMES_MAX} values, as many as one can; delete one first, with"
            " mesh vault delete",
        )
    return _counted(agent, names=agent.vault_names + 1, version=agent.vault_version)


def _one_less(agent: Agent, gone: SealedValue) -> Write:
    """The agent's row, as it counts one name less.

    It keeps the version that went: a new name begins after it, so that no name and version ever
    stand for two values, and no row has to stay for a name that is gone.
    """
    version = max(agent.vault_version, gone.version)
    return _counted(agent, names=max(0, agent.vault_names - 1), version=version)


def _counted(agent: Agent, *, names: int, version: int) -> Write:
    return assign(
        keys.agent(agent.agent_id),
        {"vault_names": names, "vault_version": version},
        "#status IN (:active, :paused)"
        " AND (attribute_not_exists(#vault_names) OR #vault_names = :names)"
        " AND (attribute_not_exists(#vault_version) OR #vault_version = :version)",
        **STANDS,
        names=agent.vault_names,
        version=agent.vault_version,
    )


def _told(agent: Agent, *, version: int, kept_for: str | None) -> Write:
    """The agent's row, as it tells of the key: while nothing that the key is bound to changed."""
    changes: Item = {"model_key_version": version, "model_key_for": kept_for}
    before = agent.model_key_version
    had = "attribute_not_exists(#model_key_version)"
    if before is not None:
        had = "#model_key_version = :before"
    kept = "attribute_not_exists" if agent.model_key_for is None else "attribute_exists"
    return assign(
        keys.agent(agent.agent_id),
        changes,
        f"#version = :stands AND {had} AND {kept}(#model_key_for)"
        " AND #status IN (:active, :paused)",
        stands=agent.version,
        **STANDS,
        **({} if before is None else {"before": before}),
    )


def _model_key_deed(agent: Agent, verb: str, before: int | None, after: int | None) -> Deed:
    return Deed(
        action=f"model_key.{verb}",
        target=f"{agent.slug}/model-key",
        agent_id=agent.agent_id,
        version_before=before,
        version_after=after,
    )


def _contended() -> Failed:
    return Failed("unavailable", "the value is just being changed; try again")
