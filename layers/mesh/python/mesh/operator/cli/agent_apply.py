"""Owns `mesh agent apply`: an agent and its connectors made to match a file, step by step.

Refuses to lose a secret that was minted on the way, and to hide how far it came: what was done is
told also where a step failed, and the same line goes on from there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mesh.operator.cli import agent_file
from mesh.operator.cli.agent_plan import Step, agent_step, connector_steps, tool_steps, web_steps
from mesh.operator.cli.command import Invocation, common, fresh_key
from mesh.operator.cli.failure import CommandError, of_api, of_silence
from mesh.operator.client import ApiError, Json, OperatorClient, UnreachableError, segment


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
        steps, roster = _plan(client, document, slug)
        done: list[Json] = []
        if not dry_run:
            try:
                for number, step in enumerate(steps, 1):
                    if not invocation.as_json:
                        click.echo(f"{number} of {len(steps)}: {step.told()}")
                    done.append(_do(invocation, client, step, slug, roster))
                    roster += "secret" in done[-1]
            except (ApiError, UnreachableError) as failed:
                raise _stopped(invocation, slug, steps, done, failed) from None
    if invocation.as_json:
        terminal.document(_told(slug, steps, done))
        return
    if dry_run:
        for step in steps:
            terminal.say(step.told())
    if not steps:
        terminal.say(f"{slug} matches {file}")
    elif not dry_run:
        _next(invocation, document, slug, done)
        _next_keys(invocation, slug, steps)


def _plan(client: OperatorClient, document: Json, slug: str) -> tuple[list[Step], int]:
    """Every step, worked out from what stands now; and how often the connectors had changed when
    they were looked at, so that two who apply one file at once do not both create them."""
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
    first = agent_step(document, slug, stands)
    steps = [
        *([] if first is None else [first]),
        *tool_steps(document, tools),
        *web_steps(document, web),
        *connector_steps(document, connectors),
    ]
    return steps, 0 if stands is None else int(stands["roster"])


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
            told["awaits_key_of"] = None if step.awaits_key is None else step.awaits_key["provider"]
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


def _told(slug: str, steps: list[Step], done: list[Json], stopped: str | None = None) -> Json:
    left = [step.told() for step in steps[len(done) :]]
    return {"agent": slug, "done": done, "left": left, "stopped": stopped}


def _stopped(
    invocation: Invocation,
    slug: str,
    steps: list[Step],
    done: list[Json],
    failed: ApiError | UnreachableError,
) -> CommandError:
    """How it is told that a step failed; what was done and minted is told first."""
    why = of_api(failed) if isinstance(failed, ApiError) else of_silence(failed)
    step = steps[len(done)]
    text = (
        f"stopped at step {len(done) + 1} of {len(steps)} ({step.told()}): {why};"
        " the steps before it stand, and the same command goes on"
    )
    if invocation.as_json:
        invocation.terminal.document(_told(slug, steps, done, text))
    return CommandError(text, why.exit_code)


def _next(invocation: Invocation, document: Json, slug: str, done: list[Json]) -> None:
    """What no file can bring."""
    say = invocation.terminal.say
    if document.get(agent_file.HAS_KEY):
        say(f"\nits model had a key; to give one: mesh agent update {slug} --model-key-stdin")
    for each in done:
        if "secret" not in each:
            continue
        install_id, shown = each["install_id"], each["delivery_url_shown"]
        say("\nthe secret above is shown once; give it to the third party, then:")
        if shown is not None:
            say(f"  mesh connector update {install_id} --delivery-url URL")
            say(f"    # it was {shown}")
        say(f"  mesh connector enable {install_id}")


def _next_keys(invocation: Invocation, slug: str, steps: list[Step]) -> None:
    """How the keys are given that web access waits for."""
    for step in steps:
        if step.awaits_key is None:
            continue
        limits = step.awaits_key.get("limits") or {}
        say = invocation.terminal.say
        provider = step.awaits_key["provider"]
        say(f"\nits {step.subject} goes by a key of {provider} of its own; to give one:")
        say(f"  mesh web set {step.subject} --agent {slug} --provider {provider} \\")
        for name, value in sorted((step.awaits_key.get("config") or {}).items()):
            say(f"    --config {name}={value} \\")
        for option in ("requests_per_minute", "requests_per_run"):
            if limits.get(option) is not None:
                say(f"    --{option.replace('_', '-')} {limits[option]} \\")
        say("    --key-stdin")
