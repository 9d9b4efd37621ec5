"""The OpenAPI document says what the routes do, and the repository's copy says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mesh.operator.openapi import document, main, routes, text
from mesh.operator.route import Needs

FILE = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_the_copy_in_the_repository_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", str(FILE)]) == 0, "python -m mesh.operator.openapi > docs/openapi.json"
    assert capsys.readouterr().err == ""


def test_a_copy_that_differs_is_told_with_the_command_that_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "openapi.json"
    copy.write_text(text().replace("Mesh", "Mash"))
    assert main(["--check", str(copy)]) == 1
    assert "python -m mesh.operator.openapi >" in capsys.readouterr().err
    assert main(["--help"]) == 2


def test_every_route_is_in_it_with_its_name_scheme_and_refusals() -> None:
    paths = document()["paths"]
    for route in routes():
        operation = paths[route.path][route.method.lower()]
        assert operation["operationId"] == route.operation
        assert operation["security"] == ([] if route.needs is Needs.NOTHING else [{"token": []}])
        refusals = {s for s in operation["responses"] if s >= "400"}
        if route.needs is not Needs.NOTHING:
            assert refusals >= {"401", "403", "404", "422", "429", "500", "503"}
        if route.method in ("POST", "PUT"):
            assert refusals >= {"400", "409", "413", "415"}
        named = {p["name"] for p in operation["parameters"]}
        assert ("Idempotency-Key" in named) == route.mints


def test_every_reference_leads_somewhere() -> None:
    whole = document()

    def walk(value: Any) -> None:
        if isinstance(value, list):
            for each in value:
                walk(each)
        elif isinstance(value, dict):
            if "$ref" in value:
                name = value["$ref"].removeprefix("#/components/schemas/")
                assert name in whole["components"]["schemas"], name
            for each in value.values():
                walk(each)

    walk(whole)


def test_what_is_taken_knows_no_other_field() -> None:
    schemas = document()["components"]["schemas"]
    for route in routes():
        if route.method in ("POST", "PUT"):
            assert schemas[route.takes.__name__]["additionalProperties"] is False
