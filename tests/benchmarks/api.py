"""Owns the question whether the operator API answers more slowly the more there is to answer of.

Refuses to make the many things by the API: copies of the rows that it made are put into the
embedded table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Final

from infra.local.aws.values import Item, Value
from mesh.storage import keys
from tests.benchmarks.figures import Figure, ratio
from tests.fakes.operators import Api, admin
from tests.fakes.system import System

FEW: Final = 10
MANY: Final = 10_000
ROUNDS: Final = 24
WARM: Final = 2
"""Rounds that are asked and not counted: what is loaded and kept at first is no answer's cost."""
GROWTH_MAX: Final = 2
"""A page of the audit takes the newest rows of sixteen shards: with few rows, most are empty."""

Taken = dict[str, list[float]]
"""Seconds of CPU of every answer, by its kind."""


def figures() -> dict[str, Figure]:
    """How answers grow: with many agents, connectors and audit rows, to those with few."""
    few, many = _taken()
    of = f"list, show, create, audit list with {MANY:,} agents, connectors, audit rows, to {FEW}"
    return {
        "api_growth_p50": ratio(max(_medians(few, many)), f"{of}; the worst kind", GROWTH_MAX),
        "api_growth_p99": ratio(
            _slowest(few, many), "the same; all kinds, each in its own medians"
        ),
    }


def seed(system: System, api: Api, total: int) -> None:
    """Puts copies of the one agent, of its connector and of audit rows: `total` of each."""
    api.ok("POST", "/api/agents/ada/connectors", {"kind": "generic"})
    rows = system.aws.dynamo._rows
    agent_id = system.agent.agent_id
    made = list(rows.all())
    install_id = next(
        row["install_id"]["S"] for row in made if row["pk"]["S"].startswith(keys.install("ins_"))
    )
    audits = [row for row in made if row["pk"]["S"].startswith("AUDIT#")]
    own = [row for row in made if row not in audits and _tells_of(row, (agent_id, install_id))]
    for number in range(total):
        others = {
            agent_id: f"agt_{number:026d}",
            install_id: f"ins_{number:026d}",
            "ada": f"a{number:05d}",
        }
        audit = _audit(audits[number % len(audits)], number)
        for copy in (*(_renamed(row, others) for row in own), audit):
            rows.put((copy["pk"]["S"], copy["sk"]["S"]), copy)


def _audit(row: Item, number: int) -> Item:
    """A copy with an id of its own, in the shard of that id."""
    ulid = f"{row['sk']['S'][:-6]}{number:06d}"
    key = keys.audit(int(row["at"]["N"]), ulid)
    return row | {"pk": {"S": key.pk}, "sk": {"S": key.sk}, "id": {"S": f"aud_{ulid}"}}


def _tells_of(row: Item, ids: tuple[str, ...]) -> bool:
    texts = (row["pk"]["S"], row["sk"]["S"], row.get("agent_id", {}).get("S", ""))
    return any(each in text for each in ids for text in texts)


def _renamed(row: Item, others: dict[str, str]) -> Item:
    """A copy that names the others in every text, and in its keys."""
    return {name: _other(value, others) for name, value in row.items()}


def _other(value: Value, others: dict[str, str]) -> Value:
    if "S" not in value:
        return value
    text = value["S"]
    if text in others:
        return {"S": others[text]}
    for name, other in others.items():
        text = text.replace(name, other) if len(name) > 20 else text
    return {"S": text}


def _taken() -> tuple[Taken, Taken]:
    """Seconds of CPU of each kind of answer, with few and with many, asked in turn."""
    apis: list[Api] = []
    for total in (FEW, MANY):
        system = System(lag=False)
        api = admin(system)
        seed(system, api, total)
        apis.append(api)
    few: Taken = {}
    many: Taken = {}
    for number in range(WARM + ROUNDS):
        for kind, act in _acts(number).items():
            for api, taken in zip(apis, (few, many), strict=True):
                begun = time.process_time()
                act(api)
                spent = time.process_time() - begun
                if number >= WARM:
                    taken.setdefault(kind, []).append(spent)
    return few, many


def _acts(number: int) -> dict[str, Callable[[Api], object]]:
    return {
        "list agents": lambda api: api.ok("GET", "/api/agents?limit=10"),
        "show an agent": lambda api: api.ok("GET", "/api/agents/ada"),
        "list connectors": lambda api: api.ok("GET", "/api/agents/ada/connectors?limit=10"),
        "create an agent": lambda api: api.ok("POST", "/api/agents", {"slug": f"new{number}"}),
        "list audit rows": lambda api: api.ok("GET", "/api/audit?limit=10"),
    }


def _medians(few: Taken, many: Taken) -> list[float]:
    return [median(many[kind]) / median(few[kind]) for kind in few]


def _slowest(few: Taken, many: Taken) -> float:
    """The 99th percentile with many to that with few, of all answers together.

    An answer counts in medians of its kind with few, or the kind that is slowest would stand alone.
    """
    usual = {kind: median(taken) for kind, taken in few.items()}
    of_few, of_many = (
        sorted(each / usual[kind] for kind in usual for each in taken[kind])
        for taken in (few, many)
    )
    place = int(0.99 * len(of_few))
    return of_many[place] / of_few[place]
