"""Owns how a text is cut to a bound of bytes.

Refuses to cut in silence, or within a character.
"""

from __future__ import annotations

from typing import Final

CUT: Final = " […]"
"""What stands at the end of a text that was cut."""


def bounded(text: str, bytes_max: int) -> str:
    """`text`, cut so that it has at most `bytes_max` bytes of UTF-8, with a mark that says so."""
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode()
    return data[: bytes_max - len(CUT.encode())].decode(errors="ignore") + CUT
