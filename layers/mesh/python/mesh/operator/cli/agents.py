"""Owns `mesh agent …`: what an operator sets of an agent.

Refuses to change what it was not told: an update reads, changes the named settings, and writes with
the version that it read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from mesh.operator.cli.command import Invocation, common, fresh_key, read_secret, read_text
from mesh.operator.cli.deleting import asked, make_sure, order, waited
from mesh.operator.cli.failure import CommandError, of_api
from mesh.operator.cli.instance import days, days_of, retention
from mesh.operator.cli.lists import Paging, paged, parameters, show_list
from mesh.operator.cli.terminal import when
from mesh.operator.client import ApiError, Json, OperatorClient, segment

LIMITS: Final = (
    ("--max-steps", "steps", "Steps of a run."),
    ("--max-tool-calls", "tool_calls", "Tool calls of a run."),
    ("--max-seconds", "seconds", "Seconds that a run may take."),
    ("--queue-seconds", "queue_seconds", "Seconds that a run may wait before it expires."),
    ("--max-input-tokens", "input_tokens", "Input tokens of a run."),
    ("--max-output-tokens", "output_tokens", "Output tokens of a run."),
    ("--runs-at-once", "runs_at_once", "Runs of this agent at the same time."),
    ("--turns-per-day", "turns_per_day", "Turns a day, as a hard stop, or none for no limit."),
    ("--tokens-per-day", "tokens_per_day", "Tokens a day, as a hard stop, or none for no limit."),
)
DAILY: Final = frozenset({"turns_per_day", "tokens_per_day"})
"""The limits that an agent may be without."""
NO_LIMIT: Final = -1
KEY_STDIN: Final = "--model-key-stdin"
_MODEL_KEYS: Final = {"agent": "kept", "instance": "the instance's"}
MODELS: Final = ("bedrock", "anthropic", "openai", "offline")


class _OrNone(click.ParamType[int]):
    """A number, 0 included, or `none`."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; `NO_LIMIT` for none. Fails for anything else, as click does."""
        if value == "none":
            return NO_LIMIT
        number: int = click.IntRange(min=0).convert(value, param, ctx)
        return number


def settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `create` and `update` share."""
    for option, name, text in reversed(LIMITS):
        number = _OrNone() if name in DAILY else click.IntRange(min=1)
        function = click.option(option, name, type=number, metavar="N", help=text)(function)
    for decorate in (
        retention,
        click.option(KEY_STDIN, "key_stdin", is_flag=True, help="Read the model's key from stdin."),
        click.option("--model-base-url", metavar="U", help="Where the model answers."),
        click.option("--model-name", metavar="M", help="The model's name at its provider."),
        click.option("--model", "model_kind", type=click.Choice(MODELS), help="Which connector."),
        click.option("--instructions", metavar="TEXT|@FILE", help="What the agent is to do."),
        click.option("--handle", metavar="H", help="The name by which it is mentioned (@handle)."),
        click.option("--name", metavar="N", help="The name for people."),
    ):
        function = decorate(function)
    return function


def changed(given: dict[str, Any], before: Json) -> Json:
    """The settings `before` with what was given put in; only what a request may hold."""
    settings: dict[str, Any] = dict(before)
    for name in ("name", "handle"):
        if given[name] is not None:
            settings[name] = given[name]
    if given["instructions"] is not None:
        settings["instructions"] = read_text(given["instructions"])
    model = {
        name: given[option]
        for name, option in (
            ("kind", "model_kind"),
            ("name", "model_name"),
            ("base_url", "model_base_url"),
        )
        if given[option] is not None
    }
    if model:
        settings["model"] = {**settings.get("model", {}), **model}
    limits = {
        name: None if given[name] == NO_LIMIT else given[name]
        for _, name, _ in LIMITS
        if given[name] is not None
    }
    if limits:
        settings["limits"] = {**settings.get("limits", {}), **limits}
    if given["retention_days"] is not None:
        settings["retention_days"] = days_of(given["retention_days"])
    return settings


@click.group("agent")
def group() -> None:
    """Agents: create, list, show, update, pause, resume, delete, export, apply."""


@group.command("create")
@click.argument("slug")
@settings
@click.option("--idempotency-key", metavar="K", help="Makes a repeated call harmless.")
@common
def create(invocation: Invocation, slug: str, idempotency_key: str | None, **given: Any) -> None:
    """Create an agent. SLUG is its fixed name: a-z, 0-9, - and _."""
    model_key = read_model_key(given)
    key = idempotency_key or fresh_key()
    body = changed(given, {"slug": slug})
    if "model" in body and "kind" not in body["model"]:
        raise CommandError("--model-name and --model-base-url need --model", exit_code=2)
    with invocation.client(key=key) as client:
        agent = client.call("POST", "/api/agents", body=body, idempotency_key=key)
        try:
            agent = with_model_key(client, agent, model_key)
        except ApiError as error:  # the same line again would meet the agent that is there now
            told = of_api(error)
            raise CommandError(
                f"{slug} was created, but its model's key was not kept: {told};"
                f" give it with: mesh agent update {slug} {KEY_STDIN}",
                told.exit_code,
            ) from None
    if invocation.as_json:
        invocation.terminal.document(agent)
        return
    show_agent(invocation, agent)
    invocation.terminal.say(f"\nnext: mesh connector create generic --agent {agent['slug']}")


@group.command("list")
@paged
@common
def list_agents(invocation: Invocation, **given: Any) -> None:
    """List the agents that the token reaches."""
    paging = Paging(**given)
    with invocation.client() as client:
        show_list(
            invocation,
            client.pages("/api/agents", parameters(paging)),
            paging,
            ("SLUG", "NAME", "HANDLE", "MODEL", "STATUS"),
            lambda agent: (
                agent["slug"],
                agent["name"],
                agent["handle"],
                agent["model"]["kind"],
                agent["status"],
            ),
        )


@group.command("show")
@click.argument("slug")
@common
def show(invocation: Invocation, slug: str) -> None:
    """Show one agent."""
    with invocation.client() as client:
        show_agent(invocation, client.call("GET", f"/api/agents/{segment(slug)}"))


@group.command("update")
@click.argument("slug")
@settings
@click.option("--forget-model-key", is_flag=True, help="Delete the model's key.")
@common
def update(invocation: Invocation, slug: str, *, forget_model_key: bool, **given: Any) -> None:
    """Change what is named, and nothing else. A model's key is put after the settings are."""
    path = f"/api/agents/{segment(slug)}"
    if forget_model_key and given["key_stdin"]:
        raise CommandError(f"give {KEY_STDIN} or --forget-model-key, not both", exit_code=2)
    model_key = read_model_key(given)
    has_settings = any(value is not None for value in given.values())
    if not has_settings and model_key is None and not forget_model_key:
        raise CommandError("nothing to change: give at least one option", exit_code=2)
    with invocation.client() as client:
        agent = client.call("GET", path)
        if has_settings:
            agent = put_settings(client, path, agent, given)
        if forget_model_key:
            client.call("DELETE", f"{path}/model-key")
            agent = client.call("GET", path)
        show_agent(invocation, with_model_key(client, agent, model_key))


