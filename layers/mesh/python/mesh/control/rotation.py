"""Owns the life of a signing secret after its first: rotation, overlap, and the end of it.

Refuses a third secret at a time, and to keep one that no longer counts. Contract §3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.idempotency import Minting
from mesh.control.installs import Installs, secret_write
from mesh.control.instance_key import InstanceKeys
from mesh.control.rows import assign
from mesh.control.secrets import valid_now
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Conflict, Failed
from mesh.kernel.ids import Random
from mesh.kernel.limits import TRANSACTION_TRIES
from mesh.records.install import Install, InstallState
from mesh.security.signing import mint_secret
from mesh.storage import keys
from mesh.storage.table import Cancelled, Table, Why
from mesh.storage.writes import Write, delete


@dataclass(frozen=True, slots=True)
class Rotated:
    """A fresh secret, to be shown once."""

    secret: str
    version: int
    previous_valid_until: int | None

    def __repr__(self) -> str:
        return f"Rotated(version={self.version})"


class Rotation:
    """Rotates the secrets of installs."""

    def __init__(
        self,
        table: Table,
        clock: Clock,
        random: Random,
        *,
        audit: AuditTrail,
        installs: Installs,
        instance_keys: InstanceKeys,
    ) -> None:
        self._table = table
        self._clock = clock
        self._random = random
        self._audit = audit
        self._installs = installs
        self._keys = instance_keys

    def rotate(
        self, install_id: str, *, overlap_s: int, force: bool, cause: Cause, minting: Minting
    ) -> Rotated:
        """Mints a secret; the previous one goes on for `overlap_s`, or ends with this call when
        that is 0.

        Within an overlap it needs `force`, and the oldest is dropped. Raises Conflict
        (`state_conflict`, `idempotency_conflict`), Minted, Refused `not_found`, Failed.
        """
        secret, key = mint_secret(self._random), self._keys.ensure()
        for _ in range(TRANSACTION_TRIES):
            now = self._clock.now_ms()
            minting.check(self._table, now)
            whole = self._installs.whole(install_id)
            if len(valid_now(whole.secrets, now)) > 1 and not force:
                raise Conflict(
                    "state_conflict",
                    "the previous secret still counts; end its overlap first, or rotate with force",
                )
            old = whole.install.secret_version
            until = now + overlap_s * 1000 if overlap_s else None
            writes = [
                minting.write({"version": old + 1, "previous_valid_until": until}, now),
                self._next_version(install_id, old),
                secret_write(key, install_id, old + 1, secret, now_ms=now, random=self._random),
                *(
                    assign(
                        keys.secret(install_id, row.version),
                        {"valid_until": until},
                        "attribute_exists(#pk)",
                    )
                    if until is not None and row.version == old
                    else delete(keys.secret(install_id, row.version))
                    for row in whole.secrets
                ),
            ]
            if self._done(writes, cause, self._deed("rotate", whole.install, old, old + 1)):
                return Rotated(secret, old + 1, until)
        raise Failed("unavailable", "the secret is just being changed; try again")

    def end_overlap(self, install_id: str, cause: Cause) -> None:
        """Revokes every secret but the current one, for each request whose look-up starts after
        this.

        Raises Refused `not_found`, Failed.
        """
        for _ in range(TRANSACTION_TRIES):
            whole = self._installs.whole(install_id)
            current = whole.install.secret_version
            old = [row.version for row in whole.secrets if row.version != current]
            if not old:
                return
            writes = [
                assign(
                    keys.settings(install_id),
                    {"secret_version": current},
                    "#secret_version = :current AND #state <> :deleted",
                    current=current,
                    deleted=InstallState.DELETED.value,
                ),
                *(delete(keys.secret(install_id, version)) for version in old),
            ]
            if self._done(
                writes, cause, self._deed("end_overlap", whole.install, current, current)
            ):
                return
        raise Failed("unavailable", "the secret is just being changed; try again")

    def _done(self, writes: Sequence[Write], cause: Cause, deed: Deed) -> bool:
        """Whether the writes were applied; False when another change came first."""
        try:
            self._audit.commit(writes, cause, deed)
        except Cancelled as cancelled:
            if any(reason.why is Why.CONDITION for reason in cancelled.reasons):
                return False
            raise Failed("unavailable", "the rows are contended; try again") from None
        return True

    @staticmethod
    def _deed(verb: str, install: Install, before: int, after: int) -> Deed:
        return Deed(
            action=f"connector.{verb}",
            target=install.install_id,
            agent_id=install.agent_id,
            version_before=before,
            version_after=after,
        )

    @staticmethod
    def _next_version(install_id: str, old: int) -> Write:
        return assign(
            keys.settings(install_id),
            {"secret_version": old + 1},
            "#secret_version = :old AND #state <> :deleted",
            old=old,
            deleted=InstallState.DELETED.value,
        )
