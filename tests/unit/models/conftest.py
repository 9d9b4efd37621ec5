"""The connector of each API in turn, for the suites that hold all of them to the one contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.models.apis import BUILDERS, Api


@pytest.fixture(params=BUILDERS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    api = BUILDERS[request.param]()
    yield api
    assert api.server.broken == []
