"""Owns the states of an install: `disabled → enabling → enabled | error`, and the tombstone.

Refuses to leave a state half done: each step is durable and may be run again, a failure lands in
`error` with its reason and the command that goes on, and what is enabled later wakes what was held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mesh.control.agents import left
from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.enabling import Enabling, enabling_item, steps_item
from mesh.control.epochs import check_epoch, still
from mesh.control.holds import hold_write, release_write
from mesh.control.installs import Installs, Whole
from mesh.control.notices import notice_write
from mesh.control.rows import assign, item_of
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Conflict, Failed, MeshError, Refused
from mesh.kernel.ids import Ids
from mesh.kernel.limits import (
    DISABLE_LOOK_EVERY_S,
    DISABLE_WAIT_S,
    ENABLE_WITHIN_S,
    HOLDS_KEPT,
    TRANSACTION_TRIES,
)
from mesh.records.install import Endpoint, EndpointState, Hold, Install, InstallState
from mesh.records.notice import NoticeKind
from mesh.storage import keys
from mesh.storage.table import Cancelled, Table, Why
from mesh.storage.writes import Write, check, delete


@dataclass(frozen=True, slots=True)
class Step:
    """One step of enabling: a stable name, and what it would do, for people."""

    name: str
    description: str


class Provisioner(Protocol):
    """What a connector does to be enabled. Its steps may each be run any number of times."""

    def steps(self, install: Install, *, skip_ping: bool) -> Sequence[Step]:
        """The steps of this install, in order; none when there is nothing to do first."""
        ...

    def run(self, step: Step, whole: Whole) -> None:
        """Runs one.

        Raises Refused or Failed whose message is the reason, without the colon's rest.
        """
        ...


class Enablement:
    """Moves installs between their states."""

    def __init__(
        self, table: Table, clock: Clock, ids: Ids, audit: AuditTrail, installs: Installs
    ) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids
        self._audit = audit
        self._installs = installs

    def enable(
        self, install_id: str, provisioner: Provisioner, *, skip_ping: bool, cause: Cause
    ) -> Whole:
        """Runs the steps that are left, and answers the state that was reached.

        Past 20 s it is still `enabling`, and enabling again goes on where it stopped. Raises
        Refused `not_found`, Conflict `state_conflict` when another change came between, Failed.
        """
        for _ in range(TRANSACTION_TRIES):
            whole = self._installs.whole(install_id)
            if whole.install.state is InstallState.ENABLED:
                return whole
            epoch = check_epoch(self._table, whole.install.agent_id)
            started = self._begin(whole, still(epoch), skip_ping, cause)
            if started is not None:
                return self.go_on(started, provisioner, cause)
        raise Failed("unavailable", "the connector is just being changed; try again")

    def go_on(self, whole: Whole, provisioner: Provisioner, cause: Cause) -> Whole:
        """Runs the steps that are left of an enabling that was begun. Raises as `enable`."""
        install, enabling = whole.install, whole.enabling
        if enabling is None:
            return whole
        check_epoch(self._table, install.agent_id)
        until = self._clock.monotonic() + ENABLE_WITHIN_S
        for step in provisioner.steps(install, skip_ping=enabling.skip_ping):
            if step.name in enabling.done:
                continue
            if self._clock.monotonic() >= until:
                return self._installs.whole(install.install_id)
            try:
                provisioner.run(step, whole)
            except (Refused, Failed) as error:
                return self._fail(whole, enabling, step, error, cause)
            enabling = self._note(install, enabling, step)
        return self._open(whole, enabling, cause)

    def disable(self, install_id: str, cause: Cause) -> Whole:
        """Closes ingress at once, and waits up to 15 s for the deliveries in flight.

        Runs are not waited for; what they and others leave is held. Raises Refused `not_found`,
        Failed.
        """
        for _ in range(TRANSACTION_TRIES):
            whole = self._installs.whole(install_id)
            if whole.install.state is InstallState.DISABLED:
                break
            changes: dict[str, object] = {
                "state": InstallState.DISABLED.value,
                "state_reason": None,
                **enabling_item(install_id, None),
            }
            writes = [
                self._move(whole.install, changes),
                hold_write(install_id, self._clock.now_ms()),
            ]
            if self._done(writes, cause, "connector.disable", whole.install):
                break
        else:
            raise Failed("unavailable", "the connector is just being changed; try again")
        self._wait_for_slots(install_id)
        return self._installs.whole(install_id)

    def remove(self, install: Install, cause: Cause, *more: Write) -> None:
        """Leaves a tombstone: callers who prove themselves are told 403, and what waits dies.

        The delivery URL is forgotten at once; the job that `more` orders in the same transaction
        erases what was said, and forgets the secrets when they have told callers apart for a while.
        Raises Refused `not_found`, Failed.
        """
        for _ in range(TRANSACTION_TRIES):
            whole = self._installs.whole(install.install_id)
            changes: dict[str, object] = {
                "state": InstallState.DELETED.value,
                "state_reason": None,
                "delivery_url": None,
                "delivery_shown": None,
                "delivery_host": None,
                **enabling_item(install.install_id, None),
            }
            writes = [
                self._move(whole.install, changes),
                delete(
                    keys.agent_install(install.agent_id, install.install_id),
                    "attribute_exists(#pk)",
                ),
                left(install.agent_id),
                assign(  # nobody is left to probe
                    keys.delivery(install.install_id),
                    {"due_pk": None, "due_at": None},
                    "attribute_exists(#pk)",
                ),
                self._release(install.install_id),
                release_write(
                    keys.install(install.install_id),
                    keys.degraded(install.install_id),
                    self._clock.now_ms(),
                ),
                *more,
            ]
            if self._done(writes, cause, "connector.delete", whole.install):
                return
        raise Failed("unavailable", "the connector is just being changed; try again")

    def resume_delivery(self, install_id: str, cause: Cause) -> Whole:
        """Takes a degraded or paused endpoint as healthy, and lets what waits go out.

        Raises Refused `not_found`, Failed.
        """
        for _ in range(TRANSACTION_TRIES):
            whole = self._installs.whole(install_id)
            now = self._clock.now_ms()
            changes: dict[str, object] = {
                "state": EndpointState.OK.value,
                "reason": None,
                "failures": 0,
                "failing_since": None,
                "told": None,
                "recovered_at": now,
                "due_pk": None,
                "due_at": None,
            }
            if whole.install.state is InstallState.ENABLED:
                changes |= self._hold_ended(whole.endpoint)
            pk = keys.install(install_id)
            condition, values = _as_read(whole.endpoint)
            writes = [
                assign(keys.delivery(install_id), changes, condition, **values),
                # Whether the hold ends depends on it.
                check(keys.settings(install_id), "#state = :was", was=whole.install.state.value),
                release_write(pk, keys.degraded(install_id), now),
                release_write(pk, keys.held(install_id), now),
            ]
            if self._done(writes, cause, "connector.resume_delivery", whole.install):
                return self._installs.whole(install_id)
        raise Failed("unavailable", "the endpoint is just being changed; try again")

    # ---- the steps of enabling

    def _begin(self, whole: Whole, in_epoch: Write, skip_ping: bool, cause: Cause) -> Whole | None:
        """Takes the enabling over, keeping what is done of an earlier one; None when a race was
        lost.

        `in_epoch` holds it to the epoch in which it may open: a restore that was ordered before
        this may have passed the install by, and one that comes after it closes it again.
        """
        before = whole.enabling
        enabling = Enabling(
            token=self._ids.token(),
            since=self._clock.now_ms(),
            skip_ping=skip_ping,
            done=before.done if before is not None else (),
        )
        changes: dict[str, object] = {
            "state": InstallState.ENABLING.value,
            "state_reason": None,
            **enabling_item(whole.install.install_id, enabling, whole.install.version),
        }
        write = self._move(whole.install, changes, before)
        if not self._done([write, in_epoch], cause, "connector.enable", whole.install):
            return None
        now = self._installs.whole(whole.install.install_id)
        if now.enabling is None or now.enabling.token != enabling.token:
            raise _overtaken()
        return now

    def _note(self, install: Install, enabling: Enabling, step: Step) -> Enabling:
        """Keeps that a step is done, so that it is not run again."""
        further = enabling._replace(done=(*enabling.done, step.name))
        write = assign(
            keys.settings(install.install_id),
            steps_item(further.done, install.version),
            "#enabling_token = :token AND #version = :version",
            token=enabling.token,
            version=install.version,
        )
        try:
            self._table.transact_settled(lambda: [write], TRANSACTION_TRIES)
        except Cancelled:
            raise _overtaken() from None
        except Failed:
            pass  # the step may be run again
        return further

    def _open(self, whole: Whole, enabling: Enabling, cause: Cause) -> Whole:
        """Opens the install, and ends its hold unless its delivery is paused; in one transaction
        with what that was decided by."""
        install = whole.install
        key = keys.delivery(install.install_id)
        for _ in range(TRANSACTION_TRIES):
            stands = self._installs.whole(install.install_id)
            if stands.enabling is None or stands.enabling.token != enabling.token:
                raise _overtaken()
            if stands.install.version != install.version:
                raise _overtaken()
            endpoint = stands.endpoint
            condition, values = _as_read(endpoint)
            held = endpoint.state is EndpointState.PAUSED or endpoint.held_since is None
            writes = [
                self._finish(install, enabling, InstallState.ENABLED, None),
                self._release(install.install_id),
                check(key, condition, **values)
                if held
                else assign(key, self._hold_ended(endpoint), condition, **values),
            ]
            if self._done(writes, cause, "connector.enabled", install):
                return self._installs.whole(install.install_id)
        raise Failed("unavailable", "the connector is just being changed; try again")

    def _fail(
        self, whole: Whole, enabling: Enabling, step: Step, error: MeshError, cause: Cause
    ) -> Whole:
        install_id = whole.install.install_id
        reason = f"{error.message}. Then: mesh connector enable {install_id}"
        writes = [
            self._finish(whole.install, enabling, InstallState.ERROR, reason),
            notice_write(
                self._ids.ulid(),
                NoticeKind.CONNECTOR_ERROR,
                self._clock.now_ms(),
                agent_id=whole.install.agent_id,
                install_id=install_id,
                subject=install_id,
                reason=f"{step.name}_failed",
            ),
        ]
        if not self._done(writes, cause, "connector.enable_failed", whole.install):
            raise _overtaken()
        return self._installs.whole(install_id)

    @staticmethod
    def _finish(
        install: Install, enabling: Enabling, state: InstallState, reason: str | None
    ) -> Write:
        """Ends an enabling; only its own, and only on the settings that its steps were run on."""
        return assign(
            keys.settings(install.install_id),
            {
                "state": state.value,
                "state_reason": reason,
                **enabling_item(install.install_id, None),
            },
            "#enabling_token = :token AND #version = :version",
            token=enabling.token,
            version=install.version,
        )

    # ---- shared

    @staticmethod
    def _move(
        install: Install, changes: dict[str, object], before: Enabling | None = None
    ) -> Write:
        condition, values = "#state = :was", {"was": install.state.value}
        if before is not None:
            condition += " AND #enabling_token = :token"
            values["token"] = before.token
        return assign(keys.settings(install.install_id), changes, condition, **values)

    def _release(self, install_id: str) -> Write:
        return release_write(keys.install(install_id), keys.held(install_id), self._clock.now_ms())

    def _hold_ended(self, endpoint: Endpoint) -> dict[str, object]:
        """The end of a span in which nothing was sent on purpose; no entry ages by it."""
        if endpoint.held_since is None:
            return {}
        holds = (*endpoint.holds, Hold(since=endpoint.held_since, until=self._clock.now_ms()))
        return {"held_since": None, "holds": [item_of(hold) for hold in holds[-HOLDS_KEPT:]]}

    def _wait_for_slots(self, install_id: str) -> None:
        """Waits until no delivery is in flight any more, or the time is up."""
        until = self._clock.monotonic() + DISABLE_WAIT_S
        while self._clock.monotonic() < until:
            if not self._installs.whole(install_id).endpoint.in_flight(self._clock.now_ms()):
                return
            self._clock.sleep(DISABLE_LOOK_EVERY_S)

    def _done(self, writes: Sequence[Write], cause: Cause, action: str, install: Install) -> bool:
        """Whether the writes were applied; False when another change came first."""
        deed = Deed(
            action=action,
            target=install.install_id,
            agent_id=install.agent_id,
            version_before=install.version,
            version_after=install.version,
        )
        try:
            self._audit.commit(writes, cause, deed)
        except Cancelled as cancelled:
            if any(reason.why is Why.CONDITION for reason in cancelled.reasons):
                return False
            raise Failed("unavailable", "the rows are contended; try again") from None
        return True


def _as_read(endpoint: Endpoint) -> tuple[str, dict[str, object]]:
    """The condition that the endpoint is in the state, and in the hold, in which it was read."""
    values: dict[str, object] = {"stood": endpoint.state.value}
    condition = "#state = :stood"
    if endpoint.state is EndpointState.OK:
        condition = f"(attribute_not_exists(#state) OR {condition})"
    if endpoint.held_since is None:
        return f"{condition} AND attribute_not_exists(#held_since)", values
    return f"{condition} AND #held_since = :held_since", values | {
        "held_since": endpoint.held_since
    }


def _overtaken() -> Conflict:
    return Conflict(
        "state_conflict",
        "the connector was changed while it was being enabled; look at it with mesh connector show,"
        " and go on with mesh connector enable",
    )
