"""Synthesizes the app once a run, over code that stands in for what a deployment would carry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra import layers, stacks  # noqa: F401  # stacks names the Node that jsii starts
from infra.settings import Environment, environments
from tests.infra.reading import Reading


class StandInCode:
    """Folders with one line each: templates name assets by hash, and no test here reads them."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def function(self, name: str) -> Path:
        return self._folder(f"functions/{name}", "handler.py")

    def layer(self, name: str) -> Path:
        return self._folder(f"layers/{name}", "python/stand_in.py")

    def _folder(self, name: str, file: str) -> Path:
        path = self._root / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
        return self._root / name


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All environments, synthesized; cdk-nag is on watch, so a finding without a reason fails."""
    from infra import app

    return app.build(
        tmp_path_factory.mktemp("cdk.out"), StandInCode(tmp_path_factory.mktemp("code"))
    ).synth()


@pytest.fixture(scope="session")
def known() -> dict[str, Environment]:
    """The environments' settings."""
    return environments({})


@pytest.fixture(scope="session", params=["dev", "staging", "prod"])
def reading(request: pytest.FixtureRequest, assembly: Any) -> Reading:
    """One environment's two templates."""
    return Reading.of(assembly, request.param)
