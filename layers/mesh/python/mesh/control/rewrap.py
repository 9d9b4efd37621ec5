"""Owns the rotation of the master key: every wrapped data key is wrapped anew by the newest one.

Refuses to open anything: KMS re-encrypts inside itself. Each key is replaced under the condition
that it is still the one that was read, so that a write which comes between stands; and no version
of any setting is raised. It may stop at any row and goes on there.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mesh.control.agents import AGENTS
from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.connections import INSTANCE_OWNER, provider_key_context
from mesh.control.instance_key import CONTEXT
from mesh.control.instance_model_keys import KINDS, instance_key_context
from mesh.control.rows import assign, item_of, record_of
from mesh.control.vault import model_key_context, own_destination, value_context
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed
from mesh.kernel.ids import Ids
from mesh.kernel.limits import REWRAP_ROWS_PER_STEP, TRANSACTION_TRIES
from mesh.records.agent import ModelKind
from mesh.records.rewrap import Rewrap, RewrapStatus
from mesh.records.value import SealedValue
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.keys import Key
from mesh.storage.kms import KmsWrapper
from mesh.storage.table import Cancelled, ConditionFailed, Table, Why
from mesh.storage.writes import Write, put, update

_RUNNING: Final = "#token = :token AND #status = :running"


class Rewrapping:
    """Starts a rewrap, goes on with it, and tells how far it is."""

    def __init__(
        self, table: Table, clock: Clock, ids: Ids, *, audit: AuditTrail, wrapper: KmsWrapper
    ) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids
        self._audit = audit
        self._wrapper = wrapper

    def state(self) -> Rewrap | None:
        """How far it is; None when none was ever begun. Raises Failed."""
        item = self._table.get(keys.rewrap())
        return None if item is None else record_of(item, Rewrap)

    def go_on(self, cause: Cause, run_ms: int) -> Rewrap:
        """Begins, or goes on with what runs, for about `run_ms`. Raises Failed; then it goes on
        with the next call."""
        stop_at = self._clock.now_ms() + run_ms
        state = self._begun(cause)
        while state.status is RewrapStatus.RUNNING:
            state = self._kept(state, self._step(state), cause)
            if self._clock.now_ms() >= stop_at:
                break
        return state

    def _begun(self, cause: Cause) -> Rewrap:
        """What runs, as this request goes on with it, or a fresh one; with its audit row."""
        for _ in range(TRANSACTION_TRIES):
            old, now = self.state(), self._clock.now_ms()
            if old is not None and old.status is RewrapStatus.RUNNING:
                fresh, write = old, self._still(old, {"asked_at": now})
            else:
                fresh = Rewrap(
                    token=self._ids.token(),
                    status=RewrapStatus.RUNNING,
                    total=1 + self._count_agents(),
                    started_at=now,
                )
                condition = "attribute_not_exists(#pk)" if old is None else "#token = :token"
                values = {} if old is None else {"token": old.token}
                write = put(keys.rewrap(), item_of(fresh), condition, **values)
            try:
                self._audit.commit([write], cause, _deed())
            except Cancelled as cancelled:
                if any(reason.why is Why.CONDITION for reason in cancelled.reasons):
                    continue
                raise Failed("unavailable", "the rows are contended; try again") from None
            return fresh
        raise _contended()

    def _kept(self, before: Rewrap, after: Rewrap, cause: Cause) -> Rewrap:
        """Writes how far it is; what stands instead, when another call ended it meanwhile."""
        write = self._still(
            before, {k: v for k, v in msgspec.to_builtins(after).items() if k != "token"}
        )
        try:
            if after.status is RewrapStatus.RUNNING:
                self._table.write(write)
            else:
                self._audit.commit([write], cause, _deed())
        except (ConditionFailed, Cancelled):
            stands = self.state()
            if stands is None:
                raise _contended() from None
            return stands
        return after

    @staticmethod
    def _still(state: Rewrap, changes: Item) -> Write:
        running = RewrapStatus.RUNNING.value
        return assign(keys.rewrap(), changes, _RUNNING, token=state.token, running=running)

    def _step(self, state: Rewrap) -> Rewrap:
        """The next few keys of one owner, and with its last ones those of its web providers: there
        are never more of these than providers."""
        if state.slug is None:
            own = [keys.instance_key(), *(keys.instance_model_key(kind.value) for kind in KINDS)]
            opened = [self._row(key, self._table.get(key)) for key in own]
            opened += self._provider_keys(INSTANCE_OWNER)
            return _counted(state, opened, slug="", done=state.done + 1)
        pointer = self._pointer(state)
        if pointer is None:
            status = RewrapStatus.FAILED if state.unopenable else RewrapStatus.DONE
            return msgspec.structs.replace(state, status=status, ended_at=self._clock.now_ms())
        pk = keys.agent(pointer["agent_id"]).pk
        row = state.row if pointer["sk"] == state.slug else None
        low = keys.MODEL_KEY if row is None else row
        page = self._table.query(
            pk, between=(low, keys.VAULT + keys.AFTER_ALL), limit=REWRAP_ROWS_PER_STEP
        )
        opened_all = [
            self._row(Key(pk, item["sk"]), item) for item in page.items if item["sk"] != row
        ]
        if page.last is None:
            opened_all += self._provider_keys(pointer["agent_id"])
            return _counted(state, opened_all, slug=pointer["sk"], done=state.done + 1)
        return _counted(
            state, opened_all, slug=pointer["sk"], row=page.items[-1]["sk"], done=state.done
        )

    def _provider_keys(self, owner_id: str) -> list[bool | None]:
        pk = keys.web(owner_id)
        rows = self._table.query(pk, prefix=keys.PROVIDER_KEY).items
        return [self._row(Key(pk, item["sk"]), item) for item in rows]

    def _pointer(self, state: Rewrap) -> Item | None:
        """The slug's row of the agent that is under way, or of the next; None after the last."""
        assert state.slug is not None, "agents come after the instance key"
        low = state.slug or "0"
        items = self._table.query(AGENTS, between=(low, keys.AFTER_ALL), limit=2).items
        under_way = state.row is not None
        left = [item for item in items if under_way or item["sk"] != state.slug]
        return left[0] if left else None

    def _row(self, key: Key, item: Item | None) -> bool | None:
        """Whether the row's key was wrapped anew; None when it has none. Raises Failed."""
        for _ in range(TRANSACTION_TRIES):
            if item is None or "wrapped" not in item:
                return None
            read = item["wrapped"]
            try:
                fresh = self._wrapper.rewrap(read, _context(key, item))
            except Failed as failed:
                if failed.code == "secret_unopenable":
                    return False
                raise
            write = update(key, "SET #wrapped = :fresh", "#wrapped = :read", fresh=fresh, read=read)
            try:
                self._table.write(write)
            except ConditionFailed as lost:  # what came between is looked at as well
                item = lost.old
            else:
                return True
        raise _contended()

    def _count_agents(self) -> int:
        count, after = 0, None
        while True:
            page = self._table.query(AGENTS, after=after)
            count, after = count + len(page.items), page.last
            if after is None:
                return count


