"""Owns what every command that deletes has in common: the question before it, the order, the wait.

Refuses to delete unasked: without a terminal it needs --yes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from mesh.operator.cli.command import Invocation
from mesh.operator.cli.failure import CommandError
from mesh.operator.cli.jobs import ended, tell
from mesh.operator.client import OperatorClient

_F = TypeVar("_F", bound=Callable[..., Any])


def asked(function: _F) -> _F:
    """The option of a command that asks first."""
    return click.option("--yes", is_flag=True, help="Do not ask.")(function)


def waited(function: _F) -> _F:
    """The option of a command that orders a job."""
    return click.option("--wait", is_flag=True, help="Until everything is erased.")(function)


def make_sure(what: str, yes: bool) -> None:
    """Asks whether `what` is to be deleted for good. CommandError (2) where nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("deleting is for good: give --yes", exit_code=2)
    click.confirm(f"Delete {what} for good?", abort=True, err=True)


def order(invocation: Invocation, client: OperatorClient, path: str, wait: bool) -> int:
    """Orders the deletion, waits for its job if asked to, and tells of it; the exit code."""
    job = client.call("DELETE", path)
    return tell(invocation, ended(invocation, client, job) if wait else job)
