"""Owns `mesh agent apply`: an agent and its connectors made to match a file, step by step.

Refuses to lose a secret that was minted on the way, and to hide how far it came: what was done is
told also where a step failed, and the same line goes on from there.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mesh.operator.cli import agent_file
from mesh.operator.cli.agent_plan import (
    Awaited,
    Step,
    agent_step,
    awaited_keys,
    connector_steps,
    tool_steps,
    web_steps,
)
from mesh.operator.cli.command import Invocation, common, fresh_key
from mesh.operator.cli.failure import CommandError, of_api, of_silence
from mesh.operator.cli.terminal import clean
from mesh.operator.client import ApiError, Json, OperatorClient, UnreachableError, segment


@dataclass(frozen=True, slots=True)
class _Plan:
    """What would be done, and what stays to be done by hand."""

    slug: str
    steps: list[Step]
    roster: int
    """How often the connectors had changed when they were looked at, so that two who apply one
    file at once do not both create them."""
    awaits: list[Awaited]

    def told(self, done: list[Json], stopped: str | None = None) -> Json:
        """The document of `--json`."""
        return {
            "agent": self.slug,
            "done": done,
            "left": [step.told() for step in self.steps[len(done) :]],
            "stopped": stopped,
            "awaits": [
                {
                    "capability": each.capability,
                    "provider": each.provider,
                    "command": " ".join(each.command(self.slug)),
                }
                for each in self.awaits
            ],
        }


@click.command("apply")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--slug", metavar="S", help="Under another slug than the file's.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@common
def apply(invocation: Invocation, *, file: Path, slug: str | None, dry_run: bool) -> None:
    """Make an agent and its connectors match FILE, which `mesh agent export` made.

    What is missing is created; a new connector is disabled, and its secret shown once. What the
    file does not name is left alone. Run again, it goes on where it stopped.
    """
    document = agent_file.read(file)
    slug = slug or str(document["agent"]["slug"])
    terminal = invocation.terminal
    with invocation.client() as client:
        plan = _plan(client, document, slug)
        steps, roster = plan.steps, plan.roster
        done: list[Json] = []
        if not dry_run:
            try:
                for number, step in enumerate(steps, 1):
                    if not invocation.as_json:
                        click.echo(f"{number} of {len(steps)}: {clean(step.told())}")
                    done.append(_do(invocation, client, step, slug, roster))
                    roster += "secret" in done[-1]
            except (ApiError, UnreachableError) as failed:
                raise _stopped(invocation, plan, done, failed) from None
    if invocation.as_json:
        terminal.document(plan.told(done))
        return
    if dry_run:
        for step in steps:
            terminal.say(clean(step.told()))
    if not steps:
        terminal.say(f"{slug} matches {file}{', but for a key' if plan.awaits else ''}")
    elif not dry_run:
        _next(invocation, document, slug, done)
    _next_keys(invocation, plan)


def _plan(client: OperatorClient, document: Json, slug: str) -> _Plan:
    """Every step, worked out from what stands now."""
    path = f"/api/agents/{segment(slug)}"
    stands: Json | None
    try:
        stands = client.call("GET", path)
    except ApiError as error:
        if error.code != "not_found":
            raise
        stands = None
    connectors = [] if stands is None else list(client.items(f"{path}/connectors"))
    tools = None if stands is None else client.call("GET", f"{path}/tools")["items"]
    web = [] if stands is None else client.call("GET", f"{path}/web-access")["capabilities"]
    awaits = awaited_keys(document, web)
    first = agent_step(document, slug, stands)
    steps = [
        *([] if first is None else [first]),
        *tool_steps(document, tools),
        *web_steps(document, web, awaits),
        *connector_steps(document, connectors),
    ]
    roster = 0 if stands is None else int(stands["roster"])
    return _Plan(slug, steps, roster, awaits)


def _do(invocation: Invocation, client: OperatorClient, step: Step, slug: str, roster: int) -> Json:
    """Makes one step's call; what is told of it."""
    told: dict[str, Any] = {"step": step.told()}
    agent = f"/api/agents/{segment(slug)}"
    match step.verb, step.what:
        case "create", "agent":
            client.call("POST", "/api/agents", body=step.body, idempotency_key=fresh_key())
        case "update", "agent":
            client.call("PUT", agent, body={**step.body, "version": step.version})
        case _, "tool":
            path = f"{agent}/tools/{segment(step.subject)}"
            client.call("PUT", path, body={**step.body, "version": step.version})
        case _, "web access":
            path = f"{agent}/web-access/{segment(step.subject)}"
            client.call("PUT", path, body={**step.body, "version": step.version})
            told["awaits_key_of"] = step.awaits_key_of
        case "create", _:
            body = {**step.body, "roster": roster}
            made = client.call(
                "POST", f"{agent}/connectors", body=body, idempotency_key=fresh_key()
            )
            told |= {
                "install_id": made["install_id"],
                "secret": made["secret"],
                "delivery_url_shown": step.shown_url,
            }
            if not invocation.as_json:  # at once: what comes next may fail
                invocation.terminal.fields(
                    [("  install", made["install_id"]), ("  secret", made["secret"])]
                )
        case _:
            path = f"/api/connectors/{segment(str(step.install_id))}"
            client.call("PUT", path, body={**step.body, "version": step.version})
            told["install_id"] = step.install_id
    return told


def _stopped(
    invocation: Invocation,
    plan: _Plan,
    done: list[Json],
    failed: ApiError | UnreachableError,
) -> CommandError:
    """How it is told that a step failed; what was done and minted is told first."""
    why = of_api(failed) if isinstance(failed, ApiError) else of_silence(failed)
    step = plan.steps[len(done)]
    text = (
        f"stopped at step {len(done) + 1} of {len(plan.steps)} ({step.told()}): {why};"
        " the steps before it stand, and the same command goes on"
    )
    if invocation.as_json:
        invocation.terminal.document(plan.told(done, text))
    return CommandError(text, why.exit_code)


def _next(invocation: Invocation, document: Json, slug: str, done: list[Json]) -> None:
    """What no file can bring."""
    say = invocation.terminal.say
    if document.get(agent_file.HAS_KEY):
        command = f"mesh agent update {shlex.quote(slug)} --model-key-stdin"
        say(f"\nits model had a key; to give one: {command}")
    for each in done:
        if "secret" not in each:
            continue
        install_id, shown = each["install_id"], each["delivery_url_shown"]
        say("\nthe secret above is shown once; give it to the third party, then:")
        if shown is not None:
            say(f"  mesh connector update {install_id} --delivery-url URL")
            say(f"    # it was {clean(shown)}")
        say(f"  mesh connector enable {install_id}")


def _next_keys(invocation: Invocation, plan: _Plan) -> None:
    """How the keys are given that web access waits for."""
    say = invocation.terminal.say
    for each in plan.awaits:
        first, *more = map(clean, each.command(plan.slug))
        goes_by = f"its {each.capability} goes by a key of {each.provider} of its own"
        say(f"\n{clean(goes_by)}; to give one:")
        say(" \\\n    ".join((f"  {first}", *more)))
