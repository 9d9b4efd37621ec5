"""Owns the question whether a message costs more because there is a history behind it.

Refuses to play the history: rows like those of a real exchange are put into the embedded table.
"""

from __future__ import annotations

from typing import Any, Final

from infra.local.aws.values import Item
from mesh.storage import keys
from tests.benchmarks.costs import SHORT, Cost, Spent, spent, warm_system
from tests.benchmarks.figures import Figure, ratio
from tests.fakes.system import Made, System

SIZES: Final = (10, 1_000, 100_000)
"""Messages of history, utterances and replies."""


def seed(system: System, messages: int) -> None:
    """Puts `messages` of history before the newest exchange, with its claims, runs and entries.

    The rows are those of the exchange that the system has had, under other keys.
    """
    rows = system.aws.dynamo._rows
    mark = "MSG#"
    found = {row["sk"]["S"]: row for row in rows.all() if row["pk"]["S"].startswith("CONV#")}
    utterance, reply = (found[sk] for sk in sorted(sk for sk in found if sk.startswith(mark)))
    entry = next(row for sk, row in found.items() if sk.startswith("ENTRY#"))
    story = next(row for row in rows.all() if row["sk"]["S"] == keys.STORY)
    claim = next(row for row in rows.all() if row["sk"]["S"] == "CLAIM")
    outbox = found[keys.OUTBOX]
    conversation = utterance["pk"]["S"].removeprefix("CONV#")
    first = int(utterance["order"]["N"]) - 2 * messages
    exchanges = messages // 2
    for number in range(exchanges):
        order, told = first + 2 * number, f"{number:026d}"
        for row, key in (
            (utterance, keys.message(conversation, order)),
            (reply, keys.message(conversation, order + 1)),
            (entry, keys.entry(conversation, number + 2)),
            (story, keys.story(told)),
            (claim, keys.claim("history", conversation, told)),
        ):
            rows.put((key.pk, key.sk), _under(row, key))
    last = {"N": str(exchanges + 1)}
    moved = outbox | {"seq": last, "head": {"N": str(exchanges + 2)}}
    rows.put((outbox["pk"]["S"], outbox["sk"]["S"]), moved)


def _under(row: Item, key: keys.Key) -> Item:
    """A copy under another key. The other attributes are shared: a history is many rows."""
    copy: dict[str, Any] = {**row, "pk": {"S": key.pk}, "sk": {"S": key.sk}}
    return copy


def after(messages: int) -> tuple[Spent, int]:
    """What a message costs after that much history, and how many rows were passed over for it."""
    system, made = warm_system()
    seed(system, messages)
    before = system.aws.dynamo.passed
    return spent(system, lambda: _say(system, made)), system.aws.dynamo.passed - before


def _say(system: System, made: Made) -> None:
    assert system.say(made, SHORT).status == 202


def growth(small: Cost, large: Cost) -> float:
    """The worst ratio of calls, write units and index units; reads follow the window alone."""
    pairs = (
        (small.calls, large.calls),
        (small.writes, large.writes),
        (small.index_writes, large.index_writes),
    )
    return max(b / a if a else 1.0 + b for a, b in pairs)


def figures() -> dict[str, Figure]:
    """The ratios of a message after the longest history to one after the shortest."""
    few, some, many = (after(size) for size in SIZES)
    planes = [
        (getattr(few[0], plane), getattr(some[0], plane), getattr(many[0], plane))
        for plane in ("ingress", "turn", "delivery")
    ]
    written = max(max(growth(a, b), growth(a, c)) for a, b, c in planes)
    read = max(c.reads / b.reads for _, b, c in planes)
    return {
        "history_growth": ratio(
            written, "calls and write units after 100,000 messages, against after 10", 1
        ),
        "history_growth_read": ratio(
            read, "read units after 100,000 messages, against after 1,000: full windows", 1
        ),
        "history_growth_rows": ratio(
            many[1] / some[1], "rows passed over after 100,000 messages, against after 1,000", 1
        ),
    }
