"""What the deployment page tells of the environments is what they are."""

from __future__ import annotations

import re
from pathlib import Path

from infra import topology
from infra.settings import Environment, environments

PAGE = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text()
KNOWN = environments({})


def test_the_table_of_the_environments_holds_their_figures() -> None:
    assert _row("messages kept, days") == [e.messages_kept_days for e in KNOWN.values()]
    assert _row("logs kept, days") == [e.logs_kept_days for e in KNOWN.values()]
    assert _row("requests a second at ingress") == [
        e.ingress_throttle.per_second for e in KNOWN.values()
    ]
    for queue, what in (("turns", "turns"), ("deliveries", "deliveries")):
        told = _row(f"{what} worked on at once")
        assert told == [e.worker_concurrency[queue] for e in KNOWN.values()]


def test_the_concurrency_that_is_set_aside_is_told() -> None:
    (told,) = re.findall(r"`prod` sets\s+([\d,]+) aside", PAGE)
    assert int(told.replace(",", "")) == _aside(KNOWN["prod"])


def _aside(environment: Environment) -> int:
    return sum(
        environment.reserved_concurrency.get(function.name, environment.reserved_default)
        for function in topology.FUNCTIONS
        if function.reserved_concurrency
    )


def _row(what: str) -> list[int]:
    (row,) = re.findall(rf"^\| {what} \|(.+)\|$", PAGE, re.MULTILINE)
    return [int(figure.replace(",", "")) for figure in row.split("|")]
