"""Owns the doctor's look at an agent: whether it works, and can think."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mesh.control.instance_model_keys import KINDS, credential_source
from mesh.operator.checks.finding import error, note
from mesh.operator.shapes.doctor import FindingShown
from mesh.records.agent import Agent, ModelKind
from mesh.records.install import AgentStatus


def check_agent(agent: Agent, instance_kinds: Collection[ModelKind]) -> Iterator[FindingShown]:
    """What is wrong with an agent. `instance_kinds`: the models that the instance has keys for."""
    if agent.status is AgentStatus.PAUSED:
        yield note(
            "agent_paused",
            agent.slug,
            "the agent is paused: callers are told to come again later",
            f"mesh agent resume {agent.slug}",
        )
    model = agent.model
    if model.kind is not ModelKind.OFFLINE and model.name is None:
        yield error(
            "model_unnamed",
            agent.slug,
            f"the agent thinks with {model.kind}, and no model of it is named",
            f"mesh agent update {agent.slug} --model-name NAME",
        )
    # A server of one's own may ask for no key; a provider's own never does without.
    own = model.base_url is not None
    if model.kind in KINDS and not own and credential_source(agent, instance_kinds) is None:
        yield error(
            "model_key_missing",
            agent.slug,
            f"the agent thinks with {model.kind}, and neither it nor the instance has a key for it",
            f"mesh agent update {agent.slug} --model-key-stdin",
        )
