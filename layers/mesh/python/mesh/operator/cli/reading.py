"""Owns how much a command reads of a file or of standard input.

Refuses more than any command has a use for: a device, or the wrong file, never fills the memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, AnyStr, Final

from mesh.operator.cli.failure import CommandError

READ_MAX: Final = 8 * 1024 * 1024
"""Bytes, or characters where text is read: far above what the API takes of anything."""


def bytes_of(path: Path) -> bytes:
    """What a file holds. Raises OSError; CommandError (2) where it is too large."""
    with path.open("rb") as file:
        return whole(file, str(path))


def whole(stream: IO[AnyStr], name: str) -> AnyStr:
    """All that a stream has, which errors call `name`. CommandError (2) where that is too much."""
    read = stream.read(READ_MAX + 1)
    if len(read) > READ_MAX:
        raise CommandError(f"{name} is too large: at most 8 MiB are read", exit_code=2)
    return read
