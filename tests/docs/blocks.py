"""Owns the code blocks and command lines of the documents, as tests run them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from mesh.operator.cli.main import cli

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^```(?P<info>[a-z]+(?: [a-z]+)?)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_IN_LINE = re.compile(r"`(mesh [^`]+)`")
_INDENTED = re.compile(r"^ +(mesh .+)$", re.MULTILINE)


def commands(page: str) -> set[str]:
    """The command lines in a page's text, and in its indented blocks."""
    return {*_IN_LINE.findall(page), *_INDENTED.findall(page)}


def assert_is_there(line: str) -> list[str]:
    """Holds that a command line names a command that there is, with options that it has. Its words
    behind the command's own name."""
    command: click.Command = cli
    words = shlex.split(line)[1:]
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    return words


def blocks(document: str) -> dict[str, str]:
    """The document's blocks by their info string. AssertionError where one stands twice."""
    found: dict[str, str] = {}
    for match in _BLOCK.finditer((ROOT / document).read_text(encoding="utf-8")):
        info = match["info"]
        assert info not in found or info == "json", f"{document} has two blocks {info!r}"
        found[info] = match["code"]
    return found
