"""Owns how a command fails: one line that says what to do, and an exit code.

Refuses a traceback for anything that an operator can mend. 1 is refused or failed, 2 bad usage, 3
try again later.
"""

from __future__ import annotations

import re
from typing import Final

from mesh.operator.client import ApiError, UnreachableError

REFUSED: Final = 1
USAGE: Final = 2
LATER: Final = 3

_LISTS: Final = (
    (re.compile(r"/api/agents/([^/?]+)/vault/"), r"mesh vault list --agent \1"),
    (re.compile(r"/api/agents/([^/?]+)/model-key"), r"mesh agent show \1"),
    (re.compile(r"/api/agents/([^/?]+)/actors/"), r"mesh conversation list --agent \1"),
    (re.compile(r"/api/agents"), "mesh agent list"),
    (re.compile(r"/api/connectors"), "mesh connector list"),
    (re.compile(r"/api/conversations"), "mesh conversation list"),
    (re.compile(r"/api/outbox"), "mesh outbox list"),
    (re.compile(r"/api/(?:runs|explain)"), "mesh run list"),
    (re.compile(r"/api/operators"), "mesh operator list"),
)
"""Where to look for what was not found, by the innermost thing that the path names: the first that
fits. Where that list has no owner either, its own failure names the next."""


_WEB_ACCESS: Final = re.compile(r"/api(?:/agents/([^/?]+))?/web-access/([^/?]+)")


class CommandError(Exception):
    """A command cannot do what it was asked. The message is the one line that is shown."""

    def __init__(self, message: str, exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def of_api(error: ApiError) -> CommandError:
    """What an operator is told of an answer that was no success."""
    text = error.message.rstrip(".")
    problems = [f"{f.get('path') or 'body'}: {f.get('problem')}" for f in error.fields]
    if problems:
        text += f" ({'; '.join(problems)})"
    if error.status == 401:
        text = (
            "the token is not accepted: it is unknown, expired or revoked; give another by "
            "MESH_TOKEN, --token-file or `mesh login`"
        )
    elif error.code == "version_conflict":
        look = _where_it_is_shown(error.path)
        text += f"; somebody changed it meanwhile: look with `{look}`, then run the command again"
    elif error.status == 404 and not error.code:
        text = "this address has no such route: is MESH_URL the gateway of a Mesh of this version?"
    elif error.status == 404:
        text += _where_to_look(error.path)
    elif error.status == 403:
        text += "; see: mesh whoami"
    elif error.later:
        wait = f" in {error.retry_after} s" if error.retry_after else " later"
        text += f"; try again{wait}"
    if error.request_id and error.status not in (401, 404, 422):
        text += f" [{error.request_id}]"
    return CommandError(text, LATER if error.later else REFUSED)


def _where_to_look(path: str) -> str:
    """The command that lists what the path names, as the end of a line; nothing where none does."""
    for named, command in _LISTS:
        found = named.search(path)
        if found is not None:
            return f"; see: {found.expand(command)}"
    return ""


def _where_it_is_shown(path: str) -> str:
    """The command that shows what stands where a change came too late."""
    found = _WEB_ACCESS.search(path)
    if found is None:
        return "show"
    agent = "" if found[1] is None else f" --agent {found[1]}"
    return f"mesh web show {found[2]}{agent}"


def of_silence(error: UnreachableError, idempotency_key: str | None = None) -> CommandError:
    """What an operator is told when no answer came."""
    text = str(error)
    if error.later:
        text += "; try again later"
    if error.sent and idempotency_key is not None:
        text += f", with --idempotency-key {idempotency_key} so that nothing is made twice"
    return CommandError(text, LATER if error.later else REFUSED)
