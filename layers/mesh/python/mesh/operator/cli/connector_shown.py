"""Owns how an install is shown: just minted with its secret, or later without.

Refuses to say that a secret can be seen again.
"""

from __future__ import annotations

from typing import Final

from mesh.operator.cli.command import Invocation
from mesh.operator.cli.terminal import when
from mesh.operator.client import Json

ONCE: Final = "This secret is shown once: keep it now. If it is lost: mesh connector rotate"
NOT_AGAIN: Final = "The same call was made before; its secret is not shown again."


def show_minted(invocation: Invocation, made: Json) -> None:
    """An install just made, its secret among it."""
    invocation.terminal.fields(
        [
            ("install", made["install_id"]),
            ("state", made["state"]),
            ("post to", made["ingress_url"]),
            ("secret", made["secret"]),
        ]
    )
    invocation.terminal.say(f"\n{ONCE if made['secret'] else NOT_AGAIN}")


def show_action(invocation: Invocation, install_id: str, answer: Json) -> None:
    """What an action on an install came to."""
    if invocation.as_json:
        invocation.terminal.document(answer)
    elif isinstance(answer, dict) and "state" in answer:
        show_connector(invocation, answer)
    else:
        invocation.terminal.say(f"{install_id}: done")


def show_connector(invocation: Invocation, each: Json) -> None:
    """One install, for people or as a document."""
    if invocation.as_json:
        invocation.terminal.document(each)
        return
    delivery, secret = each.get("delivery") or {}, each.get("secret") or {}
    engagement, caps = each.get("engagement") or {}, each.get("caps") or {}
    secret = secret if isinstance(secret, dict) else {}
    invocation.terminal.fields(
        [
            ("install", each["install_id"]),
            ("kind", each.get("kind")),
            ("name", each.get("name")),
            ("state", each["state"]),
            ("reason", each.get("state_reason")),
            ("post to", each.get("ingress_url")),
            ("delivery url", each.get("delivery_url")),
            ("allowed hosts", each.get("allow_hosts")),
            ("delivery", delivery.get("state")),
            ("  reason", delivery.get("reason")),
            ("  failing since", when(delivery.get("failing_since"))),
            ("  oldest waiting", when(delivery.get("oldest_pending_at"))),
            ("  waiting", delivery.get("pending")),
            ("  dead", delivery.get("dead")),
            ("engages", engagement.get("policy")),
            ("  allowed actors", engagement.get("allow_actors")),
            ("  denied actors", engagement.get("deny_actors")),
            ("  when busy", engagement.get("busy")),
            *((f"cap {name}", value) for name, value in caps.items()),
            ("failure replies", each.get("failure_replies")),
            ("secret version", secret.get("version")),
            ("  created", when(secret.get("created_at"))),
            ("  previous until", when(secret.get("previous_valid_until"))),
            ("  previous used", when(secret.get("previous_last_used_at"))),
            ("version", each.get("version")),
        ]
    )
