"""The page on backup names commands, settings and names that are there."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from infra.settings import Environment, environments
from infra.topology import TABLE
from tests.docs.blocks import assert_is_there, commands

PAGE = (Path(__file__).parents[2] / "docs" / "backup.md").read_text()
COMMANDS = sorted(commands(PAGE))


def test_the_page_names_commands() -> None:
    assert "mesh restore finish --yes --wait" in COMMANDS


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_on_the_page_is_there_with_its_options(line: str) -> None:
    assert_is_there(line)


def test_the_settings_and_names_on_the_page_are_those_of_the_environments() -> None:
    known = {field.name for field in fields(Environment)}
    assert set(re.findall(r"`(\w+)=[^`]+`", PAGE)) <= known
    prod = environments({})["prod"]
    assert f"--source-table-name {prod.prefix} " in PAGE
    assert f"alias/{prod.prefix}-table" in PAGE
    assert f"AttributeName={TABLE.ttl}" in PAGE
