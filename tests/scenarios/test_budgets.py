"""A day's budgets are a hard stop that says so: to whoever asked, without figures, and to the
operator."""

from __future__ import annotations

from typing import Any

from mesh.kernel.clock import DAY_MS
from mesh.records.agent import Agent, Limits
from tests.fakes.control import CAUSE
from tests.fakes.system import Made, System


def office(limits: Limits) -> tuple[System, Agent, Made]:
    system = System(lag=False)
    agent = system.make_agent("bob", limits)
    return system, agent, system.make_install(agent=agent)


def say(system: System, made: Made, first: int, count: int) -> list[str]:
    """So many messages; the outcomes of their replies."""
    before = len(system.delivered())
    for number in range(first, first + count):
        assert system.say(made, "hello", f"m-{number}").status == 202
        system.settle()
    return [body["outcome"] for body in system.delivered()[before:]]


def notices(system: System, kind: str) -> list[dict[str, Any]]:
    return sorted((n for n in system.rows("NOTICE") if n["kind"] == kind), key=lambda n: n["at"])


def percents(system: System) -> list[int]:
    return sorted(notice["figures"]["percent"] for notice in notices(system, "budget.reached"))


def put_limits(system: System, agent: Agent, limits: Limits) -> Agent:
    return system.agents.update(
        agent,
        version=agent.version,
        name=agent.name,
        handle=agent.handle,
        instructions=agent.instructions,
        model=agent.model,
        limits=limits,
        cause=CAUSE,
    )


def test_turns_of_a_day_are_a_hard_stop_that_is_told_of_at_three_parts() -> None:
    system, agent, made = office(Limits(turns_per_day=10))
    assert say(system, made, 0, 4) == ["reply"] * 4
    assert percents(system) == []
    assert say(system, made, 4, 1) == ["reply"]
    assert percents(system) == [50]
    assert say(system, made, 5, 5) == ["reply"] * 5
    assert percents(system) == [50, 80, 100]
    assert say(system, made, 10, 2) == ["failure"] * 2
    assert percents(system) == [50, 80, 100]

    (notice, *_) = notices(system, "budget.reached")
    assert (notice["agent_id"], notice["subject"]) == (agent.agent_id, agent.agent_id)
    assert notice["reason"] == "turns_per_day"
    body = system.delivered()[-1]["body"]
    assert not any(character.isdigit() for character in body)
    ended = [row for row in system.rows("STORY") if row.get("run_reason")]
    assert {(row["status"], row["run_reason"]) for row in ended} == {
        ("failed", "turns_per_day_reached")
    }


def test_the_next_day_begins_anew() -> None:
    system, _, made = office(Limits(turns_per_day=1))
    assert say(system, made, 0, 2) == ["reply", "failure"]
    system.clock.forward(DAY_MS / 1000)
    assert say(system, made, 2, 2) == ["reply", "failure"]
    assert percents(system) == [100, 100]
    assert len({row["pk"] for row in system.rows("DAY")}) == 2


def test_tokens_of_a_day_stop_the_next_call_and_are_kept_on_the_step() -> None:
    system, _, made = office(Limits(tokens_per_day=100))
    outcomes = say(system, made, 0, 4)
    assert outcomes[0] == "reply"
    assert outcomes[-1] == "failure"
    steps = system.rows("STEP#")
    spent = sum(step["input_tokens"] + step["output_tokens"] for step in steps)
    (day,) = system.rows("DAY")
    assert (day["tokens"], day.get("turns")) == (spent, None)
    assert spent >= 100  # what is spent counts, also where it passes the limit
    assert len(steps) == outcomes.count("reply")  # no call was made once the limit was reached
    assert percents(system)[-1] == 100
    assert {n["reason"] for n in notices(system, "budget.reached")} == {"tokens_per_day"}
    (failed, *_) = notices(system, "run.failed")
    assert failed["reason"] == "tokens_per_day_reached"


def test_a_limit_that_is_lowered_below_what_is_used_stops_at_once_and_is_told_of_once() -> None:
    system, agent, made = office(Limits(turns_per_day=100))
    say(system, made, 0, 5)
    put_limits(system, agent, Limits(turns_per_day=3))
    assert say(system, made, 5, 2) == ["failure"] * 2
    assert percents(system) == [100]
    (day,) = system.rows("DAY")
    assert day["turns"] == 5


def test_a_limit_that_is_raised_lets_the_agent_go_on_to_the_new_one() -> None:
    system, agent, made = office(Limits(turns_per_day=2))
    assert say(system, made, 0, 3) == ["reply", "reply", "failure"]
    put_limits(system, agent, Limits(turns_per_day=4))
    assert say(system, made, 3, 3) == ["reply", "reply", "failure"]
    assert percents(system) == [50, 100]  # each part once a day


def test_a_limit_of_none_a_day_answers_nothing() -> None:
    system, _, made = office(Limits(turns_per_day=0))
    assert say(system, made, 0, 2) == ["failure"] * 2
    assert percents(system) == [100]


def test_an_agent_without_budgets_has_nothing_counted() -> None:
    system, _, made = office(Limits())
    say(system, made, 0, 2)
    assert system.rows("DAY") == []


def test_a_message_that_expired_in_the_queue_counts_as_no_turn() -> None:
    system, _, made = office(Limits(turns_per_day=5, queue_seconds=1))
    system.say(made, "hello")
    system.clock.forward(10)
    system.settle()
    assert system.delivered()[-1]["outcome"] == "failure"
    assert system.rows("DAY") == []
    assert notices(system, "run.failed") == []  # it waited for as long as the settings let it
