"""The test of the test for runs that think: a rule is switched off, and something misses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from infra.local.aws import Broken
from mesh.tools.gate import Gate
from mesh.tools.offers import Offer
from tests.simulation.invariants import BrokenInvariantError
from tests.simulation.test_rules import Loosen, Parameters, loose, sort_key
from tests.simulation.test_thought import (
    SCENARIOS,
    check,
    made_of,
    places_of,
    play,
    run_with_death,
    schedule,
)
from tests.simulation.thought import TOOL
from tests.simulation.world import Wrap

Show = Callable[[dict[str, Any]], None]
"""Plays with the world made otherwise, until something is broken."""

DOUBLED = "what may be done once is not done twice"


def drawn(more: dict[str, Any]) -> None:
    for seed in range(1, 120):
        schedule(seed, **more)


def dying(more: dict[str, Any]) -> None:
    for place in places_of(SCENARIOS["one tool"]):
        if place.name == TOOL or "STEP" in place.name or "of" in place.name:
            run_with_death(SCENARIOS["one tool"], place, **more)


def playing(name: str) -> Show:
    def show(more: dict[str, Any]) -> None:
        world, outside = made_of(SCENARIOS[name], **more)
        play(SCENARIOS[name], world, outside)
        check(SCENARIOS[name], world, outside)

    return show


def _admits(parameters: Parameters) -> bool:
    """Whether a write reserves the place of a call."""
    item = parameters.get("Item", {})
    return item.get("kind") == {"S": "tool"} and item.get("status") == {"S": "running"}


def _bare(parameters: Parameters) -> Parameters:
    dropped = ("ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues")
    return {name: value for name, value in parameters.items() if name not in dropped}


def _any_place(parameters: Parameters) -> Parameters:
    return _bare(parameters) if _admits(parameters) else parameters


def _checks(parameters: Parameters) -> bool:
    return "Item" not in parameters and "UpdateExpression" not in parameters


def _no_fence(parameters: Parameters) -> Parameters:
    """The check of the run's row holds for whoever has it."""
    if _checks(parameters) and parameters.get("ConditionExpression") == "#lease_no = :mine":
        return {
            **_bare(parameters),
            "ConditionExpression": "attribute_exists(#pk) OR attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": "pk"},
        }
    return parameters


def _no_offer(parameters: Parameters) -> Parameters:
    """The checks of what an offer rests on hold."""
    gated = sort_key(parameters).startswith(("TOOL#", "SETTINGS", "CONNECTION#", "KEY#"))
    if gated and _checks(parameters) and "ConditionExpression" in parameters:
        return {
            **_bare(parameters),
            "ConditionExpression": "attribute_exists(#pk) OR attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": "pk"},
        }
    return parameters


def _both(parameters: Parameters) -> Parameters:
    return _no_fence(_any_place(parameters))


def _no_step_fence(parameters: Parameters) -> Parameters:
    return _bare(parameters) if sort_key(parameters).startswith("STEP#") else parameters


def _looks_replayable(item: Parameters) -> Parameters:
    if item["sk"]["S"].startswith("STEP#") and item["status"] == {"S": "running"}:
        return item | {"replay": {"S": "observe"}}
    return item


class _Credulous(Gate):
    """A gate that looks no second time."""

    def stand(self, agent_id: str, offers: Sequence[Offer]) -> bool:
        return True


@dataclass(frozen=True)
class Rule:
    """One rule, how it is switched off, and what is then said to be broken."""

    name: str
    broken: tuple[str, ...]
    show: Show
    wrap: Wrap = lambda clients: clients
    credulous: bool = False


RULES = (
    Rule(
        "a call is admitted under its run's lease into a place that is free",
        (DOUBLED, "a step with a result is not made again", "fenced steps"),
        drawn,
        loose(loosen=_both),
    ),
    Rule(
        "a run that is cancelled has no call admitted",
        ("nothing is done for a run that is over",),
        playing("cancelled while it thinks"),
        loose(loosen=_no_fence),
    ),
    Rule(
        "a call is admitted on an offer that stands",
        ("nothing is done on an offer that is void",),
        playing("disabled meanwhile"),
        loose(loosen=_no_offer),
    ),
    Rule(
        "a result that raced a revocation is withheld",
        ("what raced a revocation is withheld",),
        playing("disabled under way"),
        credulous=True,
    ),
    Rule(
        "an effect without an end is uncertain and not made again",
        (DOUBLED,),
        dying,
        loose(loosen=_any_place, look=_looks_replayable),
    ),
    Rule(
        "a step is written under its lease",
        ("fenced steps", "a step with a result is not made again", DOUBLED),
        drawn,
        loose(loosen=_no_step_fence),
    ),
)


def broken_by(rule: Rule) -> str | None:
    """What is objected to once the rule is gone; None when nothing is."""
    more: dict[str, Any] = {"wrap": rule.wrap}
    if rule.credulous:
        more["kind"] = _Credulous
    try:
        rule.show(more)
    except Broken as broken:
        return broken.__cause__.rule if isinstance(broken.__cause__, BrokenInvariantError) else ""
    except BrokenInvariantError as broken:
        return broken.rule
    return None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name.replace(" ", "_"))
def test_a_rule_of_a_run_that_is_switched_off_is_missed(rule: Rule) -> None:
    assert broken_by(rule) in rule.broken


@pytest.mark.parametrize("part", [_no_fence, _any_place], ids=["fence", "place"])
def test_the_lease_and_the_free_place_stand_behind_each_other(part: Loosen) -> None:
    """Either alone keeps an effect from being made twice: without the fence one of two workers
    finds the place taken, and without the place the one that was overtaken is refused."""
    for seed in range(1, 8):
        try:
            schedule(seed, wrap=loose(loosen=part))
        except Broken as broken:
            raise AssertionError(seed) from broken
