"""Runs that think, with a death before and after every call of AWS's, of the model and of a tool:
nothing is lost, doubled or done twice, and what nobody can know is told as that."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from infra.local.aws import Faults
from mesh.control.audit import AuditTrail
from mesh.control.tools import ToolBindings
from mesh.models.contract import ModelAnswer, ModelFailure, ModelFailureKind, ModelRequest
from mesh.outbox.commit import Commit
from mesh.records.agent import Limits
from mesh.records.connection import Capability
from mesh.records.install import Busy
from mesh.storage import keys
from mesh.storage.conversations import read_head
from mesh.tools.gate import Gate
from tests.fakes.model import says
from tests.fakes.web import Connections
from tests.simulation.conftest import CRASH_POINTS, SCHEDULES
from tests.simulation.deaths import SECONDS_MAX, Place, die_at, once_each
from tests.simulation.direct import Site
from tests.simulation.interleaver import Interleaver, Trouble
from tests.simulation.thought import (
    MODEL,
    TOOL,
    Outside,
    Speak,
    calls_then_done,
    check_deeds,
    check_meters,
    check_told,
    check_web,
    connections_of,
    die_outside,
    notes,
    one_by_one,
    steps_of,
    thinking,
)
from tests.simulation.world import CAUSE, World

Meanwhile = Callable[[World], None]
"""What an operator does in the middle of the first outside call."""


@dataclass(frozen=True)
class Scenario:
    """What the model says, what is said to it, and what happens meanwhile."""

    speak: Callable[[], Speak]
    limits: Limits = field(default_factory=Limits)
    talk: tuple[tuple[str, str], ...] = (("A", "a-1"),)
    every: int = 1
    """Of the places where it dies that are alike, every n-th is tried (all: `make simulate`)."""
    world: dict[str, Any] = field(default_factory=dict)
    meanwhile: Meanwhile | None = None
    at: str = TOOL
    """At which outside call, the first of its name."""
    takes_s: float = 0
    """How long each outside call takes."""
    web: Callable[[Connections], None] | None = None
    """What the instance has set for the web."""
    plain: bool = True
    """Whether each message gets its own reply."""


def disable(world: World) -> None:
    audit = AuditTrail(world.table, world.clock, world.ids, 400)
    bindings = ToolBindings(world.table, world.clock, audit)
    if bindings.of(world.agent.agent_id)["send"].enabled:
        bindings.put(world.agent, "send", enabled=False, version=1, cause=CAUSE)


def cancel(world: World) -> None:
    """The head is cancelled, by the writes that the operator's route makes."""
    commit = Commit(world.table, world.clock, world.random, 90)
    conversation_id = keys.conversation_id(world.made.install_id, "A")
    head = read_head(world.table, conversation_id)
    if head.pending is not None and head.conversation is not None:
        writes = commit.cancel_writes(head.conversation, head.pending, "operator")
        world.table.transact(writes, world.ids.token())


def connected(web: Connections, **limits: int) -> None:
    for capability in Capability:
        web.connect("instance", capability, **limits)


def disconnect(world: World) -> None:
    connections_of(world).disable("instance")


def throttled_once() -> Speak:
    asked = 0

    def speak(request: ModelRequest) -> ModelAnswer:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ModelFailure(ModelFailureKind.THROTTLED, "busy", retry_after_s=40)
        return says("done")

    return speak


