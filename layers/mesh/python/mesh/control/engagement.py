"""Owns the engagement gate: whether an agent takes a message up, only observes it, or refuses it.

Refuses to look anything up: it is pure, and names the reason of every verdict, so that it can be
asked again and answered for later. Being in a conversation addresses nobody; being able to reach an
agent authorizes nothing (contract §1.4; seed 000, Why they are two concerns).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, assert_never

import msgspec

from mesh.kernel.ids import is_minted
from mesh.records.install import Engagement, Policy
from mesh.records.message import Topology

_REPLY_PREFIX: Final = "out_"


class Verdict(StrEnum):
    """What the gate says: `engage` starts a turn, `observe` is context, `refuse` keeps no body."""

    ENGAGE = "engage"
    OBSERVE = "observe"
    REFUSE = "refuse"


class Reason(StrEnum):
    """Why the gate said it. Each reason belongs to one verdict."""

    ACTOR_DENIED = "actor_denied"
    ACTOR_NOT_ALLOWED = "actor_not_allowed"
    DIRECT_MESSAGE = "direct_message"
    MENTIONED = "mentioned"
    REPLY_TO_AGENT = "reply_to_agent"
    POLICY_ALWAYS = "policy_always"
    NOT_ADDRESSED = "not_addressed"
    POLICY_NEVER = "policy_never"
    BUSY = "busy"


class Judgement(msgspec.Struct, frozen=True):
    """A verdict and its reason: what is recorded for every message."""

    verdict: Verdict
    reason: Reason


REFUSED_AS_DENIED: Final = Judgement(Verdict.REFUSE, Reason.ACTOR_DENIED)
REFUSED_AS_NOT_ALLOWED: Final = Judgement(Verdict.REFUSE, Reason.ACTOR_NOT_ALLOWED)
OBSERVED_AS_BUSY: Final = Judgement(Verdict.OBSERVE, Reason.BUSY)
"""For admission, which alone knows how much waits; `judge` never says it."""


def judge(
    engagement: Engagement,
    *,
    actor_id: str,
    body: str,
    topology: Topology,
    handle: str,
    parent_is_reply: bool,
) -> Judgement:
    """What becomes of one message to the agent that is called `handle`.

    `parent_is_reply` says that the message answers an outbox entry of this conversation. The lists
    come first, the deny list before the allow list, and an empty allow list allows every actor;
    then the policy.
    """
    if actor_id in engagement.deny_actors:
        return REFUSED_AS_DENIED
    if engagement.allow_actors and actor_id not in engagement.allow_actors:
        return REFUSED_AS_NOT_ALLOWED
    match engagement.policy:
        case Policy.ALWAYS:
            return Judgement(Verdict.ENGAGE, Reason.POLICY_ALWAYS)
        case Policy.NEVER:
            return Judgement(Verdict.OBSERVE, Reason.POLICY_NEVER)
        case Policy.ADDRESSED:
            return _addressed(body, topology, handle, parent_is_reply)
        case other:
            assert_never(other)


def needs_parent(
    engagement: Engagement,
    *,
    actor_id: str,
    body: str,
    topology: Topology,
    handle: str,
    parent_id: str | None,
) -> bool:
    """Whether the verdict depends on looking `parent_id` up: only then is a read worth making."""
    if parent_id is None or not parent_id.startswith(_REPLY_PREFIX) or not is_minted(parent_id):
        return False
    judgement = judge(
        engagement,
        actor_id=actor_id,
        body=body,
        topology=topology,
        handle=handle,
        parent_is_reply=False,
    )
    return judgement.reason is Reason.NOT_ADDRESSED


def mentions(body: str, handle: str) -> bool:
    """Whether `body` has `@handle`, in ASCII letters of either case.

    What stands before and after is judged in ASCII too, so that a mention works in scripts without
    spaces, while `joe@ada.example` and `@ada-2` are none of `ada`.
    """
    # ASCII: without it IGNORECASE takes a long s for an s, and a Kelvin sign for a k.
    mention = rf"(?<![A-Za-z0-9_.@+-])@{re.escape(handle)}(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"
    return re.search(mention, body, re.ASCII | re.IGNORECASE) is not None


def _addressed(body: str, topology: Topology, handle: str, parent_is_reply: bool) -> Judgement:
    if topology is Topology.DIRECT:
        return Judgement(Verdict.ENGAGE, Reason.DIRECT_MESSAGE)
    if mentions(body, handle):
        return Judgement(Verdict.ENGAGE, Reason.MENTIONED)
    if parent_is_reply:
        return Judgement(Verdict.ENGAGE, Reason.REPLY_TO_AGENT)
    return Judgement(Verdict.OBSERVE, Reason.NOT_ADDRESSED)
