"""Owns what a notice looks like outside: one flat JSON object, the same on the bus and in a post.

Refuses to tell more than the row holds: ids, codes and figures; no text of anybody's, no address.
"""

from __future__ import annotations

import json
from typing import Final

from mesh import __version__
from mesh.kernel.clock import rfc3339
from mesh.records.notice import Notice
from mesh.security.signing import standard_webhooks_signature

SUBJECTS: Final = {"out": "outbound_id", "run": "run_id"}
"""The name of a subject's id, by its prefix; installs and agents have names of their own."""


def detail_of(notice: Notice, environment: str) -> str:
    """The notice as JSON. Every key is always there; what does not apply is null."""
    subject = SUBJECTS.get(notice.subject[:3])
    return json.dumps(
        {
            "type": notice.kind.value,
            "notice_id": notice.notice_id,
            "created_at": rfc3339(notice.at),
            "environment": environment,
            "agent_id": notice.agent_id,
            "install_id": notice.install_id,
            **{name: notice.subject if name == subject else None for name in SUBJECTS.values()},
            "reason": notice.reason,
            "figures": notice.figures,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def told(notice: Notice) -> dict[str, str | None]:
    """What a log says of a notice."""
    return {
        "chore_id": notice.notice_id,
        "action": notice.kind.value,
        "agent_id": notice.agent_id,
        "install_id": notice.install_id,
    }


def headers_of(notice: Notice, secret: str, body: bytes, now_ms: int) -> dict[str, str]:
    """All headers of one post: a message of Standard Webhooks 1.0.0, signed now.

    Its id is the notice's own, so that a receiver can tell a repeated post.
    """
    timestamp = str(now_ms // 1000)
    return {
        "Content-Type": "application/json",
        "User-Agent": f"Mesh/{__version__}",
        "webhook-id": notice.notice_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": standard_webhooks_signature(secret, notice.notice_id, timestamp, body),
    }