SCENARIOS = {
    "plain": Scenario(calls_then_done),
    "one tool": Scenario(lambda: calls_then_done(("send", 1))),
    "a note": Scenario(lambda: notes),
    "several at once": Scenario(lambda: calls_then_done(("look", 1), ("fetch", 2), ("look", 3))),
    "effects in order": Scenario(
        lambda: calls_then_done(("send", 1), ("look", 2), ("send", 3)),
        talk=(("A", "a-1"), ("A", "a-2")),
    ),
    "merged": Scenario(
        lambda: calls_then_done(("send", 1)),
        talk=(("A", "a-1"), ("A", "a-2"), ("A", "a-3")),
        world={"busy": Busy.MERGE},
        plain=False,
    ),
    "throttled": Scenario(throttled_once),
    "calls spent": Scenario(
        lambda: calls_then_done(("fetch", 1), ("look", 2), ("fetch", 3)),
        limits=Limits(tool_calls=2),
    ),
    "steps spent": Scenario(lambda: one_by_one("send", 9), limits=Limits(steps=5)),
    "disabled meanwhile": Scenario(
        lambda: calls_then_done(("send", 1), ("send", 2)), meanwhile=disable, at=MODEL
    ),
    "cancelled meanwhile": Scenario(
        lambda: calls_then_done(("send", 1), ("send", 2)), meanwhile=cancel, plain=False
    ),
    "cancelled while it thinks": Scenario(
        lambda: calls_then_done(("send", 1)), meanwhile=cancel, at=MODEL, plain=False
    ),
    "disabled under way": Scenario(
        lambda: calls_then_done(("send", 1), ("send", 2)), meanwhile=disable
    ),
    "longer than the function": Scenario(
        lambda: one_by_one("send", 2), limits=Limits(seconds=3_000), takes_s=56
    ),
    "a search and a page": Scenario(
        lambda: calls_then_done(("web_search", 1), ("web_fetch", 2)), web=connected
    ),
    "web beside other calls": Scenario(
        lambda: calls_then_done(("web_search", 1), ("send", 2), ("web_fetch", 3)), web=connected
    ),
    "a run's allowance of the web": Scenario(
        lambda: one_by_one("web_search", 4),
        web=lambda web: connected(web, per_run=2),
        every=3,
    ),
    "a minute's limit of the web": Scenario(
        lambda: calls_then_done(("web_search", 1), ("web_search", 2), ("web_search", 3)),
        web=lambda web: connected(web, per_minute=4),
        talk=(("A", "a-1"), ("B", "b-1")),
        every=3,
    ),
    "web disabled meanwhile": Scenario(
        lambda: calls_then_done(("web_search", 1), ("web_fetch", 2)),
        web=connected,
        every=2,
        meanwhile=disconnect,
        at=MODEL,
    ),
    "web disabled under way": Scenario(
        lambda: calls_then_done(("web_search", 1), ("web_fetch", 2)),
        web=connected,
        every=2,
        meanwhile=disconnect,
    ),
    "a provider's key is rotated under way": Scenario(
        lambda: one_by_one("web_search", 2),
        web=connected,
        every=2,
        meanwhile=lambda world: connections_of(world).connect(),
    ),
    "budgets and slots": Scenario(
        lambda: calls_then_done(("send", 1)),
        limits=Limits(turns_per_day=8, tokens_per_day=10**6, runs_at_once=1, queue_seconds=86_400),
        talk=(("A", "a-1"), ("B", "b-1")),
        every=3,
    ),
}


def made_of(scenario: Scenario, kind: type[Gate] = Gate, **more: Any) -> tuple[World, Outside]:
    outside = Outside(scenario.speak(), kind=kind, takes_s=scenario.takes_s)
    world = thinking(outside, limits=scenario.limits, **scenario.world | more)
    if scenario.web is not None:
        with world.aws.without_faults():
            scenario.web(connections_of(world))
    return world, outside


def play(scenario: Scenario, world: World, outside: Outside) -> None:
    """The scenario, until all is done."""
    if scenario.meanwhile is not None:
        _interfere(scenario, world, outside)
    for conversation, message_id in scenario.talk:
        world.say(conversation, message_id)
    world.run_until_done(4 * SECONDS_MAX)


def _interfere(scenario: Scenario, world: World, outside: Outside) -> None:
    die, happened = outside.after, False

    def after(what: str) -> None:
        nonlocal happened
        if what == scenario.at and not happened and scenario.meanwhile is not None:
            happened = True
            scenario.meanwhile(world)
        die(what)

    outside.after = after


def check(scenario: Scenario, world: World, outside: Outside) -> None:
    if scenario.plain:
        world.check()
    sequences = [reply["sequence"] for reply in world.receiver.replies]
    assert len({reply["in_reply_to"] for reply in world.receiver.replies}) == len(sequences)
    check_deeds(world, outside)
    check_told(outside, world)
    check_meters(world)
    check_web(world, outside)
    rows = world.rows()
    kept = [row["version"] for (_, sk), row in rows.items() if sk.startswith("NOTE#")]
    assert kept in ([], [1])
    stories = [row for (_, sk), row in rows.items() if sk == "STORY"]
    assert len(stories) == len(scenario.talk)
    assert all(row["status"] in ("completed", "failed", "cancelled") for row in stories)
    if scenario.limits.turns_per_day is not None:
        (day,) = [row for (pk, _), row in world.rows().items() if pk.startswith("DAY#")]
        assert day["turns"] == len(scenario.talk)


