"""Owns runs that think, in the simulated world: a scripted model, tools with effects outside, and
what must hold of what was done.

Refuses a model with a memory: what it says is a function of what it is asked, so that a call that
is made again says the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from infra.local.aws import Broken, Killed
from mesh.models.contract import ModelAnswer, ModelConnector, ModelRequest
from mesh.records.agent import Limits, Model, ModelKind
from mesh.security.egress import Reply
from mesh.storage import keys
from mesh.storage.kms import KmsWrapper
from mesh.tools.contract import (
    Call,
    Definition,
    Handler,
    Observation,
    ObservationKind,
    Parts,
    Replay,
)
from mesh.tools.gate import Gate, gate_of
from tests.fakes.egress import Call as HttpCall
from tests.fakes.model import results_of, says, use
from tests.fakes.web import Connections, provider_of, usual
from tests.simulation.invariants import BrokenInvariantError
from tests.simulation.receiver import always_ok
from tests.simulation.world import World

Row = dict[str, Any]
Speak = Callable[[ModelRequest], ModelAnswer]
"""What the model says to a request: a pure function, or a ModelFailure that it raises."""

MODEL, TOOL = "model call", "tool call"
TOKENS: Final = 110
"""What one answer of `says` costs."""
_ARGUMENTS: Final = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
TOOLS: Final = {
    "look": Replay.OBSERVE,
    "fetch": Replay.METERED,
    "send": Replay.EFFECT,
}
DEFINITIONS: Final = {
    name: Definition(
        name=name, description=name, input_schema=_ARGUMENTS, replay=replay, package="outside"
    )
    for name, replay in TOOLS.items()
}


@dataclass
class Outside:
    """What is outside of Mesh: the model, and what tools do. Counts what reached it, and may be
    where a worker dies."""

    speak: Speak
    asked: list[ModelRequest] = field(default_factory=list)
    done: list[tuple[str, str, str, int]] = field(default_factory=list)
    """Tool, run, call id and argument of each call that arrived."""
    kind: type[Gate] = Gate
    takes_s: float = 0
    """How long each call takes."""
    before: Callable[[str], None] = lambda _: None
    after: Callable[[str], None] = lambda _: None
    raced: bool = False
    """Whether a worker may stand still between the admission of a call and the call itself."""
    world: World | None = None
    sent: list[tuple[str, str]] = field(default_factory=list)
    """Tool and arguments of each request that reached a provider."""
    void: set[str] = field(default_factory=set)
    """Calls during which what they rest on was changed."""

    def answer(self, request: ModelRequest, timeout_s: float) -> ModelAnswer:
        """Implements `ModelConnector`."""
        self.before(MODEL)
        self.asked.append(request)
        self._pass_time()
        try:
            return self.speak(request)
        finally:
            self.after(MODEL)

    def gate(self, parts: Parts) -> Gate:
        """The gate over what ships and over what is outside."""
        shipped = gate_of(parts)
        handlers: Mapping[str, Handler] = {name: self._handler(name) for name in TOOLS}
        return self.kind(
            parts.table, {**shipped.definitions, **DEFINITIONS}, {**shipped.handlers, **handlers}
        )

    def provider(self, call: HttpCall) -> Reply:
        """What every provider of the web answers: a scripted outcome of the way out."""
        assert self.world is not None
        name, given = asked_of(call)
        self.before(TOOL)
        step = self._admitted(name, given)
        self.sent.append((name, json.dumps(given, sort_keys=True)))
        self._pass_time()
        self.after(TOOL)
        if step is not None and not self._granted(step):
            self.void.add(step["call_id"])
        return usual(call)

    def _admitted(self, name: str, given: Mapping[str, Any]) -> Row | None:
        """The step that a request belongs to. What is objected to passes every `except Exception`
        of the system."""
        assert self.world is not None
        under_way = [
            row
            for row in steps_of(self.world)
            if row.get("tool") == name and row["status"] == "running" and "grant" in row
        ]
        theirs = [row for row in under_way if json.loads(row["arguments"]) == given]
        if self.raced:
            return theirs[0] if theirs else None
        try:
            _need(bool(theirs), "nothing is sent without its admission", given)
            _need(self._granted(theirs[0]), "nothing is sent on a grant that is void", theirs)
        except BrokenInvariantError as objection:
            raise Broken(str(objection)) from objection
        return theirs[0]

    def _granted(self, step: Row) -> bool:
        """Whether the connection that a call is made by is as it was."""
        assert self.world is not None
        grant = step["grant"]
        owner = "instance" if grant["source"] == "instance" else self.world.agent.agent_id
        rows = self.world.rows()
        row = rows.get(keys.connection(owner, grant["capability"]))
        key = rows.get(keys.provider_key(owner, grant["provider"]))
        version = grant["instance_version"] or grant["own_version"]
        return (
            row is not None
            and row["version"] == version
            and key is not None
            and key["version"] == grant["key_version"]
        )

    def _handler(self, name: str) -> Handler:
        def handle(arguments: Mapping[str, Any], call: Call) -> Observation:
            self.before(TOOL)
            self._look(name, call)
            self.done.append((name, call.run_id, call.call_id, arguments["n"]))
            self._pass_time()
            self.after(TOOL)
            if not self._enabled(name, call):
                self.void.add(call.call_id)
            return Observation(kind=ObservationKind.RESULT, text=f"{name} {arguments['n']} is done")

        return handle

    def _pass_time(self) -> None:
        if self.world is not None:
            self.world.clock.forward(self.takes_s)

    def _enabled(self, name: str, call: Call) -> bool:
        assert self.world is not None
        return bool(self.world.rows()[keys.tool(call.agent_id, name)]["enabled"])

    def _look(self, name: str, call: Call) -> None:
        """What is objected to passes every `except Exception` of the system."""
        if self.raced:
            return
        assert self.world is not None
        story = self.world.rows()["STORY#" + call.run_id.removeprefix("run_"), "STORY"]
        try:
            _need(self._enabled(name, call), "nothing is done on an offer that is void", call)
            _need(story["status"] == "queued", "nothing is done for a run that is over", story)
        except BrokenInvariantError as objection:
            raise Broken(str(objection)) from objection


def calls_then_done(*calls: tuple[str, int], tokens: tuple[int, int] = (100, 10)) -> Speak:
    """Asks for `calls` at once, and answers once it was told of them."""

    def speak(request: ModelRequest) -> ModelAnswer:
        if results_of(request) or not calls:
            return says("done", tokens=tokens)
        uses = (use(name, f"c-{n}", **arguments_of(name, n)) for name, n in calls)
        return says("let me see", *uses, tokens=tokens)

    return speak


def arguments_of(name: str, n: int) -> dict[str, Any]:
    """The arguments of the n-th call, by the tool: no two are the same."""
    match name:
        case "web_search":
            return {"query": f"question {n}"}
        case "web_fetch":
            return {"url": f"https://example.com/{n}"}
        case _:
            return {"n": n}


def asked_of(call: HttpCall) -> tuple[str, dict[str, Any]]:
    """The tool and its arguments, by what a provider was asked."""
    if provider_of(call) == "brave":
        query = httpx.URL(call.url).params["q"]
        return "web_search", {"query": query}
    return "web_fetch", {"url": json.loads(call.body)["url"]}


def check_web(world: World, outside: Outside) -> None:
    """What must hold of calls of the web: each was admitted once and sent once at most, and the
    meters say how many were admitted."""
    admitted = [row for row in steps_of(world) if "grant" in row]
    each: Counter[tuple[str, str]] = Counter(
        (row["tool"], json.dumps(json.loads(row["arguments"]), sort_keys=True)) for row in admitted
    )
    for asked, count in Counter(outside.sent).items():
        _need(count <= each[asked], "a call is sent once at most", asked)
    a_run: Counter[tuple[str, str]] = Counter(
        (row["pk"], row["grant"]["capability"]) for row in admitted
    )
    rows = world.rows()
    meters = {key: row["calls"] for key, row in rows.items() if key[1].startswith("METER")}
    for (pk, capability), count in a_run.items():
        _need(meters.get((pk, f"METER#{capability}")) == count, "a run's meter is exact", meters)
    by_minute = {pk: calls for (pk, sk), calls in meters.items() if sk == "METER"}
    limits = {
        row["capability"]: row["requests_per_minute"]
        for (_, sk), row in rows.items()
        if sk.startswith("CONNECTION#") and "requests_per_minute" in row
    }
    for pk, calls in by_minute.items():
        most = limits.get(pk.split("#")[2])
        _need(most is None or calls <= most, "a minute's limit holds", by_minute)
    _need(sum(by_minute.values()) <= len(admitted), "what was not admitted is not counted", meters)
    for row in admitted:
        most = row["grant"]["requests_per_run"]
        _need(a_run[row["pk"], row["grant"]["capability"]] <= most, "a run's limit holds", row)


def notes(request: ModelRequest) -> ModelAnswer:
    """Makes a note, which must not be there yet."""
    if results_of(request):
        return says("done")
    return says("", use("note", "c-1", name="hours", text="open from nine", version=0))


def one_by_one(name: str, count: int) -> Speak:
    """Asks for one call after the other."""

    def speak(request: ModelRequest) -> ModelAnswer:
        told = len(results_of(request))
        if told >= count:
            return says("done")
        return says("", use(name, f"c-{told}", **arguments_of(name, told)))

    return speak


def thinking(outside: Outside, *, limits: Limits = Limits(), **more: Any) -> World:
    """A world whose agent thinks with `outside`, and may use its tools."""
    connector: ModelConnector = outside
    outside.world = world = World(
        limits=limits,
        model=Model(kind=ModelKind.OPENAI, name="m"),
        models=lambda _: connector,
        tools=(*TOOLS, "note", "conversation_search"),
        **{"gate": outside.gate, "answers": always_ok, **more},
    )
    world.egress.otherwise = outside.provider
    return world


def connections_of(world: World) -> Connections:
    """Writes the world's web connections."""
    wrapper = KmsWrapper(lambda: world.clients.kms, world.settings.secrets_key)
    return Connections(world.table, wrapper, world.random)


