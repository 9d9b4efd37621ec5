"""The test of the test: each rule switched off once, and the simulation says which one is gone.

A rule is switched off by giving functions clients that leave a part of it out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from infra.local.aws import Broken
from mesh.kernel.clock import HOUR_MS
from mesh.records.agent import Limits
from mesh.storage.clients import Clients
from tests.fakes.egress import Outcome, answer
from tests.simulation.deaths import REQUEST, calm, die_at, fails_once, main_job, places
from tests.simulation.interleaver import Interleaver, Trouble
from tests.simulation.invariants import BrokenInvariantError
from tests.simulation.receiver import always_ok
from tests.simulation.test_interleavings import speak_at
from tests.simulation.test_outages import deadly
from tests.simulation.test_stalls import stall_at
from tests.simulation.world import World, Wrap

Parameters = dict[str, Any]
Loosen = Callable[[Parameters], Parameters | None]
"""What becomes of one write's parameters; None leaves it out."""
Look = Callable[[Parameters], Parameters]
"""What a function sees of an item (in wire form)."""

_NAME = re.compile(r"#[a-z_0-9]+")
_VALUE = re.compile(r":[a-z_0-9]+")


def sort_key(parameters: Parameters) -> str:
    key: Parameters = parameters.get("Key") or parameters["Item"]
    return str(key["sk"]["S"])


@dataclass(frozen=True)
class LooseDynamo:
    """A client of a table that lets through what it should hold."""

    client: Any
    loosen: Loosen = lambda parameters: parameters
    look: Look = lambda item: item
    atomic: bool = True
    skips_heads: bool = False
    opens: bool = True

    def __getattr__(self, method: str) -> Any:
        return getattr(self.client, method)

    def put_item(self, **parameters: Any) -> Any:
        kept = self.loosen(parameters)
        return {} if kept is None else self.client.put_item(**kept)

    def delete_item(self, **parameters: Any) -> Any:
        kept = self.loosen(parameters)
        return {} if kept is None else self.client.delete_item(**kept)

    def update_item(self, **parameters: Any) -> Any:
        kept = self.loosen(parameters)
        if kept is None:
            return {}
        if not self.opens and parameters["UpdateExpression"].startswith("SET #open"):
            key = {name: parameters[name] for name in ("TableName", "Key")}
            row = self.client.get_item(**key, ConsistentRead=True)["Item"]
            values = parameters["ExpressionAttributeValues"]
            names = {"open": ":open", "attempts": ":number", "token": ":token"}
            return {"Attributes": row | {name: values[value] for name, value in names.items()}}
        answered = self.client.update_item(**kept)
        if "Attributes" in answered:
            answered["Attributes"] = self.look(answered["Attributes"])
        return answered

    def transact_write_items(self, **parameters: Any) -> Any:
        kept = []
        for operation in parameters["TransactItems"]:
            ((kind, part),) = operation.items()
            loose = self.loosen(part)
            if loose is not None:
                kept.append({kind: loose})
        if self.atomic:
            return self.client.transact_write_items(**{**parameters, "TransactItems": kept})
        for operation in kept:
            ((kind, part),) = operation.items()
            getattr(self.client, f"{kind.lower()}_item")(**part)
        return {}

    def query(self, **parameters: Any) -> Any:
        low = parameters["ExpressionAttributeValues"].get(":lo", {"S": ""})["S"]
        if self.skips_heads and low.startswith("ENTRY#"):
            items = self.client.query(**{**parameters, "Limit": 10})["Items"]
            waiting = [item for item in items if item["state"]["S"] == "pending"]
            return {"Items": waiting[-1:]}
        answered = self.client.query(**parameters)
        return {**answered, "Items": [self.look(item) for item in answered["Items"]]}


@dataclass(frozen=True)
class LooseSqs:
    """A client of the queues that changes how doorbells are sent."""

    client: Any
    change: Callable[[Parameters], Parameters]

    def __getattr__(self, method: str) -> Any:
        return getattr(self.client, method)

    def send_message(self, **parameters: Any) -> Any:
        return self.client.send_message(**self.change(parameters))


@dataclass(frozen=True)
class OtherClients:
    """Implements `Clients`."""

    usual: Clients
    dynamodb: Any
    sqs: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.usual, name)


