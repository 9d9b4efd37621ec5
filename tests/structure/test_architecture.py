"""The page for newcomers names what there is: packages, files, and what writes each row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
MESH: Final = ROOT / "layers/mesh/python/mesh"
PAGE: Final = (ROOT / "ARCHITECTURE.md").read_text()


def rows_of(heading: str) -> list[tuple[str, str]]:
    """The first two cells of each row of the table that begins so."""
    table = PAGE[PAGE.index(heading) :].partition("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return [(each[0], each[-1]) for each in cells]


def test_every_package_is_told_of_and_no_other() -> None:
    told = {
        name
        for folder, _ in rows_of("| folder | what |")
        for name in re.findall(r"`…/(\w+)/`", folder)
    }
    packages = {each.parent.name for each in MESH.glob("*/__init__.py")}
    assert told == packages


def test_every_module_that_is_said_to_write_a_row_is_there() -> None:
    named = {
        path
        for _, writers in rows_of("| row | written by |")
        for path in re.findall(r"`([a-z_/]+(?:\.py|/))`", writers)
    }
    assert len(named) > 30
    assert [path for path in sorted(named) if not (MESH / path).exists()] == []


def test_what_cannot_happen_is_numbered_in_order() -> None:
    part = PAGE[PAGE.index("## What cannot happen") : PAGE.index("## Storage")]
    numbers = [int(each) for each in re.findall(r"^(\d+)\. ", part, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/operating.md", "docs/web-access.md"])
def test_every_decision_that_a_page_leads_to_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    for name in re.findall(r"docs/decisions/[a-z-]+\.md", text):
        assert (ROOT / name).exists(), name
