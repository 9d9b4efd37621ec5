"""Owns a benchmark's figures: their form in `bench.json`, and the table for people.

Refuses to fail a run: budgets are held by the tests, a figure that misses one is only marked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. `against` says what it is a ratio to, or what it is a count of."""

    value: float
    unit: str
    against: str
    better: Literal["lower", "higher"] = "lower"
    bound: float | None = None
    """The worst value that is wanted, where one is."""

    @property
    def misses(self) -> bool:
        """Whether the value is on the wrong side of its bound."""
        if self.bound is None:
            return False
        return self.value > self.bound if self.better == "lower" else self.value < self.bound


def count(value: float, of: str, bound: float | None = None) -> Figure:
    """A count: exact, and the same on every machine."""
    return Figure(value, "count", of, bound=bound)


def ratio(value: float, against: str, bound: float | None = None) -> Figure:
    """A ratio of two things that were measured in turn in this run."""
    return Figure(round(value, 3), "ratio", against, bound=bound)


def write_json(figures: Mapping[str, Figure], path: Path) -> None:
    """Writes `bench.json`."""
    document = {
        name: {
            "value": figure.value,
            "unit": figure.unit,
            "against": figure.against,
            "better": figure.better,
        }
        for name, figure in figures.items()
    }
    path.write_text(json.dumps(document, indent=2) + "\n")


def show(figures: Mapping[str, Figure], console: Console) -> None:
    """Prints the table."""
    table = Table(title="What a message costs", title_justify="left")
    table.add_column("name")
    table.add_column("value", justify="right")
    table.add_column("unit")
    table.add_column("wanted", justify="right")
    table.add_column("against, or of")
    for name, figure in figures.items():
        sign = "≤" if figure.better == "lower" else "≥"
        wanted = "" if figure.bound is None else f"{sign} {figure.bound:g}"
        style = "red" if figure.misses else ""
        table.add_row(name, f"{figure.value:g}", figure.unit, wanted, figure.against, style=style)
    console.print(table)
