"""Owns what must hold after every write, as checks over all rows.

Refuses to know how the system works: it reads rows, and remembers what it saw of them before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from infra.local.aws import LocalAws
from mesh.kernel.limits import LEASE_GRACE_MS
from mesh.storage.items import decode_item
from tests.simulation.receiver import Received, Receiver

Row = dict[str, Any]
Key = tuple[str, str]

ENDED: Final = frozenset({"completed", "failed", "cancelled", "expired"})
TERMINAL: Final = frozenset({"delivered", "dead", "discarded", "undeliverable"})
BY_ORDER: Final = frozenset({"install_deleted", "reply_deleted"})
"""Deaths of entries that an operator has ordered: nobody is told of them."""
TOLD: Final = {
    "degraded": "delivery.degraded",
    "paused": "delivery.paused",
    "ok": "delivery.recovered",
}
"""The notice that tells of an endpoint's new state."""


class BrokenInvariantError(AssertionError):
    """A rule of the architecture does not hold. `rule` is its short name."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


def _need(holds: bool, rule: str, detail: object) -> None:
    if not holds:
        raise BrokenInvariantError(rule, str(detail))


@dataclass
class Watch:
    """Looks at every row after every write.

    `skew_ms` is how far two functions' clocks may differ: the lease rule allows for as much.
    """

    skew_ms: int = 0
    seen: dict[Key, Row] = field(default_factory=dict)
    writes: int = 0
    deleted_runs: set[str] = field(default_factory=set)
    sweeps: int = 0
    """How many ran to their end."""
    idle_since: dict[str, int] = field(default_factory=dict)
    """Agent → after how many sweeps somebody waited for a slot although one was free."""
    allowed: dict[str, int] = field(default_factory=dict)
    """Agent → how many runs it may still have, while its limit is being lowered."""
    _decoded: dict[int, tuple[Any, Row]] = field(default_factory=dict)

    def __call__(self, aws: LocalAws) -> None:
        rows = self._rows(aws)
        self.writes += 1
        now = aws.clock.now_ms()
        self._check_changes(rows, now)
        self._check_slots(rows, now)
        check_rows(rows)
        self.seen = rows

    def _check_slots(self, rows: dict[Key, Row], now: int) -> None:
        """Never more live leases of an agent than its runs at once."""
        live: Counter[str] = Counter(
            row["agent_id"]
            for (_, sk), row in rows.items()
            if sk.startswith("PEND#") and row["lease_until"] - self.skew_ms > now
        )
        for agent_id, count in live.items():
            allowed = rows["AGENT#" + agent_id, "SETTINGS"]["limits"]["runs_at_once"]
            most = max(allowed, self.allowed.get(agent_id, 0))
            _need(count <= most, "runs at once are bounded", (agent_id, count, most))
            # A lowered limit stops nothing that runs: the bound follows it down, never up.
            self.allowed[agent_id] = max(allowed, count)
        self._check_waiting(rows, now)

    def _check_waiting(self, rows: dict[Key, Row], now: int) -> None:
        """Nobody waits for a slot while one has been free for two whole sweeps. (A third may have
        been under way when the first came to wait.)"""
        places = {row.get("due_pk", "") for (_, sk), row in rows.items() if sk == "ORDER"}
        waiting = {place.removeprefix("WAITING#") for place in places if place.startswith("WAIT")}
        for agent_id in waiting:
            agent = rows["AGENT#" + agent_id, "SETTINGS"]
            running = rows["AGENT#" + agent_id, "RUNNING"]
            ends = [until for name, until in running.items() if name.startswith("slot_")]
            taken = sum(until + LEASE_GRACE_MS + self.skew_ms > now for until in ends)
            if agent["status"] != "active" or taken >= agent["limits"]["runs_at_once"]:
                self.idle_since.pop(agent_id, None)
                continue
            since = self.idle_since.setdefault(agent_id, self.sweeps)
            _need(self.sweeps - since <= 3, "a free slot is used", (agent_id, running))
        self.idle_since = {a: since for a, since in self.idle_since.items() if a in waiting}

    def _rows(self, aws: LocalAws) -> dict[Key, Row]:
        """All rows as plain values. An image is never changed in place, so its identity serves."""
        decoded: dict[int, tuple[Any, Row]] = {}
        rows: dict[Key, Row] = {}
        for image in aws.dynamo.items():
            known = self._decoded.get(id(image))
            if known is None or known[0] is not image:
                known = (image, decode_item(image))
            decoded[id(image)] = known
            rows[known[1]["pk"], known[1]["sk"]] = known[1]
        self._decoded = decoded
        return rows

    def _check_changes(self, rows: dict[Key, Row], now: int) -> None:
        fresh = [(key, row) for key, row in rows.items() if key not in self.seen]
        for key, row in rows.items():
            before = self.seen.get(key)
            if before is None or before is row:
                if before is None and key[1].startswith("PEND#"):
                    _need(row["story"] not in self.deleted_runs, "a run ends once", "it came back")
                continue
            self._check_change(key, before, row, now)
            if key[1] == "DELIVERY" and row.get("state") != before.get("state"):
                _check_told(row, fresh)
        for key, before in self.seen.items():
            if key not in rows and key[1].startswith("PEND#"):
                self.deleted_runs.add(before["story"])

    def _check_change(self, key: Key, before: Row, row: Row, now: int) -> None:
        match key[1].partition("#")[0]:
            case "ORDER":
                _need(row["last_order"] >= before["last_order"], "order goes forward", key)
            case "OUTBOX":
                _need(row["seq"] >= before["seq"], "sequences go forward", key)
                _need(row["head"] >= before["head"], "the outbox head goes forward", key)
            case "MSG":
                _need(row == before, "what was said never changes", key)
            case "CLAIM":
                _need(row["story"] == before["story"], "a claim keeps its story", key)
            case "STORY":
                if before.get("status") in ENDED:
                    _need(_ending(row) == _ending(before), "a run ends once", (before, row))
            case "STEP":
                if before["status"] == "completed":
                    _need(row == before, "a step with a result is not made again", key)
                _need(row["lease_no"] >= before["lease_no"], "fenced steps", (before, row))
            case "PEND":
                self._check_lease(before, row, now)
            case "ENTRY":
                self._check_entry(before, row, now)

    def _check_lease(self, before: Row, row: Row, now: int) -> None:
        if row["lease_no"] == before["lease_no"]:
            return
        _need(row["lease_no"] == before["lease_no"] + 1, "leases are numbered", (before, row))
        _need(
            before["lease_until"] == 0 or now >= before["lease_until"] - self.skew_ms,
            "a live lease is nobody else's",
            (before, row, now),
        )

    def _check_entry(self, before: Row, row: Row, now: int) -> None:
        for name in ("story", "sequence", "reply_order", "created_at"):
            _need(row[name] == before[name], "an entry keeps what it is", (name, before, row))
        if before["state"] in TERMINAL:
            same = row["state"] == before["state"] or row["state"] == "delivered"
            _need(same, "an entry ends once", (before["state"], row["state"]))
        was, is_now = before.get("attempts", 0), row.get("attempts", 0)
        _need(is_now in (was, was + 1), "attempts are counted one by one", (was, is_now))
        if "open" in before and "open" not in row and row["recent"][-1]["end"] == "unknown":
            _need(
                now >= before["open"]["until"] - self.skew_ms,
                "a live attempt is nobody else's",
                (before, now),
            )
        if "open" in before and "open" in row:
            _need(before["open"]["token"] == row["open"]["token"], "one attempt at a time", row)


def _ending(story: Row) -> tuple[Any, ...]:
    names = ("status", "run_reason", "ended_at", "sequence", "reply_order")
    return tuple(story.get(name) for name in names)


def check_rows(rows: dict[Key, Row]) -> None:
    """What must hold of the rows at any moment. Raises BrokenInvariantError."""
    stories: dict[str, Row] = {}
    claims: dict[str, Row] = {}
    conversations: dict[str, dict[str, Row]] = defaultdict(dict)
    for (pk, sk), row in rows.items():
        if sk == "STORY":
            stories[row["story"]] = row
        elif sk == "CLAIM":
            claims[row["story"]] = row
        elif pk.startswith("CONV#"):
            conversations[pk][sk] = row
    _check_stories(stories, claims, conversations, rows)
    for pk, conversation in conversations.items():
        _check_turns(pk, conversation, rows)
        _check_outbox(pk, conversation, rows)
    _check_counters(rows, stories)
    _check_days(rows)


def _check_days(rows: dict[Key, Row]) -> None:
    """Tokens of a day are those of the answers that are kept: none is lost, none counts twice."""
    counted: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    told: Counter[tuple[str, str, int]] = Counter()
    for (pk, sk), row in rows.items():
        if pk.startswith("DAY#"):
            counted[pk.split("#")[1]] += row.get("tokens", 0)
        elif sk.startswith("STEP#"):
            agent_id = rows[pk, "STORY"]["agent_id"]
            kept[agent_id] += row.get("input_tokens", 0) + row.get("output_tokens", 0)
        elif sk == "NOTICE" and row["kind"] == "budget.reached":
            told[row["agent_id"], row["reason"], row["figures"]["percent"]] += 1
    for agent_id in kept:
        if rows["AGENT#" + agent_id, "SETTINGS"]["limits"].get("tokens_per_day") is not None:
            same = counted[agent_id] == kept[agent_id]
            _need(same, "tokens are counted with their answers", (counted, kept))
    _need(max(told.values(), default=0) <= 1, "a budget is told of once a day", told)


def _check_stories(
    stories: dict[str, Row],
    claims: dict[str, Row],
    conversations: dict[str, dict[str, Row]],
    rows: dict[Key, Row],
) -> None:
    """Claim, story, message and run exist together or not at all; run and reply end together."""
    together = "claim, message, verdict and run exist together"
    _need(stories.keys() == claims.keys(), together, stories.keys() ^ claims.keys())
    waiting = {
        row["story"]
        for conversation in conversations.values()
        for sk, row in conversation.items()
        if sk.startswith("PEND#")
    }
    for story, row in stories.items():
        claim = claims[story]
        _need(claim["verdict"] == row["verdict"], together, (claim, row))
        conversation = conversations.get("CONV#" + row["conversation_id"], {})
        if row["verdict"] == "refuse":
            continue
        said = conversation.get(f"MSG#{row['order']:017d}")
        _need(said is not None and said["story"] == story, together, row)
        if row["verdict"] == "engage":
            queued = row["status"] == "queued"
            _need(queued == (story in waiting), together, row)
            _need(queued or row["status"] in ENDED, "a run has a known status", row)
        else:
            _need("status" not in row and story not in waiting, together, row)
        _check_reply(story, row, conversation)
    _need(waiting <= stories.keys(), together, waiting - stories.keys())


def _check_reply(story: str, row: Row, conversation: dict[str, Row]) -> None:
    ends = "the end of a run, its reply and its entry exist together"
    sequence = row.get("sequence")
    if sequence is None:
        return
    entry = conversation.get(f"ENTRY#{sequence:012d}")
    _need(entry is not None and entry["story"] == story, ends, row)
    reply = conversation.get(f"MSG#{row['reply_order']:017d}")
    _need(reply is not None and reply["role"] == "reply" and bool(reply["sent"]), ends, row)


def _check_turns(pk: str, conversation: dict[str, Row], rows: dict[Key, Row]) -> None:
    order = conversation.get("ORDER")
    waiting = [sk for sk in conversation if sk.startswith("PEND#")]
    _need(order is not None, "a conversation has its order", pk)
    assert order is not None
    _need(
        order["pending"] == len(waiting),
        "the waiting count is the number of waiting runs",
        (pk, order["pending"], len(waiting)),
    )
    newest = max((row["order"] for sk, row in conversation.items() if sk.startswith("MSG#")))
    _need(order["last_order"] >= newest, "order goes forward", (pk, newest))
    if not waiting:
        return
    mark = order.get("due_pk", "")
    places = ("DUE#", "HELD#", "WAITING#")
    _need(mark.startswith(places), "waiting work has a due mark", (pk, order))
    _need("due_at" in order, "waiting work has a due mark", (pk, order))
    if mark.startswith("HELD#"):
        agent = rows.get(("AGENT#" + order["agent_id"], "SETTINGS"), {})
        held = agent.get("status") != "active" or _released(mark, rows)
        _need(held, "held work is released", (pk, order))
    if mark.startswith("WAITING#"):
        running = rows.get(("AGENT#" + order["agent_id"], "RUNNING"), {})
        _need("due_pk" in running, "who waits for a slot is looked for", (pk, order, running))


def _check_outbox(pk: str, conversation: dict[str, Row], rows: dict[Key, Row]) -> None:
    outbox = conversation.get("OUTBOX")
    entries = [conversation[sk] for sk in sorted(conversation) if sk.startswith("ENTRY#")]
    if outbox is None:
        _need(not entries, "an entry has an outbox", pk)
        return
    gaps = [entry["sequence"] for entry in entries] == list(range(1, outbox["seq"] + 1))
    _need(gaps, "sequences are 1, 2, 3, …", (pk, outbox["seq"], len(entries)))
    pending_before = False
    pending = False
    for entry in entries:
        if pending_before:
            _need(
                not entry.get("attempts") and entry["state"] in {"pending", "discarded"},
                "entry n+1 never leaves before n is terminal",
                entry,
            )
        if entry["state"] == "pending":
            pending = pending_before = True
            _need(entry["sequence"] >= outbox["head"], "the head is a lower bound", entry)
        _check_attempts(entry, rows)
        _check_death(entry, rows)
    if pending:
        _check_outbox_mark(pk, outbox, rows)


def _check_outbox_mark(pk: str, outbox: Row, rows: dict[Key, Row]) -> None:
    mark = outbox.get("due_pk", "")
    _need(
        mark.startswith(("DUE#", "HELD#", "DEGRADED#")) and "due_at" in outbox,
        "a waiting entry has a due mark",
        (pk, outbox),
    )
    endpoint = rows.get(("INS#" + outbox["install_id"], "DELIVERY"), {})
    state = endpoint.get("state", "ok")
    if mark.startswith("DEGRADED#"):
        _need(
            (state == "degraded" and "due_pk" in endpoint)
            or state == "paused"
            or _released(mark, rows),
            "work that waits for a probe gets one",
            (outbox, endpoint),
        )
    if mark.startswith("HELD#"):
        settings = rows.get(("INS#" + outbox["install_id"], "SETTINGS"), {})
        held = settings.get("state") != "enabled" or state == "paused" or _released(mark, rows)
        _need(held, "held work is released", (outbox, endpoint))


def _released(source: str, rows: dict[Key, Row]) -> bool:
    return any(
        sk.startswith("RELEASE#") and row["source"] == source for (_, sk), row in rows.items()
    )


def _check_told(endpoint: Row, fresh: list[tuple[Key, Row]]) -> None:
    """A change of an endpoint's state came with its notice, or an operator made it."""
    kinds = {row["kind"] for (_, sk), row in fresh if sk == "NOTICE"}
    by_operator = any(pk.startswith("AUDIT#") for (pk, _), _ in fresh)
    state = endpoint.get("state", "ok")
    _need(by_operator or TOLD[state] in kinds, "an endpoint's change is told of", (state, kinds))


