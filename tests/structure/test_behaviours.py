"""Every required behaviour is held by a test or has a dated reason; no test wears an unknown id."""

from __future__ import annotations

import ast
import datetime as dt
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def listed() -> dict[str, Any]:
    """The behaviours' data."""
    return tomllib.loads((TESTS / "behaviours.toml").read_text())


@pytest.fixture(scope="module")
def worn() -> dict[str, str]:
    """Each id that some test wears, with one file that wears it."""
    return {
        behaviour: str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        for behaviour in _ids(ast.parse(file.read_text()))
    }


def _ids(tree: ast.Module) -> Iterator[str]:
    """The arguments of every `pytest.mark.behaviour(…)` in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.behaviour":
            for argument in node.args:
                yield ast.literal_eval(argument)


def _held(listed: dict[str, Any]) -> dict[str, Any]:
    return {name: said for name, said in listed.items() if name != "waiting"}


def test_every_behaviour_is_worn_by_a_test_or_says_why_not(
    listed: dict[str, Any], worn: dict[str, str]
) -> None:
    unexcused = {name for name, said in _held(listed).items() if "reason" not in said}
    assert sorted(unexcused - worn.keys()) == []


def test_no_test_wears_an_id_that_is_not_there(
    listed: dict[str, Any], worn: dict[str, str]
) -> None:
    known = _held(listed).keys() | {i for w in listed["waiting"] for i in w["ids"]}
    assert {behaviour: file for behaviour, file in worn.items() if behaviour not in known} == {}


def test_what_a_test_holds_does_not_wait(listed: dict[str, Any], worn: dict[str, str]) -> None:
    waiting = {behaviour for group in listed["waiting"] for behaviour in group["ids"]}
    assert {behaviour: file for behaviour, file in worn.items() if behaviour in waiting} == {}


def test_what_waits_has_a_dated_reason_and_is_not_listed_twice(listed: dict[str, Any]) -> None:
    waiting = [behaviour for group in listed["waiting"] for behaviour in group["ids"]]
    assert len(waiting) == len(set(waiting))
    assert not set(waiting) & _held(listed).keys()
    excused = [said for said in _held(listed).values() if "reason" in said]
    for excuse in (*listed["waiting"], *excused):
        assert excuse["reason"].endswith(".")
        assert isinstance(excuse["since"], dt.date)


def test_each_behaviour_is_said_in_a_sentence_and_names_its_source(listed: dict[str, Any]) -> None:
    for behaviour, said in _held(listed).items():
        assert set(said) - {"reason", "since"} == {"text", "source"}, behaviour
        assert said["text"].endswith("."), behaviour
        assert said["source"].startswith(("000 §", "001 §")), behaviour