def _need(holds: bool, rule: str, detail: object) -> None:
    if not holds:
        raise BrokenInvariantError(rule, str(detail))


def steps_of(world: World) -> list[Row]:
    return [row for (_, sk), row in sorted(world.rows().items()) if sk.startswith("STEP#")]


def check_deeds(world: World, outside: Outside) -> None:
    """What must hold of everything that was done outside. Raises BrokenInvariantError."""
    steps = {row["call_id"]: row for row in steps_of(world) if row.get("call_id")}
    made: Counter[str] = Counter(call_id for _, _, call_id, _ in outside.done)
    dear: Counter[tuple[str, str, int]] = Counter(
        (name, run_id, n)
        for name, run_id, _, n in outside.done
        if TOOLS[name] is not Replay.OBSERVE
    )
    _need(max(dear.values(), default=0) <= 1, "what may be done once is not done twice", dear)
    order: dict[str, list[int]] = {}
    for name, run_id, call_id, n in outside.done:
        # One that its worker was overtaken at may stand on its way for as long as it likes: it is
        # told as uncertain, and comes late or never.
        if name == "send" and steps.get(call_id, {}).get("status") != "uncertain":
            order.setdefault(run_id, []).append(n)
    for sent in order.values():
        _need(sent == sorted(sent), "effects are made in their order", sent)
    for call_id in made:
        _need(call_id in steps, "nothing is done without its step", call_id)
        _need("replay" in steps[call_id], "what was refused is not done", steps[call_id])
    for call_id in outside.void:
        same = steps[call_id]["status"] != "completed"
        _need(same, "what raced a revocation is withheld", steps[call_id])
    ended = {
        row["story"] for (_, sk), row in world.rows().items() if sk == "STORY" and "status" in row
    }
    for (pk, sk), row in world.rows().items():
        if not sk.startswith("STEP#") or pk.partition("#")[2] not in ended or "call_id" not in row:
            continue
        story = world.rows()[pk, "STORY"]
        if row["status"] == "running":
            over = story["status"] in ("cancelled", "failed", "expired")
            _need(over, "a call has an end", row)
        if row["status"] == "completed" and row["tool"] in TOOLS:
            _need(made[row["call_id"]] >= 1, "a result is of a call that was made", row)


def check_told(outside: Outside, world: World) -> None:
    """What is uncertain was told to the model as that."""
    uncertain = [row for row in steps_of(world) if row["status"] == "uncertain"]
    stories = {pk: row for (pk, sk), row in world.rows().items() if sk == "STORY"}
    for row in uncertain:
        if stories[row["pk"]]["status"] != "completed":
            continue
        told = [text for request in outside.asked for text in results_of(request)]
        _need(any(text.startswith("uncertain:") for text in told), "uncertain is told", row)


def check_meters(world: World) -> None:
    """A run's budget of calls is kept, and each run that thinks is one turn of the day."""
    limits = world.agent.limits
    admitted: Counter[str] = Counter(row["pk"] for row in steps_of(world) if row.get("replay"))
    most = max(admitted.values(), default=0)
    _need(most <= limits.tool_calls, "calls of a run are bounded", admitted)


def die_outside(outside: Outside, name: str, index: int, when: str) -> None:
    """The worker dies at the n-th outside call of that name."""
    count = 0

    def at(what: str) -> None:
        nonlocal count
        count += what == name
        if what == name and count == index:
            raise Killed(f"{when} {name} {index}")

    if when == "before":
        outside.before = at
    else:
        outside.after = at
