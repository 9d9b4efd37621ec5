"""Owns the judgement of a tool's schema and of a call's arguments.

Refuses a schema that reaches outside itself or has no bound, and arguments that do not fit, before
anything is admitted. What is told of misfitting arguments names the place and the rule, and never
echoes a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend

from mesh.kernel.limits import (
    ARGUMENT_BYTES_MAX,
    ARGUMENT_DEPTH_MAX,
    ARGUMENT_PROBLEMS_MAX,
    SCHEMA_BYTES_MAX,
    SCHEMA_DEPTH_MAX,
)

_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$schema", "$id"})


def _pattern(_: object, pattern: str, instance: object, __: object) -> Iterator[ValidationError]:
    """`pattern` as JSON Schema means it: `$` is the very end, and not also before a last line feed,
    which would pass where a name is to be one line."""
    strict = re.sub(r"(?<!\\)\$\Z", r"\\Z", pattern)
    if isinstance(instance, str) and re.search(strict, instance) is None:
        yield ValidationError("does not match")


# jsonschema's stubs say nothing of it.
_extend = cast("Callable[[object, Mapping[str, object]], type[Draft202012Validator]]", extend)
_Validator: Final = _extend(Draft202012Validator, {"pattern": _pattern})


class SchemaProblem(ValueError):
    """Why a schema is not taken."""


def check_schema(schema: Mapping[str, Any]) -> None:
    """Whether `schema` describes one closed object, bounded, and without references.

    Raises SchemaProblem.
    """
    if len(json.dumps(schema)) > SCHEMA_BYTES_MAX:
        raise SchemaProblem(f"the schema has more than {SCHEMA_BYTES_MAX} bytes")
    if _depth(schema) > SCHEMA_DEPTH_MAX:
        raise SchemaProblem(f"the schema is nested deeper than {SCHEMA_DEPTH_MAX}")
    if any(key in _REFERENCES for key in _keys(schema)):
        raise SchemaProblem("the schema refers to something; write it out")
    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        raise SchemaProblem(f"is no JSON Schema at {_place(error)}") from None
    if schema.get("type") != "object" or schema.get("additionalProperties") is not False:
        raise SchemaProblem('must be of type "object" with "additionalProperties" false')


def problems(schema: Mapping[str, Any], arguments: object) -> list[str]:
    """What is wrong with `arguments`, in words for the model; empty when they fit."""
    if not isinstance(arguments, Mapping):
        return ["the arguments are not a JSON object"]
    if _depth(arguments) > ARGUMENT_DEPTH_MAX:
        return [f"the arguments are nested deeper than {ARGUMENT_DEPTH_MAX}"]
    if (
        len(json.dumps(arguments, ensure_ascii=False).encode("utf-8", "replace"))
        > ARGUMENT_BYTES_MAX
    ):
        return [f"the arguments have more than {ARGUMENT_BYTES_MAX} bytes"]
    found = _Validator(dict(schema)).iter_errors(dict(arguments))
    return [_problem(error) for _, error in zip(range(ARGUMENT_PROBLEMS_MAX), found, strict=False)]


def _problem(error: ValidationError) -> str:
    """The place and the rule. Extra names are the model's own words, so they are not repeated."""
    rule = error.validator
    if rule in ("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "type"):
        return f"{_place(error)}: {rule} is {json.dumps(error.validator_value)}"
    if rule == "enum":
        return f"{_place(error)}: is one of {json.dumps(error.validator_value)}"
    if rule == "required":
        # By the schema's own check, and because only an object is asked for its fields.
        wanted = cast("list[str]", error.validator_value)
        given = cast("Mapping[str, object]", error.instance)
        missing = [name for name in wanted if name not in given]
        return f"{_place(error)}: {', '.join(missing)} is missing"
    if rule == "additionalProperties":
        return f"{_place(error)}: there is a field that is not known"
    return f"{_place(error)}: does not fit the rule {rule}"


def _place(error: SchemaError | ValidationError) -> str:
    return "/".join(str(part) for part in error.path) or "the arguments"


def _depth(value: object) -> int:
    """How deep `value` is nested, without recursion."""
    deepest, level = 0, [value]
    while level:
        deepest += 1
        below: list[object] = []
        for each in level:
            if isinstance(each, Mapping):
                below += each.values()
            elif isinstance(each, list | tuple):
                below += each
        level = below
    return deepest


def _keys(value: object) -> Iterator[str]:
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, Mapping):
            yield from map(str, each)
            left += each.values()
        elif isinstance(each, list | tuple):
            left += each
