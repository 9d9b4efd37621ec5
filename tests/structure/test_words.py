"""The project speaks of itself alone, in its own words, and every module says what it owns."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from infra import layers

ROOT = layers.ROOT

SAID_NOWHERE = (
    r"/work/|/root/|/home/[a-z]|/tmp/[a-z]",  # a machine's own paths
    r"\b[Ii]ssue #?\d+|\(#\d+\)",  # a tracker's numbers
    r"pypi\.org|pythonhosted|registry\.npmjs|files\.pypi",  # hosts that packages come from
)

NAMES_REFUSED = re.compile(r"(^|_)(manager|helpers?|utils?|service)(_|$)", re.IGNORECASE)


AWS_NOUNS = {"infra/local/aws/wire.py: Service"}
"""The embedded AWS speaks AWS's words, in which DynamoDB is a service."""


def _written() -> list[Path]:
    """Every text file that belongs to the project."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [
        ROOT / name
        for name in listed.split("\0")
        if name.endswith((".py", ".md", ".toml", ".txt", ".json", ".html")) or name == "Makefile"
    ]


def _modules() -> list[Path]:
    return [
        file
        for top in ("layers/mesh/python/mesh", "infra", "functions")
        for file in sorted((ROOT / top).rglob("*.py"))
    ]


@pytest.mark.parametrize("pattern", SAID_NOWHERE)
def test_no_file_speaks_of_a_machine_a_tracker_or_a_package_host(pattern: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in _written()
        if file != Path(__file__) and file.exists()
        for match in [re.search(pattern, file.read_text(errors="replace"))]
        if match
    ]
    assert found == []


def test_every_module_says_what_it_owns() -> None:
    silent = [
        str(file.relative_to(ROOT))
        for file in _modules()
        if file.read_text().strip() and not ast.get_docstring(ast.parse(file.read_text()))
    ]
    assert silent == []


def test_no_name_says_that_it_could_not_find_one() -> None:
    vague = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in _modules()
        for name in [file.stem, *_defined(file)]
        if NAMES_REFUSED.search(name)
    ]
    assert set(vague) <= AWS_NOUNS


def _defined(file: Path) -> list[str]:
    return [
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_locks_name_every_package_with_hashes_and_no_address() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text()
        assert "://" not in text
        for line in text.splitlines():
            assert line.startswith((" ", "#")) or not line or line.endswith("\\"), line
        for entry in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
            assert not entry.strip() or "--hash=sha256:" in entry, entry


def test_a_function_never_runs_another_version_than_the_tests_did() -> None:
    def versions(lock: Path) -> set[str]:
        return set(re.findall(r"^\S+==\S+", lock.read_text(), re.MULTILINE))

    tested = versions(ROOT / "requirements" / "dev.txt")
    for lock in (ROOT / "requirements").glob("*.txt"):
        assert versions(lock) <= tested, lock.name
