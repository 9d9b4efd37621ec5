"""Owns the code blocks of the documents, as tests run them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^```(?P<info>[a-z]+(?: [a-z]+)?)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


def blocks(document: str) -> dict[str, str]:
    """The document's blocks by their info string. AssertionError where one stands twice."""
    found: dict[str, str] = {}
    for match in _BLOCK.finditer((ROOT / document).read_text(encoding="utf-8")):
        info = match["info"]
        assert info not in found or info == "json", f"{document} has two blocks {info!r}"
        found[info] = match["code"]
    return found
