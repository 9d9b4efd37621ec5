"""Owns how a plan is printed: what would run, before it runs.

Refuses to act: it prints what was answered.
"""

from __future__ import annotations

from mesh.operator.cli.command import Invocation
from mesh.operator.cli.terminal import clean, when
from mesh.operator.client import Json


def show_plan(invocation: Invocation, plan: Json) -> None:
    """A plan, for people or as a document."""
    terminal = invocation.terminal
    if invocation.as_json:
        terminal.document(plan)
        return
    enable, disable = plan["enable"], plan["disable"]
    terminal.fields(
        [
            ("install", plan["install_id"]),
            ("state", plan["state"]),
            ("reason", plan["state_reason"]),
            ("in flight", disable["in_flight"]),
            ("  until", when(disable["in_flight_until"])),
            ("waiting", disable["waiting"]),
        ]
    )
    for title, part in (("TO ENABLE", enable), ("TO DISABLE", disable)):
        terminal.say()
        terminal.table(
            (title, "DONE", "WHAT IT DOES"),
            [(step["name"], step["done"], step["description"]) for step in part["steps"]],
        )
    terminal.say(f"\nnext: {clean(enable['next'])}")
