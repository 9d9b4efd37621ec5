"""Owns the built-in model: deterministic, without a network, and open about what it is.

Refuses to pretend: it quotes the message that it answers, and says that no language model read it.
"""

from __future__ import annotations

from mesh.kernel.limits import OFFLINE_QUOTE_CHARACTERS
from mesh.models import tokens
from mesh.models.contract import ModelAnswer, ModelRequest, Stop, Text, Usage


class OfflineModel:
    """Answers every message with a quotation of its first 500 characters, and calls no tool."""

    def answer(self, request: ModelRequest, timeout_s: float) -> ModelAnswer:  # noqa: ARG002 - takes no time
        """Never fails, and takes no time."""
        quoted = request.question[:OFFLINE_QUOTE_CHARACTERS]
        ending = "…" if len(request.question) > len(quoted) else ""
        said = Text(
            "I am Mesh's offline model: I run without a language model, so I can only say that I "
            f"received this message:\n\n{quoted}{ending}"
        )
        return ModelAnswer(
            text=said.text,
            calls=(),
            stop=Stop.END,
            usage=Usage(tokens.of_request(request), tokens.of_parts((said,)), estimated=True),
            keep=(said,),
        )
