"""What an agent may use, and what it used today, as operators see it."""

from __future__ import annotations

from typing import Any

from mesh.engine.slots import Slots
from mesh.records.agent import Agent
from mesh.storage import keys
from mesh.storage.clients import SessionClients
from mesh.storage.queues import Bell
from tests.contract.test_operator_api import Instance
from tests.fakes.operators import error_of
from tests.fakes.system import System

PATH = "/api/agents/bob"


def put(instance: Instance, **limits: int) -> dict[str, Any]:
    version = instance.operator.ok("GET", PATH)["version"]
    body = {"limits": limits, "version": version}
    changed: dict[str, Any] = instance.operator.ok("PUT", PATH, body)
    return changed


def test_what_was_used_today_is_shown_where_there_is_a_budget() -> None:
    instance = Instance()
    made = instance.install()
    assert instance.viewer.ok("GET", PATH)["today"] == {"turns": None, "tokens": None}
    assert put(instance, turns_per_day=5)["today"] == {"turns": 0, "tokens": None}
    instance.system.say(made, "hello", "m-1")
    instance.system.settle()
    assert instance.viewer.ok("GET", PATH)["today"] == {"turns": 1, "tokens": None}
    assert put(instance, tokens_per_day=10_000)["today"] == {"turns": None, "tokens": 0}
    instance.system.say(made, "hello", "m-2")
    instance.system.settle()
    (step,) = [s for s in instance.system.rows("STEP#") if "m-2" in story(instance.system, s)]
    used = step["input_tokens"] + step["output_tokens"]
    (listed,) = instance.viewer.ok("GET", "/api/agents")["items"]
    assert listed["today"] == {"turns": None, "tokens": used}


def story(system: System, step: dict[str, Any]) -> str:
    """The message id of the story that a step belongs to."""
    (row,) = [row for row in system.rows("STORY") if row["pk"] == step["pk"]]
    return str(row["message_id"])


def test_an_agent_may_have_as_many_runs_at_once_as_there_are_slots() -> None:
    instance = Instance()
    assert put(instance, runs_at_once=100)["limits"]["runs_at_once"] == 100
    body = {"limits": {"runs_at_once": 101}, "version": 2}
    refused = instance.operator("PUT", PATH, body)
    assert (refused.status, error_of(refused)) == (422, "invalid_request")


def test_a_run_that_waits_for_a_slot_says_so() -> None:
    instance = Instance()
    made = instance.install()
    put(instance, runs_at_once=1)
    system = instance.system
    agent: Agent | None = system.agents.by_slug("bob")
    assert agent is not None
    bell = Bell(
        SessionClients(system.aws.session("test")).sqs, system.stack.settings.queue_urls, system.ids
    )
    Slots(system.table, system.clock, system.ids, bell).take(agent, "elsewhere")
    run_id = system.say(made, "hello", "m-1").json()["run_id"]
    system.settle()
    (order,) = [row for row in system.rows(keys.ORDER) if row["pending"]]
    assert order["due_pk"] == keys.waiting(agent.agent_id)
    told = instance.viewer.ok("GET", f"/api/explain/{run_id}")["next"]
    assert told == (
        "it waits for one of the agent's 1 running slots."
        " To allow more: mesh agent update bob --runs-at-once N"
    )
