"""What a command reads is bounded: a device, or the wrong file, never fills the memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mesh.operator.cli.reading import READ_MAX
from tests.unit.cli.test_commands import INSTALL, Api, Line, api, mesh, one_line, piped

__all__ = ["api", "mesh", "piped"]


@pytest.fixture
def huge(tmp_path: Path) -> str:
    """A file that is a byte too large, and takes no room on the disk."""
    path = tmp_path / "huge"
    with path.open("wb") as file:
        os.truncate(file.fileno(), READ_MAX + 1)
    return str(path)


@pytest.mark.parametrize(
    "line",
    [
        ("agent", "apply", "{}"),
        ("agent", "create", "ada", "--instructions", "@{}"),
        ("vault", "set", "pw", "--agent", "ada", "--value-file", "{}"),
        ("connector", "simulate", INSTALL, "{}"),
        ("verify", "--headers", "{}", "--body", "{}"),
        ("whoami", "--token-file", "{}"),
    ],
    ids=lambda line: " ".join(line[:2]),
)
def test_a_file_that_is_too_large_is_one_line_and_no_request(
    mesh: Line, api: Api, huge: str, line: tuple[str, ...]
) -> None:
    code, _, err = mesh(*(word.format(huge) for word in line))
    assert code == 2
    assert "too large" in one_line(err)
    assert api.requests == []


def test_standard_input_is_bounded_too(mesh: Line, api: Api, piped: Callable[[str], None]) -> None:
    piped("x" * (READ_MAX + 1))
    code, _, err = mesh("vault", "set", "pw", "--agent", "ada", "--value-stdin")
    assert (code, api.requests) == (2, [])
    assert one_line(err) == "mesh: standard input is too large: at most 8 MiB are read\n"


def test_a_token_that_nobody_can_be_asked_for_is_read_by_the_option_that_is_named(
    mesh: Line, piped: Callable[[str], None]
) -> None:
    piped("")
    code, _, err = mesh("login")
    assert (code, "--token-stdin" in one_line(err)) == (2, True)
