"""Owns the questions that the gate is asked of one message: is the install open, and what is the
verdict.

Refuses to write: ingress asks them of what came, and a simulation of what might.
"""

from __future__ import annotations

from typing import Final

from mesh.control.engagement import Judgement, judge, needs_parent
from mesh.kernel.errors import Refused
from mesh.kernel.ids import story_of
from mesh.records.install import AgentStatus, Install, InstallState
from mesh.records.message import NormalizedMessage
from mesh.storage import keys
from mesh.storage.table import Table

AGENT_PAUSED_RETRY_S: Final = 300


def check_open(install: Install) -> None:
    """Raises Refused (`connector_disabled`, `agent_paused`) where nothing is let in."""
    if install.state is not InstallState.ENABLED:
        raise Refused("connector_disabled", "this install is not enabled; ask its operator")
    if install.agent_status is AgentStatus.PAUSED:
        raise Refused(
            "agent_paused", "the agent is paused; send it again later", AGENT_PAUSED_RETRY_S
        )


def judge_message(table: Table, install: Install, message: NormalizedMessage) -> Judgement:
    """The gate's verdict. The parent is looked up only where the verdict hangs on it. Raises
    Failed."""
    depends = needs_parent(
        install.engagement,
        actor_id=message.actor_id,
        body=message.body,
        topology=message.topology,
        handle=install.agent_handle,
        parent_id=message.parent_id,
    )
    return judge(
        install.engagement,
        actor_id=message.actor_id,
        body=message.body,
        topology=message.topology,
        handle=install.agent_handle,
        parent_is_reply=depends and _is_reply_of(table, install, message),
    )


def _is_reply_of(table: Table, install: Install, message: NormalizedMessage) -> bool:
    """Whether the parent is an outbox entry of this very conversation."""
    if message.parent_id is None:
        return False
    story = table.get(keys.story(story_of(message.parent_id)))
    here = keys.conversation_id(install.install_id, message.conversation_key)
    return (
        story is not None
        and story.get("conversation_id") == here
        and story.get("sequence") is not None
    )
