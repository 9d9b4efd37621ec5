"""Owns how a connector is shown: its settings, states and ages.

Refuses to show its secret, and more of its delivery URL than scheme, host and a hash.
"""

from __future__ import annotations

from mesh.control.installs import Whole
from mesh.control.secrets import valid_now
from mesh.kernel.clock import rfc3339
from mesh.operator.entries import Counts, counts
from mesh.operator.route import Answer, Call
from mesh.operator.shapes.connectors import (
    CapsBoth,
    ConnectorShown,
    DeliveryShown,
    EngagementBoth,
    SecretShown,
)


def answer(call: Call, whole: Whole) -> Answer:
    install = whole.install
    agent = call.plane.agents.by_id(install.agent_id)
    counted = counts(call.plane, agent, [install.install_id]) if agent is not None else {}
    return Answer(shown(call, whole, counted.get(install.install_id, Counts())))


def shown(call: Call, whole: Whole, counted: Counts) -> ConnectorShown:
    """An install as it is shown, from what was read of it."""
    install, endpoint = whole.install, whole.endpoint
    now = call.plane.deps.clock.now_ms()
    valid = valid_now(whole.secrets, now)
    previous = valid[1] if len(valid) > 1 else None
    return ConnectorShown(
        install_id=install.install_id,
        kind=install.kind,
        name=install.name,
        agent=install.agent_slug,
        ingress_url=call.plane.deps.settings.ingress_url,
        state=install.state,
        state_reason=install.state_reason,
        delivery_url=install.delivery_shown,
        allow_hosts=install.allow_hosts,
        engagement=EngagementBoth(
            policy=install.engagement.policy,
            allow_actors=install.engagement.allow_actors,
            deny_actors=install.engagement.deny_actors,
            busy=install.engagement.busy,
        ),
        caps=CapsBoth(
            conversations=install.caps.conversations,
            actors=install.caps.actors,
            messages_per_minute=install.caps.messages_per_minute,
            waiting=install.caps.waiting,
        ),
        failure_replies=install.failure_replies,
        delivery=DeliveryShown(
            state=endpoint.state,
            reason=endpoint.reason,
            failing_since=time_of(endpoint.failing_since),
            oldest_pending_at=time_of(counted.oldest_pending_at),
            pending=counted.pending,
            dead=counted.dead,
        ),
        secret=SecretShown(
            version=install.secret_version,
            created_at=rfc3339(valid[0].created_at),
            previous_valid_until=time_of(previous.valid_until if previous else None),
            previous_last_used_at=time_of(previous.last_used_at if previous else None),
        ),
        version=install.version,
        created_at=rfc3339(install.created_at),
    )


def time_of(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)
