"""The page on backup names commands, settings and names that are there."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

import click
import pytest

from infra.settings import Environment, environments
from infra.topology import TABLE
from mesh.operator.cli.main import cli

PAGE = (Path(__file__).parents[2] / "docs" / "backup.md").read_text()
_IN_LINE = re.compile(r"`(mesh [^`]+)`")
_IN_BLOCK = re.compile(r"^ +(mesh .+)$", re.MULTILINE)
COMMANDS = sorted({*_IN_LINE.findall(PAGE), *_IN_BLOCK.findall(PAGE)})


def test_the_page_names_commands() -> None:
    assert "mesh restore finish --yes --wait" in COMMANDS


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_on_the_page_is_there_with_its_options(line: str) -> None:
    command: click.Command = cli
    words = shlex.split(line)[1:]
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_settings_and_names_on_the_page_are_those_of_the_environments() -> None:
    known = {field.name for field in fields(Environment)}
    assert set(re.findall(r"`(\w+)=[^`]+`", PAGE)) <= known
    prod = environments({})["prod"]
    assert f"--source-table-name {prod.prefix} " in PAGE
    assert f"alias/{prod.prefix}-table" in PAGE
    assert f"AttributeName={TABLE.ttl}" in PAGE
