"""A tool's schema is closed and bounded; what does not fit is told without being echoed."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.tools.arguments import SchemaProblem, check_schema, problems

CLOSED = {"type": "object", "additionalProperties": False}
SCHEMA: dict[str, Any] = {
    **CLOSED,
    "required": ["query"],
    "properties": {
        "query": {"type": "string", "minLength": 1, "maxLength": 5},
        "kind": {"enum": ["a", "b"]},
        "limit": {"type": "integer", "minimum": 1, "maximum": 20},
    },
}


def deep(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = {"x": value}
    return value


def test_a_closed_bounded_schema_is_taken() -> None:
    check_schema(SCHEMA)


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "string"}, "object"),
        ({"type": "object"}, "additionalProperties"),
        ({**CLOSED, "properties": {"x": {"$ref": "https://evil.example/s"}}}, "refers"),
        ({**CLOSED, "properties": {"x": {"type": "strin"}}}, "no JSON Schema at properties/x/type"),
        ({**CLOSED, "properties": deep(20)}, "nested"),
        ({**CLOSED, "description": "x" * 20_000}, "bytes"),
    ],
)
def test_any_other_schema_is_refused_with_the_reason(schema: dict[str, Any], word: str) -> None:
    with pytest.raises(SchemaProblem, match=word):
        check_schema(schema)


@pytest.mark.behaviour("admission:validate-first")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"query": "hi"}, []),
        ({}, ["the arguments: query is missing"]),
        ({"query": "secret words"}, ["query: maxLength is 5"]),
        ({"query": ""}, ["query: minLength is 1"]),
        ({"query": 3}, ['query: type is "string"']),
        ({"query": "hi", "limit": 21}, ["limit: maximum is 20"]),
        ({"query": "hi", "kind": "secret"}, ['kind: is one of ["a", "b"]']),
        ({"query": "hi", "secret": 1}, ["the arguments: there is a field that is not known"]),
        (None, ["the arguments are not a JSON object"]),
        (["query"], ["the arguments are not a JSON object"]),
        ({"query": deep(100)}, ["the arguments are nested deeper than 16"]),
        ({"query": "x" * 70_000}, ["the arguments have more than 65536 bytes"]),
    ],
)
def test_what_does_not_fit_is_named_by_its_place_and_rule_and_never_echoed(
    arguments: object, told: list[str]
) -> None:
    found = problems(SCHEMA, arguments)
    assert found == told
    assert not any("secret" in problem for problem in found)


def test_only_so_many_problems_are_told() -> None:
    schema = {
        **CLOSED,
        "required": [],
        "properties": {f"p{n}": {"type": "string"} for n in range(30)},
    }
    assert len(problems(schema, {f"p{n}": n for n in range(30)})) == 5


def test_a_pattern_ends_where_it_says() -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}},
    }
    assert problems(schema, {"name": "abc"}) == []
    for name in ("abc\n", "abc\n\n", "Abc", ""):
        assert problems(schema, {"name": name}) == ["name: does not fit the rule pattern"]
    escaped = {"type": "object", "properties": {"price": {"type": "string", "pattern": r"\$"}}}
    assert problems(escaped, {"price": "5 $ each"}) == []
