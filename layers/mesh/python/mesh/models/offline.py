"""Owns the built-in model: deterministic, without a network, and open about what it is.

Refuses to pretend: it quotes the message that it answers, and says that no language model read it.
"""

from __future__ import annotations

from mesh.kernel.limits import CHARACTERS_A_TOKEN, OFFLINE_QUOTE_CHARACTERS
from mesh.models.contract import ModelAnswer, ModelRequest, Usage


class OfflineModel:
    """Answers every message with a quotation of its first 500 characters."""

    def answer(self, request: ModelRequest, timeout_s: float) -> ModelAnswer:  # noqa: ARG002 - takes no time
        """Never fails, and takes no time.

        It has no tokens, so its usage is an estimate: one for every four characters begun.
        """
        asked = request.lines[-1].text
        quoted = asked[:OFFLINE_QUOTE_CHARACTERS]
        ending = "…" if len(asked) > len(quoted) else ""
        text = (
            "I am Mesh's offline model: I run without a language model, so I can only say that I "
            f"received this message:\n\n{quoted}{ending}"
        )
        read = len(request.instructions) + sum(len(line.text) for line in request.lines)
        return ModelAnswer(text, Usage(_tokens(read), _tokens(len(text))))


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_A_TOKEN)
