"""Owns what an Idempotency-Key made: the answer of a minting, kept for 24 h in the minting's own
transaction.

Refuses to keep a secret: the answer is stored without what is shown once, so a second answer cannot
show it again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from mesh.kernel.errors import Conflict
from mesh.kernel.limits import IDEMPOTENCY_KEPT_MS
from mesh.storage import keys
from mesh.storage.table import Table
from mesh.storage.writes import Write, put


@dataclass(frozen=True, slots=True)
class Minting:
    """One use of an Idempotency-Key: scoped to the token, the method and the path."""

    operator_id: str
    method: str
    path: str
    key: str
    digest: str
    """SHA-256 of the request's body in canonical form, hex."""

    @property
    def row(self) -> keys.Key:
        """Where it is kept."""
        return keys.minted(self.operator_id, self.method, self.path, self.key)

    def write(self, answer: dict[str, object], now_ms: int) -> Write:
        """The record, for the transaction that mints.

        Its condition fails where the key made something.
        """
        return put(
            self.row,
            {
                "digest": self.digest,
                "answer": json.dumps(answer),
                "created_at": now_ms,
                "ttl": (now_ms + IDEMPOTENCY_KEPT_MS) // 1000,
            },
            "attribute_not_exists(#pk) OR #created_at <= :over",
            over=now_ms - IDEMPOTENCY_KEPT_MS,
        )

    def answer(self, table: Table, now_ms: int) -> dict[str, object] | None:
        """What the key made within the last 24 h; None when it made nothing.

        Raises Conflict `idempotency_conflict` when it was used with another body, and Failed.
        """
        item = table.get(self.row)
        if item is None or item["created_at"] <= now_ms - IDEMPOTENCY_KEPT_MS:
            return None
        if item["digest"] != self.digest:
            raise Conflict(
                "idempotency_conflict",
                "this Idempotency-Key was used with another body; take a new key",
            )
        kept: dict[str, object] = json.loads(item["answer"])
        return kept

    def check(self, table: Table, now_ms: int) -> None:
        """Raises Minted when the key made something within the last 24 h, and as `answer` does."""
        kept = self.answer(table, now_ms)
        if kept is not None:
            raise Minted(kept)


class Minted(Exception):
    """The key has made something already, maybe a moment ago; `answer` is what is kept of it."""

    def __init__(self, answer: dict[str, object]) -> None:
        super().__init__("the key has made something")
        self.answer = answer


def digest_of(body: object) -> str:
    """SHA-256, hex, of a JSON value whose object keys are put in order."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