def put_settings(client: OperatorClient, path: str, before: Json, given: dict[str, Any]) -> Json:
    """The agent with what was given put in the place of what was read."""
    model = {name: before["model"].get(name) for name in ("kind", "name", "base_url")}
    kept = {
        "name": before["name"],
        "handle": before["handle"],
        "instructions": before["instructions"],
        "model": model,
        "limits": before["limits"],
        "retention_days": before.get("retention_days"),
        "version": before["version"],
    }
    return client.call("PUT", path, body=changed(given, kept))


def read_model_key(given: dict[str, Any]) -> str | None:
    """The model's key from standard input where it was asked for; the option leaves `given`."""
    return read_secret(True, "Model key", KEY_STDIN) if given.pop("key_stdin") else None


def with_model_key(client: OperatorClient, agent: Json, model_key: str | None) -> Json:
    """The agent, as it is once its model's key is kept; as it was without one."""
    if model_key is None:
        return agent
    path = f"/api/agents/{segment(agent['slug'])}"
    client.call("PUT", f"{path}/model-key", body={"value": model_key})
    return client.call("GET", path)


@group.command("pause")
@click.argument("slug")
@common
def pause(invocation: Invocation, slug: str) -> None:
    """Let an agent take in no message and begin no turn until it is resumed."""
    act(invocation, slug, "pause")


@group.command("resume")
@click.argument("slug")
@common
def resume(invocation: Invocation, slug: str) -> None:
    """Let a paused agent go on, with what waited first."""
    act(invocation, slug, "resume")


@group.command("delete")
@click.argument("slug")
@asked
@waited
@common
def delete(invocation: Invocation, slug: str, yes: bool, wait: bool) -> int:
    """Delete a paused agent with all that it has; audit rows alone stay.

    Its slug is given to no other agent for 90 days.
    """
    what = "with its connectors, its vault, its conversations and what waits in them,"
    make_sure(f"the agent {slug}, {what}", yes)
    with invocation.client() as client:
        return order(invocation, client, f"/api/agents/{segment(slug)}", wait)


def act(invocation: Invocation, slug: str, action: str) -> None:
    """One of the two actions on an agent."""
    with invocation.client() as client:
        answer = client.call("POST", f"/api/agents/{segment(slug)}/{action}")
    if invocation.as_json:
        invocation.terminal.document(answer)
    else:
        invocation.terminal.fields([("agent", slug), ("status", answer.get("status"))])


def show_agent(invocation: Invocation, agent: Json) -> None:
    """One agent, for people or as a document."""
    if invocation.as_json:
        invocation.terminal.document(agent)
        return
    model = agent["model"]
    invocation.terminal.fields(
        [
            ("agent", agent["slug"]),
            ("id", agent.get("agent_id")),
            ("name", agent["name"]),
            ("handle", f"@{agent['handle']}"),
            ("status", agent["status"]),
            ("model", " ".join(filter(None, (model["kind"], model.get("name"))))),
            ("model url", model.get("base_url")),
            ("model key", _MODEL_KEYS.get(model.get("credential_source"))),
            ("instructions", agent["instructions"] or None),
            *((f"limit {name}", value) for name, value in agent["limits"].items()),
            *((f"today {name}", value) for name, value in agent.get("today", {}).items()),
            ("retention", days(agent.get("retention_days"), "as the instance says")),
            ("created", when(agent.get("created_at"))),
            ("version", agent["version"]),
        ]
    )
