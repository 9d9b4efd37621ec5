"""Owns the costs of one message: AWS calls and capacity units, by the function that made them.

Refuses clocks: every number is a count, and the embedded AWS prices as AWS does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from infra.local.aws import Call
from mesh.records.agent import Limits
from tests.benchmarks.figures import Figure, count
from tests.fakes.system import Made, System, answer

KB: Final = "x" * 1024
"""A message's text of one kilobyte."""
SHORT: Final = "Where is my parcel?"
WARM: Final = "warm-up"

INGRESS_WRITES_MAX: Final = 14
NEW_WRITES_MAX: Final = 30
FURTHER_TRY_WRITES_MAX: Final = 10
TURN_WRITES_MAX: Final = 17
"""Two of them take and free the agent's running slot, once a conversation that is worked down."""
BUDGETS_WRITES_MAX: Final = 6
"""More, of a turn whose agent has both daily budgets: its lease and its answer are kept by
transactions of two rows."""
BUDGETS_READS_MAX: Final = 3
DELIVERY_WRITES_MAX: Final = 6
RETRY_WRITES_MAX: Final = 4
INGRESS_READS_MAX: Final = 1
TURN_READS_MAX: Final = 3
FULL_WINDOW_TURN_READS_MAX: Final = 8
DELIVERY_READS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Cost:
    """What one function spent: calls of any service, units of the table and of its indexes."""

    calls: int
    writes: float
    index_writes: float
    reads: float


@dataclass(frozen=True, slots=True)
class Spent:
    """What one message cost, plane by plane."""

    ingress: Cost
    turn: Cost
    delivery: Cost


def cost(calls: Iterable[Call], function: str) -> Cost:
    """What `function` spent in `calls`."""
    own = [call for call in calls if call.caller == function]
    return Cost(
        calls=len(own),
        writes=sum(call.table_write for call in own),
        index_writes=sum(call.index_write for call in own),
        reads=sum(call.read for call in own),
    )


def spent(system: System, act: Callable[[], object]) -> Spent:
    """What `act`, and all that comes of it at once, costs."""
    with system.aws.recording() as calls:
        act()
        system.settle()
    return Spent(
        cost(calls, "generic_ingress"), cost(calls, "turn_worker"), cost(calls, "outbox_worker")
    )


def warm_system() -> tuple[System, Made]:
    """A system without lag, whose functions are warm and whose conversation knows its actor."""
    system = System(lag=False)
    made = system.make_install()
    assert system.say(made, SHORT, WARM).status == 202
    system.settle()
    system.clock.forward(1)
    return system, made


def known(body: str = KB) -> Spent:
    """A message of a known actor in a known conversation."""
    system, made = warm_system()
    return spent(system, lambda: system.say(made, body))


def budgeted() -> Spent:
    """The same, of an agent with both daily budgets, far from any part that is told of."""
    system = System(lag=False)
    agent = system.make_agent("bob", Limits(turns_per_day=10**6, tokens_per_day=10**9))
    made = system.make_install(agent=agent)
    system.say(made, SHORT, WARM)
    system.settle()
    system.clock.forward(1)
    return spent(system, lambda: system.say(made, SHORT))


def with_parent() -> Spent:
    """A reply in a group to one of the agent's own messages: only its parent engages it."""
    system, made = warm_system()
    group = {"conversation_key": "group-1", "topology": "group"}
    system.say(made, "@ada hello", "g-1", **group)
    system.settle()
    parent = system.delivered()[-1]["outbound_id"]
    system.clock.forward(1)
    return spent(system, lambda: system.say(made, KB, parent_id=parent, **group))


def new() -> Spent:
    """A new actor's message that begins a conversation."""
    system, made = warm_system()
    return spent(
        system,
        lambda: system.say(made, KB, conversation_key="room-10", actor_id="u-43"),
    )


def short_retry() -> Cost:
    """One more attempt after a receiver's 503, which gets a 503 again."""
    system, made = warm_system()
    system.receiver(answer(503))
    system.say(made, SHORT)
    system.settle()
    before = len(system.calls())
    with system.aws.recording() as calls:
        while len(system.calls()) == before:
            system.clock.forward(1)
            system.settle()
    assert len(system.calls()) == before + 1
    return cost(calls, "outbox_worker")


def figures() -> dict[str, Figure]:
    """Every count but those of a long history."""
    usual, terse, parent, fresh = known(), known(SHORT), with_parent(), new()
    retry = short_retry()
    first = "1 KB from a known actor in a known conversation"
    return {
        "calls_known": count(usual.ingress.calls, f"AWS calls at ingress: {first}"),
        "calls_parent": count(parent.ingress.calls, "AWS calls at ingress: parent decides"),
        "calls_new": count(fresh.ingress.calls, "AWS calls at ingress: all is new"),
        "calls_turn": count(terse.turn.calls, "AWS calls of a turn without tools"),
        "calls_delivery": count(terse.delivery.calls, "AWS calls of a delivery"),
        "units_ingress": count(
            usual.ingress.writes, f"write units at ingress: {first}", INGRESS_WRITES_MAX
        ),
        "units_ingress_index": count(usual.ingress.index_writes, "index write units, the same"),
        "units_ingress_read": count(usual.ingress.reads, "read units, the same", INGRESS_READS_MAX),
        "units_ingress_new": count(
            fresh.ingress.writes,
            "write units at ingress: all is new, the failed first try included",
            NEW_WRITES_MAX + FURTHER_TRY_WRITES_MAX,
        ),
        "units_turn": count(
            terse.turn.writes, "write units of a turn: a short reply", TURN_WRITES_MAX
        ),
        "units_turn_index": count(terse.turn.index_writes, "index write units, the same"),
        "units_turn_read": count(terse.turn.reads, "read units, the same", TURN_READS_MAX),
        "units_turn_budgets": count(
            budgeted().turn.writes,
            "write units of a turn: the same, with both daily budgets",
            TURN_WRITES_MAX + BUDGETS_WRITES_MAX,
        ),
        "units_turn_kb": count(usual.turn.writes, "write units of a turn: a reply row over 1 KB"),
        "units_delivery": count(
            terse.delivery.writes, "write units of a delivery", DELIVERY_WRITES_MAX
        ),
        "units_delivery_index": count(terse.delivery.index_writes, "index write units, the same"),
        "units_delivery_read": count(
            terse.delivery.reads, "read units, the same", DELIVERY_READS_MAX
        ),
        "units_retry": count(
            retry.writes, "write units of a short retry that fails again", RETRY_WRITES_MAX
        ),
        "units_retry_index": count(retry.index_writes, "index write units, the same"),
        "units_retry_read": count(retry.reads, "read units, the same"),
    }
