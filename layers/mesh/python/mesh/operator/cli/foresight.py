"""Owns how a plan and a simulation are asked and printed: what would be, before it is.

Refuses to act: it prints what was answered.
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import IO, Any

from mesh.operator.cli.command import Invocation
from mesh.operator.cli.failure import REFUSED, CommandError
from mesh.operator.cli.reading import whole
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


def payload_of(
    file: IO[bytes] | None,
    *,
    text: str | None,
    actor: str,
    conversation: str,
    topology: str | None,
    parent: str | None,
) -> bytes:
    """The payload to be judged: of a file or standard input byte for byte, or made up."""
    if text is not None:
        if file is not None:
            raise CommandError("give --text or a file, not both", exit_code=2)
        payload: dict[str, Any] = {
            "message_id": f"simulated-{uuid.uuid4()}",
            "conversation_key": conversation,
            "actor_id": actor,
            "body": text,
        }
        if topology is not None:
            payload["topology"] = topology
        if parent is not None:
            payload["parent_id"] = parent
        return json.dumps(payload, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if file is not None:
        return whole(file, file.name)
    if sys.stdin.isatty():
        raise CommandError("give a payload in a file or on standard input, or --text", exit_code=2)
    stdin: IO[bytes] = sys.stdin.buffer
    return whole(stdin, "standard input")


def show_simulation(invocation: Invocation, found: Json) -> int:
    """A simulation, for people or as a document; 1 where the caller would be refused."""
    terminal = invocation.terminal
    error, closed = found["error"], found["closed"]
    code = "" if error is None else f" {error['code']}"
    if invocation.as_json:
        terminal.document(found)
    else:
        terminal.fields(
            [
                ("outcome", found["outcome"]),
                ("answer", f"{found['status']}{code}"),
                ("verdict", found["verdict"]),
                ("reason", found["reason"]),
                ("rule", found["rule"]),
                ("starts a run", found["starts_run"]),
                ("duplicate of", found["duplicate_of"]),
            ]
        )
        terminal.say(f"\n{clean(found['text'])}")
        for problem in error["fields"] if error is not None else ():
            terminal.say(f"  {clean(problem['path'])}: {clean(problem['problem'])}")
        if closed is not None:
            terminal.say(
                f"\nnow every message gets {closed['status']} {clean(closed['code'])}:"
                f" {clean(closed['message'])}"
            )
    return 0 if error is None else REFUSED