def loose(**parts: Any) -> Wrap:
    """Clients with a table of which `parts` are switched off."""
    return lambda usual: OtherClients(usual, LooseDynamo(usual.dynamodb, **parts), usual.sqs)


def ringing(change: Callable[[Parameters], Parameters]) -> Wrap:
    """Clients whose doorbells are sent otherwise."""
    return lambda usual: OtherClients(usual, usual.dynamodb, LooseSqs(usual.sqs, change))


def without(clause: str, kind: str = "") -> Loosen:
    """Leaves `clause` out of conditions and updates of rows whose sort key begins with `kind`."""

    def loosen(parameters: Parameters) -> Parameters:
        if not sort_key(parameters).startswith(kind):
            return parameters
        out = dict(parameters)
        for name in ("ConditionExpression", "UpdateExpression"):
            if name in out:
                text = re.sub(re.escape(clause) + r"(?![a-z_0-9])", "", out[name]).strip()
                text = re.sub(r"AND\s+AND", "AND", text)
                out[name] = text.removeprefix("AND ").removesuffix(" AND")
                if not out[name]:
                    del out[name]
        text = out.get("ConditionExpression", "") + " " + out.get("UpdateExpression", "")
        for field_name, pattern in (
            ("ExpressionAttributeNames", _NAME),
            ("ExpressionAttributeValues", _VALUE),
        ):
            used = set(pattern.findall(text))
            left = {name: v for name, v in out.pop(field_name, {}).items() if name in used}
            if left:
                out[field_name] = left
        return out

    return loosen


def all_of(*loosened: Loosen) -> Loosen:
    def loosen(parameters: Parameters) -> Parameters | None:
        for each in loosened:
            parameters = each(parameters) or parameters
        return parameters

    return loosen


# ---- what brings it to light


Scenario = Callable[[Callable[[], World]], Iterator[World]]


def plainly(make: Callable[[], World]) -> Iterator[World]:
    world = make()
    yield world
    main_job(world)


def overlapping(make: Callable[[], World]) -> Iterator[World]:
    for seed in range(1, 9):
        world = make()
        yield world
        Interleaver(world, seed, Trouble(stall=0.03, stalls_max=4)).run({"A": 3, "B": 2})


def stalling(seconds: float, *names: str, when: str = "after") -> Scenario:
    """A stall before or after each call whose name has one of `names` in it, with a receiver that
    fails three times, so that the entry still waits when the worker wakes."""

    def stall(make: Callable[[], World]) -> Iterator[World]:
        world = make()
        world.receiver.answers = fails_thrice
        for place in places(world):
            if place.when == when and any(name in place.name for name in names):
                world = make()
                world.receiver.answers = fails_thrice
                yield world
                stall_at(world, place, seconds)
                main_job(world)

    return stall


def fails_thrice(number: int, _body: dict[str, Any]) -> Outcome:
    return answer(500 if number <= 3 else 200)


def dying(*names: str) -> Scenario:
    """A death on either side of each call whose name has one of `names` in it."""

    def die(make: Callable[[], World]) -> Iterator[World]:
        for place in places(calm()):
            if any(name in place.name for name in names):
                world = make()
                yield world
                die_at(world, place)
                main_job(world)

    return die


def speaking(function: str) -> Scenario:
    def speak(make: Callable[[], World]) -> Iterator[World]:
        for index in range(1, 14):
            world = make()
            yield world
            speak_at(world, "on_before", function, index)
            world.say("A", "a-1")
            world.run_until_done(30)

    return speak


def unrung(make: Callable[[], World]) -> Iterator[World]:
    world = make()
    yield world
    world.hooks.lose = lambda site: site.function != "sweep_due"
    main_job(world)


def poisoned(make: Callable[[], World]) -> Iterator[World]:
    world = make()
    yield world
    world.hooks.on_before = deadly(world, "a-1")
    world.say("A", "a-1")
    world.run_until_done(3600)


def outage(make: Callable[[], World]) -> Iterator[World]:
    world = make()
    yield world
    back = world.clock.ms + HOUR_MS
    world.receiver.answers = lambda *_: answer(500 if world.clock.ms < back else 200)
    for conversation in "ABCDEF":
        world.say(conversation, f"{conversation}-1")
    world.run_until_done(2 * 3600)


def refusing(make: Callable[[], World]) -> Iterator[World]:
    world = make()
    yield world
    world.receiver.answers = lambda *_: answer(400)
    world.say("A", "a-1")
    world.run_until_done(3600)


