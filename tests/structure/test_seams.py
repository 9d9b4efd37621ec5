"""The two planes: how utterances come in, and that nothing else does."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from infra import layers, topology

MESH = layers.ROOT / "layers" / "mesh" / "python" / "mesh"


@pytest.mark.behaviour("ingress:webhook", "seams:no-websocket-ingress", "seams:mcp-not-inbound")
def test_utterances_come_in_by_one_post_and_by_nothing_else() -> None:
    routes = [
        (function.name, route.method, route.path)
        for function in topology.FUNCTIONS
        for route in function.routes
        if route.api is topology.Api.INGRESS
    ]
    assert routes == [("generic_ingress", "POST", "/generic/events")]


@pytest.mark.behaviour("seams:no-joint-protocol")
def test_no_function_answers_third_parties_and_operators_alike() -> None:
    for function in topology.FUNCTIONS:
        assert len({route.api for route in function.routes}) <= 1


@pytest.mark.behaviour("ingress:stateless")
def test_the_function_that_faces_third_parties_has_no_disk_and_no_queue_of_its_own() -> None:
    ingress = topology.function("generic_ingress")
    assert ingress.queues == ()
    assert ingress.schedule_minutes is None
    assert topology.Allow.WRITE in ingress.table, "what it learns goes to the table"


def _layer_rows() -> list[set[str]]:
    contracts = tomllib.loads((layers.ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (rows,) = [c["layers"] for c in contracts["contracts"] if c["type"] == "layers"]
    return [{name.strip(" ()") for name in row.split("|")} for row in rows]


def test_every_package_has_its_place_among_the_layers() -> None:
    placed = set[str]().union(*_layer_rows())
    there = {p.parent.name for p in MESH.glob("*/__init__.py")} | {
        p.stem for p in MESH.glob("*.py") if p.stem != "__init__"
    }
    assert there <= placed
    assert placed - there <= {"tools"}, "tools have their place before they are built"


def test_what_takes_utterances_in_and_what_acts_stand_side_by_side() -> None:
    (row,) = [row for row in _layer_rows() if "connectors" in row]
    assert {"connectors", "tools"} <= row, "neither may import the other"


def test_each_function_imports_the_product_and_nothing_else() -> None:
    for handler in (layers.ROOT / "functions").glob("*/handler.py"):
        for module in _imports(handler):
            assert module.partition(".")[0] in {"mesh", "__future__"}, handler


def _imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found
