"""Owns the shapes of what an agent keeps: values that are put, and what is told of them.

Refuses to show a value, or to take one that is blank or too long.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from mesh.kernel.limits import MODEL_KEY_CHARS_MAX, VAULT_VALUE_BYTES_MAX
from mesh.operator.shapes.base import Name, Shown, Taken, Time, Url

_WRITE_ONLY: Final = {"writeOnly": True, "format": "password"}


def _value(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty or only white space")
    if len(text.encode()) > VAULT_VALUE_BYTES_MAX:
        raise ValueError(f"must have at most {VAULT_VALUE_BYTES_MAX} bytes")
    return text


def _key(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty or only white space")
    if len(text) > MODEL_KEY_CHARS_MAX:
        raise ValueError(f"must have at most {MODEL_KEY_CHARS_MAX} characters")
    if not all("!" <= char <= "~" for char in text):
        raise ValueError("must be printable ASCII without spaces, as a header takes it")
    return text


class AccountTaken(Taken):
    """An account that the agent acts by: it belongs to this agent alone."""

    origin: Url
    """`https://` and a host: where its credential may go, and nowhere else."""
    name: Name


class AccountShown(Shown):
    """An account that the agent acts by."""

    origin: str
    name: str


class ValueTaken(Taken):
    """A value for the vault, in the place of the one that is there."""

    account: AccountTaken | None = None
    """The acting account whose credential it is. Left out, it stays what it was."""

    value: Annotated[
        str, AfterValidator(_value), Field(repr=False, json_schema_extra={**_WRITE_ONLY})
    ]


class ModelKeyTaken(Taken):
    """The key of the agent's model, for its kind and origin as they stand."""

    value: Annotated[
        str, AfterValidator(_key), Field(repr=False, json_schema_extra={**_WRITE_ONLY})
    ]


class ValueShown(Shown):
    """What is told of a value."""

    name: str
    version: int
    created_at: Time
    updated_at: Time
    """When this version was put."""
    account: AccountShown | None
    """The acting account whose credential it is; null for any other value."""


class ValueList(Shown):
    """A page of a vault, by name."""

    items: list[ValueShown]
    next_cursor: str | None


class ModelKeyShown(Shown):
    """What is told of a model's key."""

    credential_present: bool
    kept_for: str
    """The kind and the origin that it goes to, and no other."""
    version: int
    updated_at: Time
