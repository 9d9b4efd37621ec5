"""Owns the command line `mesh`: its commands, and how it ends.

Refuses a traceback for what an operator can mend: one line on standard error, and exit 1 (refused
or failed), 2 (bad usage) or 3 (try again later).
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from mesh.operator.cli import (
    actors,
    agent_apply,
    agent_export,
    agents,
    connectors,
    conversations,
    doctor,
    happened,
    instance,
    jobs,
    notes,
    operators,
    outbox,
    restore,
    secrets as secret_commands,
    smoke,
    third_party,
    tools,
    vault,
    web,
)
from mesh.operator.cli.command import Invocation, Sections
from mesh.operator.cli.failure import REFUSED, USAGE, CommandError
from mesh.operator.cli.terminal import clean
from mesh.operator.client import BadHeaderError, BadNameError, BadUrlError


class _Mesh(Sections):
    sections = (
        ("Start here", ("local", "login", "whoami")),
        (
            "Agents and where they are reached",
            ("agent", "connector", "vault", "tool", "web", "note"),
        ),
        ("What happened", ("explain", "conversation", "actor", "run", "outbox", "job", "audit")),
        ("The third party's side", ("send", "verify")),
        ("The instance", ("doctor", "instance", "operator", "secret", "restore", "smoke")),
    )


@click.group(
    "mesh",
    cls=_Mesh,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Exit codes: 0 done, 1 refused or failed, 2 bad usage, 3 try again later.",
)
@click.version_option(package_name="mesh", prog_name="mesh")
@click.pass_context
def cli(context: click.Context) -> None:
    """The operator's command line of Mesh.

    It talks to the gateway that MESH_URL names, with the token in MESH_TOKEN; or with those that
    `mesh login` kept. Every command takes --json.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (
    actors.group,
    agents.group,
    connectors.group,
    conversations.group,
    outbox.group,
    happened.run,
    happened.explain,
    happened.audit,
    jobs.group,
    instance.group,
    vault.group,
    tools.group,
    web.group,
    notes.group,
    secret_commands.group,
    restore.group,
    doctor.doctor,
    operators.group,
    operators.login,
    operators.whoami,
    third_party.send,
    third_party.verify,
    smoke.smoke,
):
    cli.add_command(_command)


for _command in (agent_export.export, agent_apply.apply):
    agents.group.add_command(_command)


def run(arguments: Sequence[str], invocation: Invocation | None = None) -> int:
    """Runs one command line; the exit code. Every failure is one line on standard error."""
    if any("\ud800" <= char <= "\udfff" for argument in arguments for char in argument):
        return _fail("an argument is not text in this terminal's encoding", USAGE)
    try:
        ended = cli.main(
            args=list(arguments),
            prog_name="mesh",
            standalone_mode=False,
            obj=invocation or Invocation(),
        )
    except CommandError as error:
        return _fail(str(error), error.exit_code)
    except (BadUrlError, BadHeaderError, BadNameError) as error:
        return _fail(str(error), USAGE)
    except click.exceptions.NoArgsIsHelpError as error:  # its message is the whole help
        return _fail(f"a command is missing. See: {error.ctx.command_path} --help", USAGE)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "mesh"
        return _fail(f"{error.format_message()} See: {path} --help", USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("stopped", REFUSED)
    except BrokenPipeError:  # whoever read has closed
        _drop_output()
        return REFUSED
    except OSError as error:
        _drop_output()
        where = f"{error.filename}: " if error.filename is not None else ""
        return _fail(f"{where}{error.strerror or 'it cannot be read or written'}", REFUSED)
    return ended if isinstance(ended, int) else 0


def _drop_output() -> None:
    """Lets nothing that is left be flushed at the end of the process, to fail there once more."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> int:
    lines = " ".join(part.strip() for part in message.splitlines() if part.strip())
    click.echo(f"mesh: {clean(lines)}", err=True)
    return code


def main() -> None:
    """The entry point of the command `mesh`."""
    # A shell may close one of these (`>&-`): Python then has None in its place.
    nothing = Path(os.devnull)
    sys.stdin = sys.stdin or nothing.open(encoding="utf-8")
    sys.stdout = sys.stdout or nothing.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nothing.open("w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names from outside are of every script
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))