def _check_death(entry: Row, rows: dict[Key, Row]) -> None:
    if entry["state"] == "dead" and entry["state_reason"] not in BY_ORDER:
        notice = rows.get(("NOTICE#" + entry.get("notice_id", "")[4:], "NOTICE"))
        _need(notice is not None, "an entry's death is told of", entry)


def _check_attempts(entry: Row, rows: dict[Key, Row]) -> None:
    counted = "attempts are written down one by one"
    numbers = [
        attempt["number"]
        for page in range(1, entry.get("pages", 0) + 1)
        for attempt in rows["STORY#" + entry["story"], f"ATTEMPTS#{page:06d}"]["attempts"]
    ]
    numbers += [attempt["number"] for attempt in entry.get("recent", ())]
    if "open" in entry:
        numbers.append(entry["open"]["number"])
    _need(numbers == list(range(1, entry.get("attempts", 0) + 1)), counted, (numbers, entry))


def _check_counters(rows: dict[Key, Row], stories: dict[str, Row]) -> None:
    """Counters moved in the transaction of what they count."""
    active: Counter[tuple[str, str]] = Counter()
    counted: Counter[tuple[str, str]] = Counter()
    accepted = 0
    for (pk, sk), row in rows.items():
        if pk.startswith("CAPS#"):
            if sk.startswith("COUNT#"):
                counted[pk, sk.split("#")[1]] += row["n"]
            else:
                active[pk, row["kind"]] += 1
        elif pk.startswith("RATE#"):
            accepted += row["n"]
    _need(+active == +counted, "counters count", (active, counted))
    _need(accepted == len(stories), "counters count", (accepted, len(stories)))


