"""Owns the run of all benchmarks: `make bench`.

Refuses to judge by exit status: it measures, prints a table and writes `bench.json`.
"""

from __future__ import annotations

import logging
from pathlib import Path

from rich.console import Console

from tests.benchmarks import api, costs, delivery, engine, history, ingress, local, rewrap
from tests.benchmarks.figures import Figure, show, write_json

ROOT = Path(__file__).parents[2]


def main() -> None:
    console = Console()
    figures: dict[str, Figure] = {}
    for what, measure in (
        ("counting calls and units", costs.figures),
        ("taking messages in, cold and warm", ingress.figures),
        ("delivering", delivery.figures),
        ("growing a history", history.figures),
        ("thinking", engine.figures),
        ("driving the local stack", local.figures),
        ("asking the operator API of few and of many", api.figures),
        ("replacing the master key", rewrap.figures),
    ):
        with console.status(what):
            figures |= measure()
    write_json(figures, ROOT / "bench.json")
    show(figures, console)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main()
