"""Owns the doctor's look at an agent: whether it works, and can think."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mesh.control.instance_model_keys import KINDS, credential_source
from mesh.kernel.limits import DOCTOR_BUDGET_SHARE, TOKENS_PER_DAY_MAX, TURNS_PER_DAY_MAX
from mesh.operator.checks.finding import error, note, warning
from mesh.operator.shapes.doctor import FindingShown
from mesh.records.agent import Agent, ModelKind
from mesh.records.install import AgentStatus
from mesh.records.running import Day
from mesh.security.urls import Refusal


def check_agent(
    agent: Agent, instance_kinds: Collection[ModelKind], today: Day, refusal: Refusal | None
) -> Iterator[FindingShown]:
    """What is wrong with an agent.

    `instance_kinds`: the models that the instance has keys for. `today`: what it used of its
    budgets. `refusal`: of its model's base URL, where the guard would not call it.
    """
    yield from _budgets(agent, today)
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
    if refusal is not None:
        yield error(
            "model_url_refused",
            agent.slug,
            f"its model's base_url is not called: {refusal.detail}",
            f"mesh agent update {agent.slug} --model-base-url URL",
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


def _budgets(agent: Agent, today: Day) -> Iterator[FindingShown]:
    """A day's budget is a hard stop: what comes after it is answered with a failure."""
    for what, used, most in (
        ("turns", today.turns, TURNS_PER_DAY_MAX),
        ("tokens", today.tokens, TOKENS_PER_DAY_MAX),
    ):
        limit: int | None = getattr(agent.limits, f"{what}_per_day")
        if limit is not None and used >= limit * DOCTOR_BUDGET_SHARE:
            yield warning(
                "budget_nearly_used",
                agent.slug,
                f"{used} of {limit} {what} of today are used; at the limit the agent stops until"
                " midnight UTC",
                f"mesh agent update {agent.slug} --{what}-per-day {_higher(limit, most)}",
            )


def _higher(limit: int, most: int) -> int | str:
    """What a budget may be raised to: the highest that there is, and then none at all."""
    return "none" if limit >= most else min(max(1, 2 * limit), most)