def places_of(scenario: Scenario) -> list[Place]:
    """Every place at which the scenario's workers can die, run undisturbed."""
    names: list[str] = []
    outside_names: list[str] = []
    world, outside = made_of(scenario)
    outside.before = outside_names.append

    def note(site: Site) -> None:
        if site.function:
            names.append(site.name)

    world.hooks.on_before = note
    play(scenario, world, outside)
    check(scenario, world, outside)
    outer = [
        (outside_names[:index].count(name) + 1, name) for index, name in enumerate(outside_names)
    ]
    requests = [(index, "request") for index in range(1, world.receiver.requests + 1)]
    found = [*enumerate(names, 1), *outer, *requests]
    return [Place(index, name, when) for index, name in found for when in ("before", "after")]


def run_with_death(scenario: Scenario, place: Place, **more: Any) -> tuple[World, Outside]:
    world, outside = made_of(scenario, **more)
    if place.name in (MODEL, TOOL):
        die_outside(outside, place.name, place.index, place.when)
    else:
        die_at(world, place)
    try:
        play(scenario, world, outside)
        check(scenario, world, outside)
    except BaseException as error:
        error.add_note(f"killed {place}")
        raise
    assert world.kills == 1, f"nobody died {place}"
    return world, outside


@pytest.mark.behaviour("admission:repeat", "engine:effect-boundary")
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_death_anywhere_in_a_run_loses_nothing_and_does_nothing_twice(
    name: str, exhaustive: bool, record_property: Callable[[str, object], None]
) -> None:
    found = places_of(SCENARIOS[name])
    if not exhaustive:
        found = once_each(found, SCENARIOS[name].every)
    uncertain = 0
    if name == "longer than the function":
        assert any("SET #lease_until = :zero" in place.name for place in found), "no hand-over"
    for place in found:
        world, _ = run_with_death(SCENARIOS[name], place)
        uncertain += any(step["status"] == "uncertain" for step in steps_of(world))
    record_property(CRASH_POINTS, len(found))
    assert len(found) > 40
    if name in ("one tool", "a note", "effects in order", "steps spent"):
        assert uncertain >= 2, "a death on either side of the effect leaves it uncertain"


# ---- random schedules


def schedule(seed: int, **more: Any) -> None:
    """One schedule: workers that meet, die, stand still for longer than their lease, and lose
    rings, among the ordinary faults of AWS or without them."""
    dice = random.Random(seed)
    drawn = ("one tool", "several at once", "effects in order", "web beside other calls")
    scenario = SCENARIOS[dice.choice(drawn)]
    faults = Faults(seed) if dice.random() < 0.5 else None
    world, outside = made_of(
        scenario, seed=seed, faults=faults, skew_ms=dice.choice((0, 0, 5_000)), **more
    )
    outside.raced = True
    trouble = Trouble(
        kill=0.02, kills_max=2, stall=0.03, stalls_max=3, stall_s=dice.choice((80, 400)), lose=0.05
    )
    workers = Interleaver(world, seed, trouble)
    outside.before = outside.after = lambda what: workers._at_call(
        Site("turn_worker", "outside", what, {})
    )
    try:
        workers.run({"A": 2, "B": 1})
        check_deeds(world, outside)
        check_told(outside, world)
        check_meters(world)
        check_web(world, outside)
        world.check()
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


@pytest.mark.parametrize("part", range(4))
def test_no_schedule_of_deaths_stalls_and_faults_does_anything_twice(
    part: int, exhaustive: bool, record_property: Callable[[str, object], None]
) -> None:
    many = int(os.environ.get("N") or ("2000" if exhaustive else "120"))
    seeds = range(1 + part, many + 1, 4)
    for seed in seeds:
        schedule(seed)
    record_property(SCHEDULES, len(seeds))
