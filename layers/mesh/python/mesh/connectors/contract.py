"""Owns the seam that every message surface fills: from a request to a `NormalizedMessage`.

Refuses to know any surface; code after normalization is the same for all of them.
"""

from __future__ import annotations

from typing import Protocol

from mesh.connectors.http import HttpRequest
from mesh.records.message import NormalizedMessage


class Normalizer(Protocol):
    """Turns a request whose signature has been verified into the utterance that it carries."""

    def __call__(self, request: HttpRequest, /) -> NormalizedMessage:
        """The one utterance of `request`.

        Raises `Invalid` with every problem that was found; reads nothing but its argument.
        """
        ...
