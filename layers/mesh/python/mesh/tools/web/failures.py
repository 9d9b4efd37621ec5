"""Owns what a model is told of a request that brought no result: which provider, how far it got,
what kept it, and what can be done.

Refuses whatever the provider wrote, its address and its key. Seed 001, "Runtime contracts".
"""

from __future__ import annotations

import math
from typing import Final

from mesh.records.connection import Provider
from mesh.tools.web.contract import FailureKind, ProviderFailure, Stage

_OPERATOR: Final = "Only an operator can mend that; do not try it again in this run."

_STAGES: Final = {
    Stage.CREDENTIAL: "before anything was sent",
    Stage.REQUEST: "no answer came, so it is not known whether the request arrived",
    Stage.ANSWER: "the provider answered without a result",
    Stage.PAGE: "the provider answered that it could not read the page",
}

_AT_THE_CREDENTIAL: Final = {
    FailureKind.AUTHORIZATION: f"The key that is kept does not open, or can be no key. {_OPERATOR}",
    FailureKind.UNAVAILABLE: "The key could not be opened just now. Another attempt may go better.",
    FailureKind.REFUSED: f"The settings of the connection are not what it takes. {_OPERATOR}",
}

_AT_THE_PAGE: Final = {
    FailureKind.TIMEOUT: "The page took too long. It may be slow; another source may serve.",
    FailureKind.UNREACHABLE: "The page could not be reached. Look whether its URL is right.",
    FailureKind.UNAVAILABLE: "The page broke off while it was read. Another source may serve.",
    FailureKind.REFUSED: "The provider does not read that page. Use another source.",
    FailureKind.TOO_LARGE: "The page is larger than is read. Use another source.",
    FailureKind.HTTP_ERROR: "The page answered with an error. Look whether its URL is right.",
    FailureKind.EMPTY: "There is no text on the page. Use another source.",
}

_OTHERWISE: Final = {
    FailureKind.AUTHORIZATION: (
        "The provider does not take the key, or the key may not do this: an operator must set it"
        " again, or see to its permissions and the account's terms. Do not try it again in this"
        " run."
    ),
    FailureKind.RATE: (
        "The provider takes fewer requests than were made, or its time for the account is used up."
        " Wait, or go on without it."
    ),
    FailureKind.QUOTA: f"The account's allowance or credit is used up. {_OPERATOR}",
    FailureKind.TIMEOUT: "It took too long. Another attempt may go better, and counts as well.",
    FailureKind.UNREACHABLE: (
        "The provider could not be reached. Another attempt may go better, and counts as well."
    ),
    FailureKind.MALFORMED: "What came is no answer of the provider's. Go on without it.",
    FailureKind.TOO_LARGE: "The answer is larger than is read. Ask for something else.",
    FailureKind.REFUSED: "The provider does not do what it was asked. Ask otherwise.",
    FailureKind.UNAVAILABLE: (
        "The provider has an error of its own. Another attempt may go better, and counts as well."
    ),
    FailureKind.NOT_FOUND: f"The provider knows no such account or subscription. {_OPERATOR}",
}


def text_of(provider: Provider, failure: ProviderFailure) -> str:
    """The failure in Mesh's own words, of which none is another's."""
    kind, stage = failure.kind, failure.stage
    told = f"{provider.name}, {stage.value}: {kind.value}"
    if failure.page_status is not None:
        told += f" {failure.page_status}"
    parts = [f"{told} ({_STAGES[stage]}).", _advice(stage, kind)]
    if failure.retry_after_s:  # a time that is over is no wait
        parts.append(f"It asks to be left alone for {math.ceil(failure.retry_after_s)} s.")
    parts.append("The attempt counted, and is not repeated by itself.")
    return " ".join(parts)


def _advice(stage: Stage, kind: FailureKind) -> str:
    own = {Stage.CREDENTIAL: _AT_THE_CREDENTIAL, Stage.PAGE: _AT_THE_PAGE}.get(stage, {})
    return own.get(kind) or _OTHERWISE.get(kind) or "Go on without it."
