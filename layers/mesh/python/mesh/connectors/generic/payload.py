"""Owns the generic connector's inbound payload: from the raw, verified bytes to one utterance.

Refuses every key that the contract does not name, so that tools, grants and instructions have
nowhere to go, and every value out of its bounds (contract §1.2 (7), §1.3, the digest of §1.4).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec
import rfc8785

from mesh.connectors.generic import cloudevents
from mesh.connectors.generic.rfc3339 import is_date_time
from mesh.connectors.http import HttpRequest
from mesh.kernel import strict_json
from mesh.kernel.errors import FieldProblem, Invalid
from mesh.kernel.limits import (
    BODY_BYTES_MAX,
    DISPLAY_NAME_CODE_POINTS_MAX,
    FIELD_PATH_CODE_POINTS_MAX,
    FIELD_PROBLEMS_MAX,
    ID_CODE_POINTS_MAX,
    SENT_AT_CODE_POINTS_MAX,
)
from mesh.records.message import BodyFormat, NormalizedMessage, Topology

DIGEST_VERSION: Final = 1
"""What `digest` makes for new claims; a claim that exists is judged with its own version."""

WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""The Unicode property White_Space; `str.isspace` would add U+001C to U+001F."""

_MEDIA_TYPE: Final = re.compile(
    r"[ \t]*application/(?:json|(cloudevents)\+json)"
    r'[ \t]*(?:;[ \t]*charset=(?:utf-8|"utf-8")[ \t]*)?',
    re.ASCII | re.IGNORECASE,
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTROL_IN_BODY: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def normalize(request: HttpRequest) -> NormalizedMessage:
    """The utterance in a request whose signature has been verified.

    Raises `Invalid` in the contract's order: `unsupported_media_type`, `malformed_request` for a
    query string, then what `parse` raises.
    """
    cloudevent = check_media_type(
        request.headers.get("content-type"), request.headers.get("content-encoding")
    )
    if request.query:
        raise Invalid("malformed_request", "the address takes no query string")
    return parse(request.body, cloudevent)


def check_media_type(content_type: str | None, content_encoding: str | None) -> bool:
    """Whether the body is a CloudEvent; the other type that passes is plain JSON.

    Raises `Invalid` (`unsupported_media_type`) for every other type, parameter or list of types,
    and for any content coding, `identity` too.
    """
    if content_encoding is not None:
        raise Invalid("unsupported_media_type", "the body must have no content coding")
    found = _MEDIA_TYPE.fullmatch(content_type or "")
    if found is None:
        raise Invalid(
            "unsupported_media_type",
            "the content type must be application/json or application/cloudevents+json",
        )
    return found[1] is not None


def parse(raw: bytes, cloudevent: bool) -> NormalizedMessage:
    """The utterance in `raw`, an object of §1.3 or a CloudEvent (§1.5) that holds one.

    Raises `Invalid`: `malformed_json` for what is not strict JSON, otherwise `invalid_payload` with
    a problem for every field, at most `FIELD_PROBLEMS_MAX` of them.
    """
    document = strict_json.decode(raw)
    if not isinstance(document, dict):
        raise _invalid([FieldProblem("", "must be an object")])
    if cloudevent:
        payload, paths, problems = cloudevents.unwrap(document)
    else:
        payload, paths, problems = document, {}, []
    if payload is None:
        raise _invalid(problems)
    prefix = "data." if cloudevent else ""
    problems += _problems(payload, lambda key: paths.get(key, prefix + key))
    if problems:
        raise _invalid(problems)
    return msgspec.convert(payload, NormalizedMessage)


def digest(message: NormalizedMessage, version: int = DIGEST_VERSION) -> str:
    """What a claim holds of a message: SHA-256 in hex over its RFC 8785 form (contract §1.4).

    Defaults are filled, nulls dropped; `sent_at` and `display_name` may differ between retries.
    Raises `ValueError` for a version that was never made.
    """
    if version != DIGEST_VERSION:
        raise ValueError(f"there is no digest of version {version}")
    claimed = {
        "message_id": message.message_id,
        "conversation_key": message.conversation_key,
        "actor_id": message.actor_id,
        "body": message.body,
        "body_format": message.body_format.value,
        "topology": message.topology.value,
    }
    if message.parent_id is not None:
        claimed["parent_id"] = message.parent_id
    return hashlib.sha256(rfc8785.dumps(claimed)).hexdigest()


class _Field(NamedTuple):
    """How one key is judged: `judge` gives what is wrong with a value, or None."""

    judge: Callable[[object], str | None]
    required: bool = False
    nullable: bool = False


def _name(code_points_max: int) -> Callable[[object], str | None]:
    problem = f"must be a string of 1 to {code_points_max} characters, none a control character"

    def judge(value: object) -> str | None:
        fits = isinstance(value, str) and 1 <= len(value) <= code_points_max
        return None if fits and not _CONTROL.search(str(value)) else problem

    return judge


def _one_of(*words: str) -> Callable[[object], str | None]:
    problem = f"must be one of {', '.join(words)}"
    return lambda value: None if isinstance(value, str) and value in words else problem


def _body(value: object) -> str | None:
    if not isinstance(value, str):
        return "must be a string"
    if len(value.encode("utf-8")) > BODY_BYTES_MAX:
        return f"must have at most {BODY_BYTES_MAX} bytes in UTF-8"
    if not value.strip(WHITE_SPACE):
        return "must not be empty or only white space"
    if _CONTROL_IN_BODY.search(value):
        return "must have no control character but tab, line feed and carriage return"
    return None


def _sent_at(value: object) -> str | None:
    if isinstance(value, str) and len(value) <= SENT_AT_CODE_POINTS_MAX and is_date_time(value):
        return None
    return "must be an RFC 3339 date and time with its offset"


_FIELDS: Final[Mapping[str, _Field]] = {
    "message_id": _Field(_name(ID_CODE_POINTS_MAX), required=True),
    "conversation_key": _Field(_name(ID_CODE_POINTS_MAX), required=True),
    "actor_id": _Field(_name(ID_CODE_POINTS_MAX), required=True),
    "body": _Field(_body, required=True),
    "body_format": _Field(_one_of(*BodyFormat)),
    "parent_id": _Field(_name(ID_CODE_POINTS_MAX), nullable=True),
    "display_name": _Field(_name(DISPLAY_NAME_CODE_POINTS_MAX), nullable=True),
    "topology": _Field(_one_of(*Topology)),
    "sent_at": _Field(_sent_at, nullable=True),
}


def _problems(payload: Mapping[str, object], path: Callable[[str], str]) -> list[FieldProblem]:
    """Everything that is wrong with `payload`: the known keys in the contract's order first."""
    found = []
    for key, known in _FIELDS.items():
        if key not in payload:
            problem = "is required" if known.required else None
        elif payload[key] is None and known.nullable:
            problem = None
        else:
            problem = known.judge(payload[key])
        if problem is not None:
            found.append(FieldProblem(path(key), problem))
    found += [FieldProblem(path(key), "is not known") for key in payload if key not in _FIELDS]
    return found


def _invalid(problems: list[FieldProblem]) -> Invalid:
    """The error for `problems`, cut so that an answer never grows with what was sent."""
    cut = tuple(
        FieldProblem(problem.path[:FIELD_PATH_CODE_POINTS_MAX], problem.problem)
        for problem in problems[:FIELD_PROBLEMS_MAX]
    )
    return Invalid("invalid_payload", "the payload is not valid", cut)