def _context(key: Key, item: Item) -> dict[str, str]:
    """What the row's key is wrapped under, by where the row lies."""
    if key == keys.instance_key():
        return dict(CONTEXT)
    version = item["version"]
    if key.pk == keys.INSTANCE_MODEL_KEYS:
        kept_for = own_destination(ModelKind(key.sk))
        return instance_key_context(kept_for, version).encryption_context()
    if key.pk.startswith(keys.web("")):
        provider = key.sk.removeprefix(keys.PROVIDER_KEY)
        kept_for = f"{provider} {item['name'].partition(' ')[2]}"
        owner_id = keys.web_owner_of(key)
        return provider_key_context(owner_id, kept_for, version).encryption_context()
    agent_id = keys.agent_of(key)
    if key.sk == keys.MODEL_KEY:
        return model_key_context(agent_id, item["name"], version).encryption_context()
    name = key.sk.removeprefix(keys.VAULT)
    account = record_of(item, SealedValue).account
    return value_context(agent_id, name, version, account).encryption_context()


def _counted(
    state: Rewrap, opened: list[bool | None], *, slug: str, done: int, row: str | None = None
) -> Rewrap:
    return msgspec.structs.replace(
        state,
        slug=slug,
        row=row,
        done=done,
        rewrapped=state.rewrapped + opened.count(True),
        unopenable=state.unopenable + opened.count(False),
    )


def _deed() -> Deed:
    return Deed(action="instance.rewrap", target="instance")


def _contended() -> Failed:
    return Failed("unavailable", "the keys are just being changed; try again")
