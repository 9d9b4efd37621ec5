"""Owns the foresight of ingress: what a payload would come to if a proven caller posted it now.

Refuses to write, and to foresee what hangs on the moment: rates and caps are not looked at.
"""

from __future__ import annotations

import msgspec

from mesh.connectors.gate import judge_message
from mesh.connectors.generic.payload import digest, normalize
from mesh.connectors.http import HttpRequest
from mesh.control.engagement import OBSERVED_AS_BUSY, Judgement, Verdict
from mesh.kernel.errors import Conflict
from mesh.kernel.limits import CLAIM_KEPT_MS
from mesh.records.conversation import Conversation
from mesh.records.install import Busy, Install
from mesh.records.message import NormalizedMessage
from mesh.records.run import Claim
from mesh.storage import keys
from mesh.storage.table import Table


class Foreseen(msgspec.Struct, frozen=True):
    """What a message would come to: its verdict and reason, and the story of the equal message that
    came before (None when it is new)."""

    message: NormalizedMessage
    verdict: Verdict
    reason: str
    duplicate_of: str | None = None


def foresee(table: Table, install: Install, request: HttpRequest, now_ms: int) -> Foreseen:
    """What ingress would make of a request whose signature verifies, were the install open.

    Raises Invalid and Conflict (`idempotency_conflict`) as ingress answers them, and Failed.
    """
    message = normalize(request)
    judgement = judge_message(table, install, message)
    key = keys.claim(install.install_id, message.conversation_key, message.message_id)
    item = table.get(key)
    claim = None if item is None else msgspec.convert(item, Claim)
    if claim is not None and claim.claimed_at >= now_ms - CLAIM_KEPT_MS:
        if claim.digest != digest(message, claim.digest_version):
            raise Conflict(
                "idempotency_conflict",
                "this message_id was used in this conversation for another message",
            )
        return Foreseen(message, Verdict(claim.verdict), claim.reason, claim.story)
    if judgement.verdict is Verdict.ENGAGE:
        judgement = _unless_busy(table, install, message, judgement)
    return Foreseen(message, judgement.verdict, judgement.reason.value)


def _unless_busy(
    table: Table, install: Install, message: NormalizedMessage, judgement: Judgement
) -> Judgement:
    """The verdict that admission leaves: where too much waits, a message is only observed."""
    here = keys.conversation_id(install.install_id, message.conversation_key)
    item = table.get(keys.order(here))
    if item is None:
        return judgement
    waiting_max = 1 if install.engagement.busy is Busy.REJECT else install.caps.waiting
    busy = msgspec.convert(item, Conversation).pending >= waiting_max
    return OBSERVED_AS_BUSY if busy else judgement
