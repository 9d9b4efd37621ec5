"""Owns what all shapes of the operator API share: strictness, names, times, pages.

Refuses unknown fields, wrong types, blank names and control characters.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
)

from mesh.kernel.limits import (
    ID_CODE_POINTS_MAX,
    INSTRUCTIONS_CHARS_MAX,
    LIST_LIMIT_DEFAULT,
    LIST_LIMIT_MAX,
    NAME_CHARS_MAX,
    RETENTION_DAYS_MAX,
    URL_CHARS_MAX,
)

_PLAIN: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"
_NAMED: Final = r"^[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\xa0][^\x00-\x1f\x7f-\x9f]*$"
_TEXT: Final = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*$"
_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)\Z", re.ASCII
)

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
Handle = Slug
Name = Annotated[str, StringConstraints(max_length=NAME_CHARS_MAX, pattern=_NAMED)]
Instructions = Annotated[str, StringConstraints(max_length=INSTRUCTIONS_CHARS_MAX, pattern=_TEXT)]
Url = Annotated[str, StringConstraints(min_length=1, max_length=URL_CHARS_MAX)]
Host = Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=_PLAIN)]
ActorId = Annotated[
    str, StringConstraints(min_length=1, max_length=ID_CODE_POINTS_MAX, pattern=_PLAIN)
]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339 in UTC with milliseconds."""
RetentionDays = Annotated[int, Field(ge=1, le=RETENTION_DAYS_MAX)]
Version = Annotated[int, Field(ge=0, le=2**53)]


def milliseconds(text: str) -> int:
    """Unix ms of an RFC 3339 date-time with offset. Raises ValueError."""
    if _RFC3339.match(text) is None:
        raise ValueError("must be an RFC 3339 date and time with its offset")
    try:
        moment = datetime.fromisoformat(re.sub(r"(\.\d{1,6})\d*", r"\1", text.upper()))
    except ValueError:
        raise ValueError("must be an RFC 3339 date and time with its offset") from None
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _a_time(text: str) -> str:
    milliseconds(text)
    return text


Moment = Annotated[str, AfterValidator(_a_time), Field(json_schema_extra={"format": "date-time"})]
"""A time that is taken: RFC 3339 with its offset."""


class Taken(BaseModel):
    """What is taken: exactly the fields that are named, by JSON's own types. What was given stands
    in no error's text, because a secret may be among it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Shown(BaseModel):
    """What is answered. Keys may be added to it at any time."""

    model_config = ConfigDict(frozen=True)


class Nothing(Taken):
    """An empty object; an empty body counts as one."""


class Listing(Taken):
    """A page of a list."""

    limit: Annotated[int, Field(ge=1, le=LIST_LIMIT_MAX)] = LIST_LIMIT_DEFAULT
    cursor: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None

    @field_validator("limit", mode="before")
    @classmethod
    def _digits(cls, value: object) -> object:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value, re.ASCII) is None:
            raise ValueError("must be a whole number")
        return value
