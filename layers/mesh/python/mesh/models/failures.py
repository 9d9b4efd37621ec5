"""Owns the words of a model's failure, and what an HTTP status means where no code says more.

Refuses whatever an API wrote: neither its message nor its address is ever in a failure.
"""

from __future__ import annotations

from typing import Final

from mesh.models.contract import ModelFailure, ModelFailureKind

_TEXTS: Final = {
    ModelFailureKind.THROTTLED: "the model's API asks for fewer requests",
    ModelFailureKind.OVERLOADED: "the model's API cannot answer just now",
    ModelFailureKind.UNREACHABLE: "the model's API gave no answer",
    ModelFailureKind.QUOTA: "the account's money or allowance at the model's API is used up",
    ModelFailureKind.CREDENTIAL: "the model's API takes no such key, or not for this model",
    ModelFailureKind.NOT_FOUND: "the model's API knows no such model",
    ModelFailureKind.TOO_LARGE: "the request is longer than the model reads",
    ModelFailureKind.REFUSED_REQUEST: "the model's API calls the request invalid",
    ModelFailureKind.MALFORMED: "what came back is no answer of the model's API",
    ModelFailureKind.REFUSED_URL: "the address of the model's API may not be called",
}


def failure(
    kind: ModelFailureKind, message: str | None = None, *, retry_after_s: float | None = None
) -> ModelFailure:
    """The failure of that kind, in Mesh's own words."""
    return ModelFailure(kind, message or _TEXTS[kind], retry_after_s=retry_after_s)


def no_model_named() -> ModelFailure:
    """The failure of an agent whose model has no name, at an API that serves many."""
    return failure(ModelFailureKind.NOT_FOUND, "the agent does not say which model of the API")


def no_key() -> ModelFailure:
    """The failure of an agent without a key, at an API that demands one."""
    return failure(ModelFailureKind.CREDENTIAL, "no key is kept for the model's API")


def kind_of_status(status: int) -> ModelFailureKind:
    """What a status other than 2xx means; codes in the body say it better where there are any."""
    match status:
        case 401 | 403 | 407:
            return ModelFailureKind.CREDENTIAL
        case 402:
            return ModelFailureKind.QUOTA
        case 404 | 410:
            return ModelFailureKind.NOT_FOUND
        # 409 is how some of them say that a lock was not to be had in time.
        case 408 | 409 | 425:
            return ModelFailureKind.OVERLOADED
        case 413:
            return ModelFailureKind.TOO_LARGE
        case 429:
            return ModelFailureKind.THROTTLED
        case _ if 400 <= status < 500:
            return ModelFailureKind.REFUSED_REQUEST
        case _ if status >= 500:
            return ModelFailureKind.OVERLOADED
        case _:  # a redirect is never followed, and no API sends one
            return ModelFailureKind.MALFORMED