@dataclass(frozen=True)
class Rule:
    """One rule, how it is switched off, and what the simulation then says is broken."""

    name: str
    broken: tuple[str, ...]
    scenario: Scenario
    wrap: Wrap = lambda clients: clients
    world: dict[str, Any] = field(default_factory=dict)


def _is(item: Parameters, kind: str) -> bool:
    return str(item["sk"]["S"]).startswith(kind)


def _lease_looks_over(item: Parameters) -> Parameters:
    return item | {"lease_until": {"N": "0"}} if _is(item, "PEND#") else item


def _attempt_looks_over(item: Parameters) -> Parameters:
    if _is(item, "ENTRY#") and "open" in item:
        return item | {"open": {"M": item["open"]["M"] | {"until": {"N": "0"}}}}
    return item


def _never_lost(item: Parameters) -> Parameters:
    return item | {"excused": item["lease_no"]} if _is(item, "PEND#") else item


def _no_release(parameters: Parameters) -> Parameters | None:
    return None if sort_key(parameters).startswith("RELEASE") else parameters


def _no_notice(parameters: Parameters) -> Parameters | None:
    return None if sort_key(parameters) == "NOTICE" else parameters


def _one_deduplication_id(parameters: Parameters) -> Parameters:
    if "MessageDeduplicationId" in parameters:
        return {**parameters, "MessageDeduplicationId": parameters["MessageGroupId"]}
    return parameters


def _own_group(parameters: Parameters) -> Parameters:
    if "MessageDeduplicationId" in parameters:
        return {**parameters, "MessageGroupId": parameters["MessageGroupId"].partition("#")[0]}
    return parameters


FENCE = "#lease_no = :lease_no AND #story = :story"

RULES = (
    Rule(
        "a live lease is respected",
        ("a live lease is nobody else's",),
        overlapping,
        loose(look=_lease_looks_over, loosen=without("AND #lease_until = :seen_until")),
    ),
    Rule(
        "the end of a run is fenced by its lease's number",
        ("a run ends once", "the waiting count is the number of waiting runs"),
        # The worker looks at its lease before it ends its run, so it must sleep behind that look.
        stalling(200, "TransactWriteItems", when="before"),
        loose(loosen=without(FENCE, "PEND#")),
    ),
    Rule(
        "steps are fenced by the lease's number",
        ("a step with a result is not made again", "fenced steps"),
        stalling(200, "PutItem STEP", when="before"),
        loose(
            loosen=all_of(
                without("attribute_not_exists(#pk) OR #lease_no < :mine", "STEP#"),
                without("#lease_no = :mine", "STEP#"),
            )
        ),
    ),
    Rule(
        "order keys are held by a condition",
        ("order goes forward", "what was said never changes"),
        overlapping,
        loose(loosen=without("#last_order < :order", "ORDER")),
        {"skew_ms": 10_000, "cold": True},
    ),
    Rule(
        "the waiting count is held by a condition",
        ("the waiting count is the number of waiting runs",),
        speaking("turn_worker"),
        loose(loosen=without("#pending = :seen", "ORDER")),
    ),
    Rule(
        "a claim is made once",
        ("a claim keeps its story", "claim, message, verdict and run exist together"),
        dying("generic_ingress: TransactWriteItems"),
        loose(loosen=without("attribute_not_exists(#pk) OR #claimed_at < :cutoff", "CLAIM")),
    ),
    Rule(
        "what belongs together is written in one transaction",
        ("claim, message, verdict and run exist together",),
        plainly,
        loose(atomic=False),
    ),
    Rule(
        "an attempt is written before its request",
        ("an attempt is written before its request",),
        plainly,
        loose(opens=False),
    ),
    Rule(
        "only the head of an outbox is sent",
        ("entry n+1 never leaves before n is terminal",),
        plainly,
        loose(skips_heads=True),
    ),
    Rule(
        "a live attempt is respected",
        ("a live attempt is nobody else's", "a request is made under a lease"),
        overlapping,
        loose(look=_attempt_looks_over),
    ),
    Rule(
        "one attempt at a time is held by a condition",
        ("one attempt at a time", "attempts are counted one by one"),
        stalling(80, "#slot_ = :until"),
        loose(
            loosen=all_of(
                without("AND #attempts = :seen AND attribute_not_exists(#open)", "ENTRY#"),
                without("AND attribute_not_exists(#attempts)", "ENTRY#"),
            )
        ),
    ),
    Rule(
        "a running slot is taken by a condition",
        ("runs at once are bounded",),
        overlapping,
        loose(loosen=without("AND (attribute_not_exists(#slot_00) OR #slot_00 <= :over)")),
        {"limits": Limits(runs_at_once=1, queue_seconds=86_400)},
    ),
    Rule(
        "whoever lets a conversation wait for a slot has its agent looked at",
        ("who waits for a slot is looked for",),
        overlapping,
        loose(loosen=without(", #due_pk = :due, #due_at = if_not_exists(#due_at, :at)")),
        {"limits": Limits(runs_at_once=1, queue_seconds=86_400)},
    ),
    Rule(
        "an outbox rests by a condition on its last sequence",
        ("a waiting entry has a due mark", "the head is a lower bound"),
        speaking("outbox_worker"),
        loose(loosen=without("#seq = :seq", "OUTBOX")),
        {"answers": always_ok},
    ),
    Rule(
        "a message's due mark is set with it",
        ("waiting work has a due mark",),
        plainly,
        loose(loosen=without(", #due_pk = :due_pk, #due_at = :due_at", "ORDER")),
    ),
    Rule(
        "an entry's due mark is set with it",
        ("a waiting entry has a due mark",),
        plainly,
        loose(loosen=without(", #due_pk = :due_pk, #due_at = :due_at", "OUTBOX")),
        {"answers": always_ok},
    ),
    Rule(
        "recovery releases what was parked",
        ("work that waits for a probe gets one",),
        outage,
        loose(loosen=_no_release),
    ),
    Rule(
        "each ring has a deduplication id of its own",
        ("work is done in time",),
        plainly,
        ringing(_one_deduplication_id),
        {"sweeping": False, "answers": always_ok},
    ),
    Rule(
        "a death is told of in its own transaction",
        ("an entry's death is told of",),
        refusing,
        loose(loosen=_no_notice),
    ),
    Rule(
        "an endpoint's change is told of in its own transaction",
        ("an endpoint's change is told of",),
        outage,
        loose(loosen=_no_notice),
    ),
    Rule("sweeps run", ("work is done in time",), unrung, world={"sweeping": False}),
    Rule(
        "a run that loses its leases ends",
        ("work is done in time",),
        poisoned,
        loose(look=_never_lost),
        {"limits": Limits(seconds=10**6, queue_seconds=10**6)},
    ),
)


