"""Owns operators: their tokens, roles and reach, and the proof that a request bears one.

Refuses to keep a token: its SHA-256 is kept, and the token is shown once. Every way in which a
token may be wrong ends in the same nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from mesh.control.agents import not_found, version_conflict
from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.epochs import current_epoch, epoch_of
from mesh.control.idempotency import Minting
from mesh.control.rows import assign, item_of, record_of
from mesh.kernel.clock import DAY_MS, Clock
from mesh.kernel.errors import Failed
from mesh.kernel.ids import Ids, Random, encode, is_minted
from mesh.kernel.limits import TOKEN_DAYS_DEFAULT
from mesh.records.epoch import Epoch
from mesh.records.operator import OperatorRole, Principal, Token
from mesh.storage import keys
from mesh.storage.table import Cancelled, Table
from mesh.storage.writes import Write, put

_BEARER: Final = re.compile(
    r"[Bb][Ee][Aa][Rr][Ee][Rr] +(mop_([0-9A-HJKMNP-TV-Z]{12})_[A-Za-z0-9_-]{43})\Z"
)
_NOBODY: Final = bytes(32)
PREFIX_CHARS: Final = 12
SECRET_BYTES: Final = 32
CURSOR_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Proven:
    """A principal, and the key that its cursors are sealed with."""

    principal: Principal
    cursor_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class MintedToken:
    """A fresh token, to be shown once, and what is kept of it."""

    record: Token
    token: str = field(repr=False)


class Operators:
    """Reads and changes operators."""

    def __init__(
        self, table: Table, clock: Clock, ids: Ids, random: Random, audit: AuditTrail
    ) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids
        self._random = random
        self._audit = audit

    def authenticate(self, authorization: str | None) -> Proven | None:
        """Who sends `authorization` (`Bearer mop_…`); None when it proves nobody. Raises Failed.

        Unknown, malformed, expired and revoked tokens are the same; digests are compared in
        constant time.
        """
        match = _BEARER.match(authorization or "")
        if match is None:
            return None
        # One call for both rows, and both as they stand: whatever a restore ended is nobody's now.
        rows = self._table.get_many((keys.token(match[2]), keys.epoch()))
        item = rows.get(keys.token(match[2]))
        digest = hashlib.sha256(match[1].encode()).digest()
        known = hmac.compare_digest(digest, item["digest"] if item else _NOBODY)
        if item is None or not known:
            return None
        token = _as_of(record_of(item, Token), epoch_of(rows.get(keys.epoch())))
        if token.revoked_at is not None or token.expires_at <= self._clock.now_ms():
            return None
        principal = Principal(
            operator_id=token.operator_id,
            name=token.name,
            role=token.role,
            agents=token.agents,
            expires_at=token.expires_at,
        )
        return Proven(principal, item["cursor_key"])

    def by_id(self, operator_id: str) -> Token | None:
        """The operator of that id; None when there is none, or its token was revoked.

        Raises Failed.
        """
        if not operator_id.startswith("opr_") or not is_minted(operator_id):
            return None
        pointer = self._table.get(keys.operator(operator_id))
        if pointer is None:
            return None
        key = keys.token(pointer["prefix"])
        rows = self._table.get_many((key, keys.epoch()))
        if key not in rows:
            return None
        token = _as_of(record_of(rows[key], Token), epoch_of(rows.get(keys.epoch())))
        return token if token.revoked_at is None else None

    def page(self, limit: int, after: str | None) -> tuple[list[Token], str | None]:
        """Up to `limit` operators, oldest first, revoked ones among them; and where to go on."""
        page = self._table.query("OPERATORS", between=(after or "0", "~"), limit=limit + 2)
        pointers = [item for item in page.items if item["sk"] != after]
        wanted = [keys.token(item["prefix"]) for item in pointers[:limit]]
        found = self._table.get_many((*wanted, keys.epoch()))
        epoch = epoch_of(found.get(keys.epoch()))
        tokens = [_as_of(record_of(found[key], Token), epoch) for key in wanted if key in found]
        return tokens, pointers[limit - 1]["sk"] if len(pointers) > limit else None

    def create(
        self,
        *,
        name: str,
        role: OperatorRole,
        agents: Sequence[str] | None,
        days: int = TOKEN_DAYS_DEFAULT,
        cause: Cause,
        minting: Minting | None,
    ) -> MintedToken:
        """Mints a token.

        `agents` are ids, None for all. Raises Conflict `idempotency_conflict`, Minted, Failed.
        """
        now = self._clock.now_ms()
        if minting is not None:
            minting.check(self._table, now)
        prefix = encode(int.from_bytes(self._random.bytes(8), "big"), PREFIX_CHARS)
        secret = urlsafe_b64encode(self._random.bytes(SECRET_BYTES)).decode().rstrip("=")
        token = f"mop_{prefix}_{secret}"
        record = Token(
            operator_id=self._ids.mint("opr"),
            name=name,
            role=role,
            agents=None if agents is None else tuple(agents),
            prefix=prefix,
            digest=hashlib.sha256(token.encode()).digest(),
            created_at=now,
            expires_at=now + days * DAY_MS,
            epoch=current_epoch(self._table).epoch,
        )
        writes = [
            put(
                keys.token(prefix),
                {**item_of(record), "cursor_key": self._random.bytes(CURSOR_KEY_BYTES)},
                "attribute_not_exists(#pk)",
            ),
            put(keys.operator(record.operator_id), {"prefix": prefix}, "attribute_not_exists(#pk)"),
        ]
        if minting is not None:
            writes.append(minting.write({"operator_id": record.operator_id}, now))
        deed = Deed(action="operator.create", target=record.operator_id, version_after=1)
        try:
            self._audit.commit(writes, cause, deed)
        except Cancelled:
            if minting is not None:
                minting.check(self._table, now)
            raise Failed("unavailable", "the token could not be minted; try again") from None
        return MintedToken(record, token)

    def update(
        self,
        operator: Token,
        *,
        version: int,
        name: str,
        role: OperatorRole,
        agents: Sequence[str] | None,
        cause: Cause,
    ) -> Token:
        """Replaces name, role and reach.

        Raises Conflict `version_conflict`, Refused `not_found`, Failed.
        """
        if operator.version != version:
            raise version_conflict(operator.version)
        changes: dict[str, object] = {
            "name": name,
            "role": role.value,
            "agents": None if agents is None else list(agents),
            "version": version + 1,
        }
        return self._change(operator, changes, "operator.update", version + 1, cause)

    def revoke(self, operator: Token, cause: Cause) -> None:
        """Ends the token for every request that begins after this.

        Raises Refused `not_found`, Failed.
        """
        changes: dict[str, object] = {"revoked_at": self._clock.now_ms()}
        self._change(operator, changes, "operator.revoke", operator.version, cause)

    def _change(
        self, operator: Token, changes: dict[str, object], action: str, after: int, cause: Cause
    ) -> Token:
        write = assign(
            keys.token(operator.prefix),
            changes,
            "#version = :read AND attribute_not_exists(#revoked_at)",
            read=operator.version,
        )
        deed = Deed(
            action=action,
            target=operator.operator_id,
            version_before=operator.version,
            version_after=after,
        )
        try:
            self._audit.commit([write], cause, deed)
        except Cancelled:
            stands = self.by_id(operator.operator_id)
            if stands is None:
                raise not_found() from None
            raise version_conflict(stands.version) from None
        return record_of(self._table.get(keys.token(operator.prefix)) or {}, Token)


def survival(token: Token, epoch: Epoch) -> Write:
    """Takes one token over into an epoch; goes into the transaction that begins it.

    Its condition holds while the token is not revoked.
    """
    return assign(
        keys.token(token.prefix),
        {"epoch": epoch.epoch},
        "attribute_exists(#pk) AND attribute_not_exists(#revoked_at)",
    )


def _as_of(token: Token, epoch: Epoch) -> Token:
    """The token as it counts in `epoch`: the beginning of an epoch revokes those of before."""
    if token.revoked_at is not None or token.epoch >= epoch.epoch:
        return token
    return msgspec.structs.replace(token, revoked_at=epoch.since)


def bootstrap(operators: Operators, request_id: str, name: str = "bootstrap") -> MintedToken:
    """Mints an admin token: the first one, or the way back when the last was lost.

    Whoever may call this has proven himself elsewhere (IAM, or this machine). Raises Failed.
    """
    return operators.create(
        name=name,
        role=OperatorRole.ADMIN,
        agents=None,
        cause=Cause("bootstrap", request_id),
        minting=None,
    )
