"""Owns what every command has in common: its options, its client, its errors, and the help's order.

Refuses to know any single command.
"""

from __future__ import annotations

import functools
import importlib.metadata
import io
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from mesh.operator.cli import reading, target
from mesh.operator.cli.failure import CommandError, of_api, of_silence
from mesh.operator.cli.terminal import Terminal
from mesh.operator.client import ApiError, OperatorClient, UnreachableError

if TYPE_CHECKING:
    import httpx

PLUGINS: Final = "mesh.commands"
"""The entry points through which a package adds a command to the command line."""

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(slots=True)
class Invocation:
    """One run of the command line: what was asked for, and where things are."""

    as_json: bool = False
    url: str | None = None
    token_file: Path | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    transport: httpx.BaseTransport | None = None
    """What a test puts in the network's place."""
    pause: Callable[[float], None] = time.sleep
    """Waits so many seconds between two looks."""

    @property
    def terminal(self) -> Terminal:
        """Where to print."""
        return Terminal(as_json=self.as_json)

    def target(self) -> target.Target:
        """The instance and the token. CommandError (2) when there is no address."""
        return target.find(self.url, self.token_file, self.environ)

    @contextmanager
    def client(self, *, token: bool = True, key: str | None = None) -> Iterator[OperatorClient]:
        """A client of the instance; its errors become the command's. `key`: of a minting inside."""
        where = self.target()
        if token and where.token is None:
            raise CommandError(target.NO_TOKEN, exit_code=2)
        client = OperatorClient(where.url, where.token if token else None, transport=self.transport)
        try:
            yield client
        except ApiError as error:
            raise of_api(error) from None
        except UnreachableError as error:
            raise of_silence(error, key) from None
        finally:
            client.close()


def common(function: _F) -> _F:
    """The options of every command, and its `Invocation` as the first argument."""

    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        context = click.get_current_context()
        return function(context.ensure_object(Invocation), *args, **options)

    return _options(run)  # type: ignore[return-value]  # the wrapper stands for the command


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--token-file",
            type=click.Path(path_type=Path, dir_okay=False),
            expose_value=False,
            callback=_keep("token_file"),
            help="A file that holds the operator token (else MESH_TOKEN).",
        ),
        click.option(
            "--url",
            expose_value=False,
            callback=_keep("url"),
            help="The gateway (else MESH_URL).",
        ),
        click.option(
            "--json",
            is_flag=True,
            expose_value=False,
            callback=_keep("as_json"),
            help="Print one JSON document.",
        ),
    ):
        function = option(function)
    return function


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value:
            setattr(context.ensure_object(Invocation), name, value)

    return keep


def fresh_key() -> str:
    """An Idempotency-Key for one minting."""
    return uuid.uuid4().hex


def read_secret(from_stdin: bool, prompt: str, option: str = "--secret-stdin") -> str:
    """A secret from standard input or from a hidden prompt. CommandError (2).

    Of standard input it is everything, less a byte order mark and one line's end. `option` is what
    says that it is to be read from there.
    """
    if from_stdin:
        if isinstance(sys.stdin, io.TextIOWrapper):  # else every CR LF in it would become LF
            sys.stdin.reconfigure(encoding="utf-8", errors="strict", newline="")
        try:
            text = reading.whole(sys.stdin, "standard input")
            text.encode()  # what is not UTF-8 may have come as lone surrogates
        except UnicodeError:
            raise CommandError("the secret is not UTF-8 text", exit_code=2) from None
        text = _less_one_end(text)
    elif sys.stdin.isatty():
        text = click.prompt(prompt, hide_input=True, err=True)
    else:
        raise CommandError(
            f"no terminal to ask for the secret: give {option} and pipe it in", exit_code=2
        )
    return _not_empty(text)


def read_secret_file(path: Path) -> str:
    """A secret that a file holds, less a byte order mark and one line's end. CommandError (2)."""
    try:
        text = reading.bytes_of(path).decode()
    except (OSError, UnicodeDecodeError):
        raise CommandError(f"{path} cannot be read as UTF-8 text", exit_code=2) from None
    return _not_empty(_less_one_end(text))


def _less_one_end(text: str) -> str:
    return text.removeprefix("\ufeff").removesuffix("\n").removesuffix("\r")


def _not_empty(text: str) -> str:
    if not text.strip():
        raise CommandError("the secret is empty", exit_code=2)
    return text


def read_text(value: str) -> str:
    """TEXT itself, or what the file holds when it is @FILE. CommandError (2)."""
    if not value.startswith("@"):
        return value
    try:
        with Path(value[1:]).open(encoding="utf-8") as file:
            return reading.whole(file, value[1:])
    except (OSError, UnicodeDecodeError):
        raise CommandError(f"{value[1:]} cannot be read as UTF-8 text", exit_code=2) from None


class Sections(click.Group):
    """A group whose help sorts its commands by what they are for, plug-ins among them."""

    sections: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command of its own, or one that a plug-in brings."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for point in importlib.metadata.entry_points(group=PLUGINS, name=cmd_name):
            try:
                loaded = point.load()
            except ImportError:
                return None  # the package is there and what it needs is not
            return loaded if isinstance(loaded, click.Command) else None
        return None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, in the order of the sections."""
        names = set(super().list_commands(ctx))
        names |= {point.name for point in importlib.metadata.entry_points(group=PLUGINS)}
        ordered = [name for _, section in self.sections for name in section if name in names]
        return ordered + sorted(names - set(ordered))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, a section at a time."""
        left = self.list_commands(ctx)
        rest = tuple(name for name in left if all(name not in names for _, names in self.sections))
        for title, names in (*self.sections, ("Others", rest)):
            lines = []
            for name in names:
                command = self.get_command(ctx, name) if name in left else None
                if command is not None and not command.hidden:
                    lines.append((name, command.get_short_help_str(limit=58)))
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)