def check_request(got: Received, rows: Iterable[Row], now: int) -> None:
    """What must hold when a request reaches the receiver: its attempt is written, and its lease is
    not over (by a clock that may be as late as any of the system's)."""
    story = got.outbound_id.removeprefix("out_")
    found = list(rows)
    (entry,) = [r for r in found if r["sk"].startswith("ENTRY#") and r["story"] == story]
    _need(
        entry.get("attempts", 0) >= got.attempt,
        "an attempt is written before its request",
        (got.attempt, entry),
    )
    opened = entry.get("open")
    _need(
        opened is not None and opened["number"] == got.attempt and now < opened["until"],
        "a request is made under a lease",
        (got.attempt, entry),
    )
    (reply,) = [
        r
        for r in found
        if r["sk"].startswith("MSG#") and r["story"] == story and r["role"] == "reply"
    ]
    _need(reply["sent"] == got.body, "every attempt sends the same bytes", got)


def check_settled(rows: dict[Key, Row], receiver: Receiver, posted: dict[str, list[str]]) -> None:
    """What must hold when all is done.

    `posted` is conversation key → message ids in the order in which they were taken in; every one
    of them was to be answered.
    """
    for (_, sk), row in rows.items():
        _need(not sk.startswith("PEND#"), "nothing is left waiting", row)
        if sk.startswith("ENTRY#"):
            _need(row["state"] in TERMINAL, "nothing is left waiting", row)
            _need("open" not in row, "no attempt is left open", row)
        if sk in ("ORDER", "OUTBOX"):
            _need("due_pk" not in row, "no mark is left", row)
    check_replies(receiver, posted)


def check_replies(receiver: Receiver, posted: dict[str, list[str]]) -> None:
    """What a receiver must have by the end: one reply a message, in order, each with its bytes."""
    answered: dict[str, list[str]] = defaultdict(list)
    sequences: dict[str, list[int]] = defaultdict(list)
    for reply in receiver.replies:
        answered[reply["conversation_key"]].append(reply["in_reply_to"])
        sequences[reply["conversation_key"]].append(reply["sequence"])
    _need(answered == posted, "every message has one reply, in order", (answered, posted))
    for numbers in sequences.values():
        _need(numbers == list(range(1, len(numbers) + 1)), "replies come in order", numbers)
    bodies: dict[str, bytes] = {}
    for got in receiver.received:
        first = bodies.setdefault(got.outbound_id, got.body)
        _need(first == got.body, "every attempt sends the same bytes", got.outbound_id)
