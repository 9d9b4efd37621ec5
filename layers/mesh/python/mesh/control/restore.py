"""Owns what makes a restored instance safe to go on with: a new epoch, and connectors
that are held.

Refuses to decide what a backup cannot know (what was rotated, deleted or revoked since): every
token but one ends, every connector is closed, and whoever opens one again looks at it first.
"""

from __future__ import annotations

from mesh.control.agents import not_found
from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.enabling import enabling_item
from mesh.control.epochs import current_epoch, next_epoch, raise_write
from mesh.control.holds import hold_write
from mesh.control.installs import Installs
from mesh.control.jobs import Jobs
from mesh.control.operators import Operators, survival
from mesh.control.rows import assign
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed
from mesh.kernel.limits import TRANSACTION_TRIES
from mesh.records.epoch import Epoch
from mesh.records.install import InstallState
from mesh.records.job import Job, JobKind
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.table import Cancelled, ConditionFailed, Table, Why
from mesh.storage.writes import delete

OPEN_STATES = frozenset({InstallState.ENABLED, InstallState.ENABLING, InstallState.ERROR})


class Restoring:
    """Orders the end of a restore, and does its parts."""

    def __init__(self, table: Table, clock: Clock, audit: AuditTrail, installs: Installs) -> None:
        self._table = table
        self._clock = clock
        self._audit = audit
        self._installs = installs

    def order(self, jobs: Jobs, operators: Operators, cause: Cause) -> Job:
        """Begins the next epoch, and orders the job that takes everything over into it.

        From this transaction on no token counts but the caller's own and those minted afterwards.
        Raises Refused `not_found` when the caller was revoked meanwhile, Failed.
        """
        for _ in range(TRANSACTION_TRIES):
            old = current_epoch(self._table)
            caller = operators.by_id(cause.actor)
            if caller is None:
                raise not_found()
            epoch = next_epoch(old, self._clock.now_ms())
            job = jobs.new(JobKind.FINISH_RESTORE, "instance", cause, wanted={"epoch": epoch})
            fresh = Epoch(epoch=epoch, since=job.started_at, job_id=job.job_id)
            writes = [raise_write(old, fresh), survival(caller, fresh), jobs.order(job)]
            try:
                self._audit.commit(
                    writes, cause, Deed(action=JobKind.FINISH_RESTORE.value, target="instance")
                )
            except Cancelled as cancelled:
                if any(reason.why is Why.CONDITION for reason in cancelled.reasons):
                    continue
                raise Failed("unavailable", "the rows are contended; try again") from None
            return job
        raise Failed("unavailable", "the instance is just being restored; try again")

    def hold(self, install_id: str, cause: Cause) -> bool:
        """Closes an install that is open, and drops every secret but its current one.

        What it has to send is held, as by disabling. Whether anything was changed; one that is
        closed already keeps its reason. Raises Failed.
        """
        for _ in range(TRANSACTION_TRIES):
            whole = self._installs.find_whole(install_id)
            if whole is None:
                return False
            install = whole.install
            closes = install.state in OPEN_STATES
            old = [s.version for s in whole.secrets if s.version != install.secret_version]
            if not closes and not old:
                return False
            changes: Item = {"secret_version": install.secret_version}
            if closes:
                changes |= {
                    "state": InstallState.DISABLED.value,
                    "state_reason": _reason(install_id),
                    **enabling_item(install_id, None),
                }
            writes = [
                assign(
                    keys.settings(install_id),
                    changes,
                    "#state = :was AND #secret_version = :current",
                    was=install.state.value,
                    current=install.secret_version,
                ),
                *(delete(keys.secret(install_id, version)) for version in old),
            ]
            if closes:
                writes.append(hold_write(install_id, self._clock.now_ms()))
            deed = Deed(
                action="connector.hold",
                target=install_id,
                agent_id=install.agent_id,
                version_before=install.version,
                version_after=install.version,
            )
            try:
                self._audit.commit(writes, cause, deed)
            except Cancelled as cancelled:
                if any(reason.why is Why.CONDITION for reason in cancelled.reasons):
                    continue
                raise Failed("unavailable", "the rows are contended; try again") from None
            return True
        raise Failed("unavailable", "the connector is just being changed; try again")

    def take_over(self, agent_id: str, epoch: int) -> None:
        """Has the agent's replies bear `epoch` from now on. Raises Failed."""
        write = assign(
            keys.agent(agent_id),
            {"epoch": epoch},
            "attribute_exists(#pk) AND (attribute_not_exists(#epoch) OR #epoch < :epoch)",
            epoch=epoch,
        )
        try:
            self._table.write(write)
        except ConditionFailed:  # it is there already, or the agent is gone
            return


def _reason(install_id: str) -> str:
    return (
        "held by a restore: its secret, URL and lists are those of the backup. Look at them, then:"
        f" mesh connector enable {install_id}"
    )