def broken_by(rule: Rule) -> str | None:
    """What the simulation objects to once the rule is gone; None when nothing."""

    def make() -> World:
        return World(**{"answers": fails_once, "wrap": rule.wrap, **rule.world})

    try:
        for world in rule.scenario(make):
            world.watch(world.aws)
    except Broken as broken:
        return broken.__cause__.rule if isinstance(broken.__cause__, BrokenInvariantError) else ""
    except BrokenInvariantError as broken:
        return broken.rule
    return None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name.replace(" ", "_"))
def test_a_rule_that_is_switched_off_is_missed(rule: Rule) -> None:
    assert broken_by(rule) in rule.broken


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name.replace(" ", "_"))
def test_what_misses_a_rule_is_content_while_it_is_there(rule: Rule, exhaustive: bool) -> None:
    if exhaustive and rule.name != "sweeps run":
        assert broken_by(replace(rule, wrap=lambda clients: clients)) is None


def test_the_condition_on_the_last_sequence_stands_behind_the_fence(exhaustive: bool) -> None:
    """Nothing can miss it alone: only the holder of the head's lease commits, and the fence, which
    is in the same transaction, holds that."""
    seq = loose(loosen=without("#seq = :last AND", "OUTBOX"))
    where = ("turn_worker",) if exhaustive else ("turn_worker: PutItem",)
    assert broken_by(Rule("", (), stalling(200, *where), seq)) is None


def test_a_recovery_ring_in_the_blocked_group_costs_latency_alone(exhaustive: bool) -> None:
    """Nothing but a clock can miss it: the dead worker's message comes back by itself after its
    visibility, ten seconds behind the earliest sweep."""
    where = ("outbox_worker", REQUEST) if exhaustive else (REQUEST,)
    assert broken_by(Rule("", (), dying(*where), ringing(_own_group))) is None
