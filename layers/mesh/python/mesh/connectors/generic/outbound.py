"""Owns what the generic connector sends: the bytes of a reply and of a ping, and their headers.

Refuses to make them twice: a reply's bytes are made once, stored, and sent as they are at each
attempt. Contract §2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import regex

from mesh import __version__
from mesh.connectors.contract import OutboundAttempt, Reply
from mesh.kernel.clock import rfc3339
from mesh.kernel.limits import REPLY_BODY_BYTES_MAX, REPLY_OBJECT_BYTES_MAX
from mesh.security.signing import sign_outbound

_GRAPHEME: Final = regex.compile(r"\X")


class GenericOutbound:
    """The generic connector's `Outbound`: signed JSON, by the contract."""

    def render(self, reply: Reply) -> bytes:
        """The exact bytes of every attempt: UTF-8 JSON without an escape that JSON does not demand.

        The body is cut between graphemes to at most 64 KiB of UTF-8, and so that the whole object
        has at most 96 KiB; `truncated` says so.
        """
        room = REPLY_OBJECT_BYTES_MAX - len(_reply_json(reply, "", truncated=False))
        body = cut(reply.body, REPLY_BODY_BYTES_MAX, room)
        return _reply_json(reply, body, truncated=body != reply.body)

    def headers(self, attempt: OutboundAttempt, body: bytes) -> dict[str, str]:
        """All headers of one attempt, signed now."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"Mesh/{__version__}",
            **sign_outbound(
                attempt.secrets,
                attempt.install_id,
                attempt.outbound_id,
                str(attempt.now_ms // 1000),
                body,
            ),
            "X-Mesh-Attempt": str(attempt.number),
        }
        if attempt.replay:
            headers["X-Mesh-Replay"] = "1"
        return headers


def ping_bytes(install_id: str, outbound_id: str, created_at: int) -> bytes:
    """The body of the enabling ping."""
    return _json(
        {
            "type": "ping",
            "outbound_id": outbound_id,
            "install_id": install_id,
            "created_at": rfc3339(created_at),
        }
    )


def cut(text: str, bytes_max: int, escaped_max: int) -> str:
    """The longest start of `text` that ends between graphemes, within both bounds.

    `bytes_max` counts UTF-8, `escaped_max` the same text inside a JSON string.
    """
    if len(text.encode()) <= bytes_max and _escaped(text) <= escaped_max:
        return text
    plain = escaped = end = 0
    for match in _GRAPHEME.finditer(text):
        plain += len(match[0].encode())
        escaped += _escaped(match[0])
        if plain > bytes_max or escaped > escaped_max:
            break
        end = match.end()
    return text[:end]


def _escaped(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2


def _reply_json(reply: Reply, body: str, *, truncated: bool) -> bytes:
    return _json(
        {
            "type": "message.reply",
            "outbound_id": reply.outbound_id,
            "install_id": reply.install_id,
            "conversation_key": reply.conversation_key,
            "epoch": reply.epoch,
            "sequence": reply.sequence,
            "in_reply_to": reply.in_reply_to,
            "run_id": reply.run_id,
            "outcome": reply.outcome,
            "agent": {
                "slug": reply.agent_slug,
                "name": reply.agent_name,
                "handle": reply.agent_handle,
            },
            "body": body,
            "body_format": "markdown",
            "truncated": truncated,
            "created_at": rfc3339(reply.created_at),
        }
    )


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
