"""Owns that an acting account belongs to one agent: the row that says which.

Refuses the same account for a second one, by a condition in the very transaction that keeps the
account's credential. Seed 000, "What they do share": two agents never share an acting account.
"""

from __future__ import annotations

from mesh.kernel.errors import Conflict, FieldProblem, Invalid
from mesh.records.value import Account
from mesh.security.urls import Refusal, parse, target_of
from mesh.storage import keys
from mesh.storage.writes import Write, delete, put

_OURS = "attribute_not_exists(#pk) OR (#agent_id = :agent_id AND #value = :value)"


def account_of(origin: str, name: str) -> Account:
    """The account `name` at `origin`, such as `https://github.com`. Raises Invalid."""
    parts = parse(origin)
    target = None if isinstance(parts, Refusal) else target_of(parts)
    if target is None or target.scheme != "https" or target.path not in ("", "/"):
        problem = FieldProblem("account.origin", "must be https:// and a host, with nothing behind")
        raise Invalid("invalid_request", "the account is not valid", (problem,))
    return Account(origin=f"https://{target.authority}", name=name.strip())


def taking(agent_id: str, value: str, account: Account) -> Write:
    """The write that makes the account this agent's, for the transaction that keeps its value."""
    item = {"agent_id": agent_id, "value": value}
    key = keys.account(account.origin, account.name)
    return put(key, item, _OURS, agent_id=agent_id, value=value)


def leaving(agent_id: str, value: str, account: Account) -> Write:
    """The write that gives the account free, for the transaction that forgets its value."""
    key = keys.account(account.origin, account.name)
    return delete(key, _OURS, agent_id=agent_id, value=value)


def taken(account: Account) -> Conflict:
    """What is answered where the account is kept already: for another agent, or another name."""
    return Conflict(
        "already_exists",
        f"the account {account.name} at {account.origin} is kept already, and an acting account"
        " belongs to one agent, under one name; give this agent an account of its own",
    )
