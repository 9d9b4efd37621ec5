"""Owns `mesh operator …`, `mesh login` and `mesh whoami`: tokens, and which one is used.

Refuses to show a token twice, or to take one as an argument.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from mesh.operator.cli import target
from mesh.operator.cli.command import Invocation, common, fresh_key, read_secret
from mesh.operator.cli.failure import CommandError, of_api, of_silence
from mesh.operator.cli.lists import Paging, paged, parameters, show_list
from mesh.operator.cli.terminal import when
from mesh.operator.client import (
    ApiError,
    BadUrlError,
    Json,
    OperatorClient,
    UnreachableError,
    checked_url,
    segment,
)

ROLES: Final = ("admin", "operator", "viewer")
ONCE: Final = "This token is shown once. Keep it now; a lost one is revoked and replaced."


@click.group("operator")
def group() -> None:
    """Operators' tokens: create, list, update, revoke, bootstrap."""


@group.command("create")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True)
@click.option("--agent", "agents", multiple=True, metavar="SLUG", help="An agent that it reaches.")
@click.option("--expires-in-days", type=click.IntRange(min=1), help="90 when left out.")
@click.option("--idempotency-key", metavar="K", help="Makes a repeated call harmless.")
@common
def create(
    invocation: Invocation,
    *,
    name: str,
    role: str,
    agents: tuple[str, ...],
    expires_in_days: int | None,
    idempotency_key: str | None,
) -> None:
    """Mint a token for an operator, and show it once."""
    key = idempotency_key or fresh_key()
    body: dict[str, Any] = {"name": name, "role": role}
    if agents:
        body["agents"] = list(agents)
    if expires_in_days is not None:
        body["expires_in_days"] = expires_in_days
    with invocation.client(key=key) as client:
        made = client.call("POST", "/api/operators", body=body, idempotency_key=key)
    if invocation.as_json:
        invocation.terminal.document(made)
        return
    show_operator(invocation, made)
    invocation.terminal.fields([("token", made.get("token"))])
    if made.get("token"):
        invocation.terminal.say(f"\n{ONCE}")
    else:
        invocation.terminal.say("\nThe same call was made before; its token is not shown again.")


@group.command("list")
@paged
@common
def list_operators(invocation: Invocation, **given: Any) -> None:
    """List operators, those revoked among them."""
    paging = Paging(**given)
    with invocation.client() as client:
        show_list(
            invocation,
            client.pages("/api/operators", parameters(paging)),
            paging,
            ("OPERATOR", "NAME", "ROLE", "AGENTS", "EXPIRES"),
            lambda each: (
                each["id"],
                each["name"],
                each["role"],
                reach(each),
                "revoked" if each.get("revoked_at") else when(each.get("expires_at")),
            ),
        )


@group.command("update")
@click.argument("operator_id", metavar="ID")
@click.option("--name")
@click.option("--role", type=click.Choice(ROLES))
@click.option("--agent", "agents", multiple=True, metavar="SLUG", help="Replaces the list.")
@click.option("--all-agents", is_flag=True, help="Reach every agent (viewers and admins).")
@common
def update(
    invocation: Invocation,
    *,
    operator_id: str,
    name: str | None,
    role: str | None,
    agents: tuple[str, ...],
    all_agents: bool,
) -> None:
    """Change an operator's name, role or agents."""
    if name is None and role is None and not agents and not all_agents:
        raise CommandError("nothing to change: give at least one option", exit_code=2)
    with invocation.client() as client:
        before = next(
            (each for each in client.items("/api/operators") if each["id"] == operator_id), None
        )
        if before is None:
            raise CommandError(f"no operator {operator_id}; see: mesh operator list")
        body: dict[str, Any] = {
            "name": name or before["name"],
            "role": role or before["role"],
            "version": before["version"],
        }
        kept = None if body["role"] == "admin" or all_agents else before.get("agents")
        if agents or kept is not None:
            body["agents"] = list(agents) or kept
        path = f"/api/operators/{segment(operator_id)}"
        show_operator(invocation, client.call("PUT", path, body=body), alone=True)


@group.command("revoke")
@click.argument("operator_id", metavar="ID")
@common
def revoke(invocation: Invocation, operator_id: str) -> None:
    """Let a token stop working, for good."""
    with invocation.client() as client:
        client.call("DELETE", f"/api/operators/{segment(operator_id)}")
    if invocation.as_json:
        invocation.terminal.document({"id": operator_id, "revoked": True})
    else:
        invocation.terminal.say(f"{operator_id} is revoked; it stops within 30 s everywhere")


@group.command("bootstrap")
@click.option("--function", "function_name", required=True, metavar="NAME", help="As deployed.")
@click.option("--region", metavar="R", help="Else the AWS settings of this machine.")
@click.option("--name", default="bootstrap", show_default=True, help="Whose token it is.")
@common
def bootstrap(invocation: Invocation, *, function_name: str, region: str | None, name: str) -> None:
    """Mint an admin token by invoking the deployed function, with AWS's own permission."""
    from mesh.storage.functions import FunctionCallError, call_function

    try:
        made = call_function(function_name, {"name": name}, region=region)
    except FunctionCallError as error:
        raise CommandError(str(error)) from None
    if invocation.as_json:
        invocation.terminal.document(made)
        return
    invocation.terminal.fields([("operator", made.get("id")), ("token", made.get("token"))])
    invocation.terminal.say(f"\n{ONCE}\nnext: mesh login")


@click.command("login")
@click.option("--token-stdin", is_flag=True, help="Read the token from standard input.")
@common
def login(invocation: Invocation, *, token_stdin: bool) -> None:
    """Keep the gateway's address and a token for this user (mode 0600)."""
    url = invocation.url or invocation.environ.get("MESH_URL")
    if url is None:
        if not sys.stdin.isatty():
            raise CommandError(target.NO_URL, exit_code=2)
        url = click.prompt("URL of the gateway", err=True)
    if invocation.token_file is not None:
        token = target.find(url, invocation.token_file, invocation.environ).token
    else:
        token = target.checked_token(read_secret(token_stdin, "operator token", "--token-stdin"))
    try:
        where = target.Target(checked_url(url), token)
    except BadUrlError as error:
        raise CommandError(str(error), exit_code=2) from None
    client = OperatorClient(where.url, where.token, transport=invocation.transport)
    try:
        me = client.call("GET", "/api/whoami")
    except ApiError as error:
        raise of_api(error) from None
    except UnreachableError as error:
        raise of_silence(error) from None
    finally:
        client.close()
    path = target.write_login(where, invocation.environ)
    if invocation.as_json:
        invocation.terminal.document({"url": where.url, "kept_in": str(path), "whoami": me})
    else:
        show_operator(invocation, me)
        invocation.terminal.say(f"\nkept in {path}")


@click.command("whoami")
@common
def whoami(invocation: Invocation) -> None:
    """Show whose token is used, and what it may do."""
    with invocation.client() as client:
        show_operator(invocation, client.call("GET", "/api/whoami"), alone=True)


def reach(each: Json) -> object:
    """The agents that a token reaches."""
    agents = each.get("agents")
    return "all" if agents is None else agents


def show_operator(invocation: Invocation, each: Json, *, alone: bool = False) -> None:
    """An operator, for people; as a document when it is all that is printed."""
    if alone and invocation.as_json:
        invocation.terminal.document(each)
        return
    invocation.terminal.fields(
        [
            ("operator", each.get("id")),
            ("name", each.get("name")),
            ("role", each.get("role")),
            ("agents", reach(each)),
            ("expires", when(each.get("expires_at"))),
        ]
    )
