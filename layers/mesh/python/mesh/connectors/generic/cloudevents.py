"""Owns the CloudEvents 1.0 envelope, structured mode, around a payload (contract §1.5).

Refuses other types and versions, `data_base64`, and attributes that CloudEvents does not allow;
what else an envelope says is ignored, its `source` too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from mesh.connectors.generic.rfc3339 import is_date_time
from mesh.kernel.errors import FieldProblem

SPEC_VERSION: Final = "1.0"
TYPE: Final = "mesh.message.v1"

_ATTRIBUTE: Final = re.compile(r"[a-z0-9]+")
_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
_JSON_TYPE: Final = re.compile(
    r"[ \t]*[a-z0-9!#$&^_.-]+/(?:[a-z0-9!#$&^_.+-]+\+)?json[ \t]*(?:;.*)?",
    re.ASCII | re.IGNORECASE,
)

_Unwrapped = tuple[dict[str, object] | None, dict[str, str], list[FieldProblem]]


def unwrap(event: Mapping[str, object]) -> _Unwrapped:
    """The payload in `event`, the paths of keys that the envelope filled in, and the problems.

    `message_id` may be left out and is then `id`; a `sent_at` that is absent or null is then
    `time`. The payload is None where `data` is no object.
    """
    # An attribute that is null is one that is not there (CloudEvents JSON format §2.2).
    given = {key: value for key, value in event.items() if value is not None}
    data = given.pop("data", None)
    problems = _problems(given)
    if not isinstance(data, dict):
        return None, {}, [*problems, FieldProblem("data", "must be an object")]
    payload = dict(data)
    paths = {}
    if "message_id" not in payload:
        paths["message_id"] = "id"
        payload |= {"message_id": given["id"]} if "id" in given else {}
    elif not _is_text(given.get("id")):
        problems.append(FieldProblem("id", "must be a string that is not empty"))
    if payload.get("sent_at") is None and "time" in given:
        paths["sent_at"] = "time"
        payload["sent_at"] = given["time"]
    elif "time" in given and not _is_time(given["time"]):
        problems.append(FieldProblem("time", "must be an RFC 3339 date and time with its offset"))
    return payload, paths, problems


def _problems(given: Mapping[str, object]) -> list[FieldProblem]:
    """What is wrong with the envelope, `id`, `time` and `data` apart."""
    found = []
    if given.get("specversion") != SPEC_VERSION:
        found.append(FieldProblem("specversion", f"must be {SPEC_VERSION}"))
    if given.get("type") != TYPE:
        found.append(FieldProblem("type", f"must be {TYPE}"))
    if not _is_text(given.get("source")):
        found.append(FieldProblem("source", "must be a string that is not empty"))
    content = given.get("datacontenttype", "application/json")
    if not isinstance(content, str) or _JSON_TYPE.fullmatch(content) is None:
        found.append(FieldProblem("datacontenttype", "must be a JSON media type"))
    for name, value in given.items():
        if name == "data_base64":
            found.append(FieldProblem(name, "is refused: send the object as data"))
        elif _ATTRIBUTE.fullmatch(name) is None:
            found.append(FieldProblem(name, "is not a legal name of an attribute"))
        elif isinstance(value, dict | list):
            found.append(FieldProblem(name, "must not be nested"))
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str) and _TEXT.fullmatch(value) is not None


def _is_time(value: object) -> bool:
    return isinstance(value, str) and is_date_time(value)
