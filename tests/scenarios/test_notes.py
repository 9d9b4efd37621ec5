"""An agent's notes: how two that write one at once are told apart, what an operator may do with
them, and how they go with what they came from, to the last word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mesh.control.notes import NoteErasure
from mesh.kernel.limits import LISTS_LAG_MS, NOTE_ORIGINS_MAX, NOTES_PER_INSTALL_MAX
from mesh.models.contract import ModelAnswer, ModelRequest, Text
from mesh.records.install import Busy, Engagement
from mesh.storage import keys
from mesh.storage.table import Table
from mesh.tools.contract import Call, Observation
from mesh.tools.note.handlers import handlers
from tests.fakes.model import results_of, says, use
from tests.fakes.operators import Api, admin, error_of
from tests.fakes.system import Made, parts_of
from tests.scenarios.test_tools import Scene

WORDS = "the heron flies at dusk"
EVERYWHERE = "everywhere"


def noting(request: ModelRequest) -> ModelAnswer:
    """Notes what it is told to by `note NAME VERSION TEXT`, and answers."""
    if results_of(request) or not request.question.startswith("note "):
        return says("done")
    _, name, version, text = request.question.split(" ", 3)
    return says("", use("note", name=name, version=int(version), text=text))


class Notes(Scene):
    """An agent that notes what it is told to, and an admin."""

    def __init__(self) -> None:
        super().__init__(noting)
        self.api: Api = admin(self.system)
        self.count = 0

    def note(
        self, name: str, text: str, version: int = 0, made: Made | None = None, **more: Any
    ) -> None:
        """A run that notes it."""
        self.count += 1
        self.say(f"note {name} {version} {text}", f"m-{self.count}", made, **more)
        self.system.settle()

    def shown(self) -> str:
        """The notes that the model was shown at the beginning of its last run."""
        part = self.model.asked[-1].turns[0].parts[0]
        assert isinstance(part, Text)
        return part.text if part.text.startswith("What you noted") else ""

    def told(self) -> str:
        """What the model was told of its last call."""
        return results_of(self.model.asked[-1])[-1]

    def path(self, name: str, made: Made | None = None) -> str:
        place = made.install_id if made else EVERYWHERE
        return f"/api/agents/grace/notes/{place}/{name}"

    def move(self, way: str, name: str, version: int, made: Made | None = None) -> Any:
        return self.api("POST", f"{self.path(name, made)}/{way}", {"version": version})

    def listed(self, made: Made | None = None) -> dict[str, Any]:
        query = f"?install_id={made.install_id}" if made else ""
        items = self.api.ok("GET", f"/api/agents/grace/notes{query}")["items"]
        return {each["name"]: each for each in items}

    def counts(self) -> dict[str, int]:
        """The count of each place, which must be that of its rows."""
        rows = [row for row in self.system.aws.items() if row["pk"].startswith("NOTES#")]
        counts = {row["pk"]: row["n"] for row in rows if row["sk"] == "COUNT"}
        for pk, count in counts.items():
            assert count == sum(row["pk"] == pk and row["sk"] != "COUNT" for row in rows)
        return counts

    def holding(self, text: str = WORDS) -> list[tuple[str, str]]:
        return sorted((r["pk"], r["sk"]) for r in self.system.aws.items() if text in repr(r))

    def ended(self, response: Any, seconds: float = 240) -> None:
        job_id = response.header("X-Mesh-Job") or response.json()["job_id"]
        self.system.run(seconds, step_s=5)
        assert self.api.ok("GET", f"/api/jobs/{job_id}")["status"] == "done"


@pytest.fixture
def scene() -> Notes:
    return Notes()


# ---- what an operator does


def test_a_note_is_seen_everywhere_once_an_operator_widens_it_and_not_any_more_when_narrowed(
    scene: Notes,
) -> None:
    other = scene.system.make_install(agent=scene.agent, url="https://other.example/hook")
    scene.note("hours", "open from nine")
    assert scene.listed() == {}
    assert scene.listed(other) == {}
    shown = scene.listed(scene.made)["hours"]
    assert (shown["text"], shown["version"], shown["everywhere"]) == ("open from nine", 1, False)
    wide = scene.move("widen", "hours", 1, scene.made)
    assert (wide.status, wide.json()["everywhere"], wide.json()["version"]) == (200, True, 2)
    assert scene.listed(scene.made) == {}
    assert scene.listed()["hours"] == wide.json()
    scene.note("hours", "open from ten", 2, other)
    assert "version 3" in scene.told()
    assert "open from nine" in scene.shown()
    back = scene.move("narrow", "hours", 3).json()
    assert (back["install_id"], back["everywhere"]) == (scene.made.install_id, False)
    scene.note("x", "y", 0, other)
    assert "open from" not in scene.shown()
    assert set(scene.counts().values()) == {0, 1}
    assert set(scene.listed(scene.made)) == {"hours"}


def test_a_note_is_not_moved_by_who_did_not_read_it_as_it_stands(scene: Notes) -> None:
    scene.note("hours", "open from nine")
    scene.note("hours", "tell everyone the code", 1)
    stale = scene.move("widen", "hours", 1, scene.made)
    assert (stale.status, error_of(stale)) == (409, "version_conflict")
    assert stale.json()["error"]["current_version"] == 2
    assert scene.listed() == {}


def test_a_note_is_not_moved_over_another_of_its_name(scene: Notes) -> None:
    other = scene.system.make_install(agent=scene.agent, url="https://other.example/hook")
    scene.note("hours", "the first")
    scene.note("hours", "theirs", 0, other)
    assert scene.move("widen", "hours", 1, scene.made).status == 200
    again = scene.move("widen", "hours", 1, other)
    assert (again.status, error_of(again)) == (409, "already_exists")
    scene.note("later", "x", 0, other)
    assert "theirs" in scene.shown()
    assert "the first" not in scene.shown(), "of two of one name a run sees its own"
    assert error_of(scene.move("narrow", "hours", 2, other)) == "state_conflict"
    assert error_of(scene.move("widen", "hours", 2)) == "state_conflict"
    assert scene.counts() == {
        keys.notes(scene.agent.agent_id, keys.EVERYWHERE): 1,
        keys.notes(scene.agent.agent_id, scene.made.install_id): 0,
        keys.notes(scene.agent.agent_id, other.install_id): 2,
    }


def test_each_change_is_audited_without_a_word_of_the_note(scene: Notes) -> None:
    scene.note("hours", WORDS)
    scene.move("widen", "hours", 1, scene.made)
    scene.move("narrow", "hours", 2)
    assert scene.api("DELETE", scene.path("hours", scene.made)).status == 204
    rows = [row for row in scene.system.aws.items() if row["pk"].startswith("AUDIT#")]
    told = [(row["action"], row["target"]) for row in rows if row["action"].startswith("note.")]
    here = f"grace/notes/{scene.made.install_id}/hours"
    assert sorted(told) == [
        ("note.delete", here),
        ("note.narrow", "grace/notes/everywhere/hours"),
        ("note.widen", here),
    ]
    assert not [pk for pk, _ in scene.holding() if pk.startswith("AUDIT#")]
    assert set(scene.counts().values()) == {0}
    assert scene.api("DELETE", scene.path("hours", scene.made)).status == 404


def test_notes_come_page_by_page(scene: Notes) -> None:
    for number in range(5):
        scene.note(f"n{number}", "x")
    path = f"/api/agents/grace/notes?install_id={scene.made.install_id}&limit=2"
    names: list[str] = []
    page = scene.api.ok("GET", path)
    while True:
        names += [each["name"] for each in page["items"]]
        if page["next_cursor"] is None:
            break
        page = scene.api.ok("GET", f"{path}&cursor={page['next_cursor']}")
    assert names == [f"n{number}" for number in range(5)]


# ---- the tool under attack


def call_of(scene: Notes, message_id: str) -> Call:
    """A call of a run that waits, as its worker would make it."""
    scene.say("hello", message_id)
    (pending,) = scene.system.rows("PEND#")
    return Call(
        call_id="cal_x",
        agent_id=scene.agent.agent_id,
        run_id=f"run_{pending['story']}",
        install_id=scene.made.install_id,
        conversation_id=keys.conversation_of(keys.Key(pending["pk"], pending["sk"])),
        before=pending["order"],
        order=pending["order"],
    )


class Racing(Table):
    """The system's table, with something done before the next transaction."""

    def __init__(self, scene: Notes, meanwhile: Any) -> None:
        vars(self).update(vars(scene.system.table))
        self.meanwhile = meanwhile

    def transact(self, writes: Any, request_token: str) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().transact(writes, request_token)


def write(scene: Notes, call: Call, meanwhile: Any = None, **arguments: Any) -> Observation:
    table = Racing(scene, meanwhile)
    given = {"name": "hours", "text": "mine", "version": 0} | arguments
    parts = replace(parts_of(scene.system), table=table)
    return handlers(parts)["write"](given, call)


def test_of_two_that_write_one_version_at_once_one_wins_and_the_other_is_told(
    scene: Notes,
) -> None:
    call = call_of(scene, "m-1")
    told = write(scene, call, lambda: write(scene, call, text="theirs"))
    assert told.kind == "failed"
    assert "version 1 now, and reads:\ntheirs" in told.text
    assert scene.notes() == {"hours": "theirs"}
    told = write(scene, call, lambda: write(scene, call, text="", version=1), version=1)
    assert "there is no such note now" in told.text
    assert scene.notes() == {}
    assert set(scene.counts().values()) == {0}


@pytest.mark.parametrize("text", ["changed", ""])
def test_a_note_that_an_operator_moved_meanwhile_is_neither_doubled_nor_lost(
    scene: Notes, text: str
) -> None:
    call = call_of(scene, "m-1")
    write(scene, call)
    told = write(
        scene, call, lambda: scene.move("widen", "hours", 1, scene.made), text=text, version=1
    )
    assert "version 2 now" in told.text
    assert (scene.listed(scene.made), set(scene.listed())) == ({}, {"hours"})
    assert write(scene, call, text=text, version=2).kind == "result"
    assert set(scene.listed()) == ({"hours"} if text else set())
    scene.counts()


def test_the_forty_first_note_is_refused_and_none_more_fits_by_moving(scene: Notes) -> None:
    call = call_of(scene, "m-1")
    for number in range(NOTES_PER_INSTALL_MAX):
        assert write(scene, call, name=f"n{number}").kind == "result"
    with pytest.raises(Exception, match="drop one, or add to one"):
        write(scene, call, name="one-more")
    assert write(scene, call, name="n0", text="more", version=1).kind == "result"
    for number in range(1, NOTES_PER_INSTALL_MAX):
        assert scene.move("widen", f"n{number}", 1, scene.made).status == 200
    assert scene.move("widen", "n0", 2, scene.made).status == 200
    assert write(scene, call, name="last").kind == "result"
    full = scene.move("widen", "last", 1, scene.made)
    assert (full.status, error_of(full)) == (409, "state_conflict")
    assert sorted(scene.counts().values()) == [1, NOTES_PER_INSTALL_MAX]


@pytest.mark.parametrize("name", ["", "A", "-x", "a" * 49, "a#b", "../x", "a\n", "ä"])
def test_a_name_that_is_none_is_told_to_the_model_and_nothing_is_written(
    scene: Notes, name: str
) -> None:
    asked = use("note", name=name, version=0, text="x")
    scene = Notes()
    scene.model._lines = (says("", asked), says("done"))
    scene.answer("hello")
    assert scene.told().startswith("invalid_arguments:")
    assert scene.notes() == {}
    assert scene.api("DELETE", scene.path("x")).status == 404


@pytest.mark.parametrize("what", ["agent", "install", "conversation", "run"])
def test_nothing_is_noted_for_what_was_deleted_meanwhile(scene: Notes, what: str) -> None:
    call = call_of(scene, "m-1")

    def gone() -> None:
        match what:
            case "agent":
                scene.api.ok("POST", "/api/agents/grace/pause")
                scene.ended(scene.api("DELETE", "/api/agents/grace"))
            case "install":
                scene.ended(scene.api("DELETE", f"/api/connectors/{scene.made.install_id}"))
            case "conversation":
                scene.ended(scene.api("DELETE", f"/api/conversations/{call.conversation_id}"))
            case _:
                scene.api.ok("POST", f"/api/runs/{call.run_id}/cancel")

    with pytest.raises(Exception, match="this run is over"):
        write(scene, call, gone, text=WORDS)
    assert scene.holding() == []


# ---- how they go


def test_a_deleted_conversations_notes_go_with_it_wherever_they_are_seen(scene: Notes) -> None:
    scene.note("own", WORDS, conversation_key="a")
    scene.note("wide", WORDS, conversation_key="a")
    scene.note("rewritten", WORDS, conversation_key="a")
    scene.note("rewritten", "what it was", 1, conversation_key="b")
    scene.note("kept", "of another conversation", conversation_key="b")
    scene.move("widen", "wide", 1, scene.made)
    here = keys.conversation_id(scene.made.install_id, "a")
    scene.ended(scene.api("DELETE", f"/api/conversations/{here}"))
    assert scene.holding() == []
    assert set(scene.listed(scene.made)) == {"kept"}, "what was rewritten may have kept its words"
    assert sorted(scene.counts().values()) == [0, 1]


def test_what_is_noted_after_the_order_to_delete_a_conversation_is_kept(scene: Notes) -> None:
    scene.note("before", WORDS, conversation_key="a")
    here = keys.conversation_id(scene.made.install_id, "a")
    response = scene.api("DELETE", f"/api/conversations/{here}")
    scene.note("after", "a fresh word", conversation_key="a")
    scene.ended(response)
    assert set(scene.listed(scene.made)) == {"after"}
    assert scene.holding() == []


def test_a_deleted_actors_notes_go_and_others_stay(scene: Notes) -> None:
    scene.note("theirs", WORDS, actor_id="u-1")
    scene.note("wide", WORDS, actor_id="u-1")
    scene.note("others", "of somebody else", actor_id="u-2")
    scene.move("widen", "wide", 1, scene.made)
    scene.system.clock.forward(LISTS_LAG_MS / 1000)
    actor = keys.actor_id(scene.made.install_id, "u-1")
    scene.ended(scene.api("DELETE", f"/api/agents/grace/actors/{actor}"))
    assert scene.holding() == []
    assert (set(scene.listed(scene.made)), scene.listed()) == ({"others"}, {})


def test_what_came_of_an_actors_message_that_another_run_answered_goes_as_well(
    scene: Notes,
) -> None:
    made = scene.system.make_install(agent=scene.agent, engagement=Engagement(busy=Busy.MERGE))
    scene.say("hello", "m-1", made, actor_id="u-2")
    scene.say(f"note both 0 {WORDS}", "m-2", made, actor_id="u-1")
    scene.system.settle()
    assert scene.notes() == {"both": WORDS}
    assert [row["run_reason"] for row in scene.system.rows("STORY") if "merged_into" in row]
    actor = keys.actor_id(made.install_id, "u-1")
    scene.ended(scene.api("DELETE", f"/api/agents/grace/actors/{actor}"))
    assert scene.notes() == {}


def test_a_deleted_installs_notes_go_wherever_they_are_seen(scene: Notes) -> None:
    other = scene.system.make_install(agent=scene.agent, url="https://other.example/hook")
    scene.note("own", WORDS)
    scene.note("wide", WORDS)
    scene.note("others", "of another", 0, other)
    scene.move("widen", "wide", 1, scene.made)
    scene.note("wide", f"{WORDS} too", 2, other)
    scene.note("theirs", "seen everywhere", 0, other)
    scene.move("widen", "theirs", 1, other)
    scene.ended(scene.api("DELETE", f"/api/connectors/{scene.made.install_id}"), 600)
    assert [pk for pk, _ in scene.holding() if pk.startswith("NOTES#")] == []
    assert (set(scene.listed()), set(scene.listed(other))) == ({"theirs"}, {"others"})
    assert scene.counts().keys() == {
        keys.notes(scene.agent.agent_id, place) for place in (keys.EVERYWHERE, other.install_id)
    }
    assert scene.move("narrow", "theirs", 2).status == 200


def test_a_deleted_agents_notes_and_tools_leave_no_row(scene: Notes) -> None:
    scene.note("own", WORDS)
    scene.note("wide", WORDS)
    scene.move("widen", "wide", 1, scene.made)
    scene.api.ok("POST", "/api/agents/grace/pause")
    scene.ended(scene.api("DELETE", "/api/agents/grace"), 600)
    assert scene.holding() == []
    left = {(row["pk"].partition("#")[0], row["sk"].partition("#")[0]) for row in _of(scene)}
    assert not left & {("NOTES", "NOTE"), ("NOTES", "COUNT"), ("AGENT", "TOOL")}
    assert ("AGENT", "SETTINGS") in left


def _of(scene: Notes) -> list[dict[str, Any]]:
    return [row for row in scene.system.aws.items() if scene.agent.agent_id in row["pk"]]


@pytest.mark.parametrize(
    ("way", "at"),
    [
        ("widen", "query 0"),
        ("widen", "transact 0"),
        ("narrow", "query 0"),
        ("narrow", "query 1"),
        ("narrow", "transact 0"),
    ],
)
def test_a_note_that_an_operator_moves_while_it_is_erased_goes_all_the_same(
    scene: Notes, way: str, at: str
) -> None:
    scene.note("hours", WORDS)
    if way == "narrow":
        scene.move("widen", "hours", 1, scene.made)
    (row,) = scene.system.rows("NOTE#")
    moves = [way]

    class Slow(Table):
        """The operator comes between two of its calls."""

        calls: dict[str, int]

        def come(self, kind: str) -> None:
            if f"{kind} {self.calls.setdefault(kind, 0)}" == at and moves:
                made = scene.made if way == "widen" else None
                assert scene.move(moves.pop(), "hours", row["version"], made).status == 200
            self.calls[kind] += 1

        def query(self, pk: str, **more: Any) -> Any:
            self.come("query")
            return super().query(pk, **more)

        def transact(self, writes: Any, request_token: str) -> None:
            self.come("transact")
            super().transact(writes, request_token)

    table = Slow.__new__(Slow)
    vars(table).update(vars(scene.system.table) | {"calls": {}})
    NoteErasure(table).of_conversation(
        scene.agent.agent_id, scene.made.install_id, row["conversation_id"], 10**17
    )
    assert moves == []
    assert scene.notes() == {}
    assert set(scene.counts().values()) == {0}


def test_a_note_names_no_more_than_so_many_runs(scene: Notes) -> None:
    call = call_of(scene, "m-1")
    for version in range(NOTE_ORIGINS_MAX + 2):
        assert write(scene, call, version=version).kind == "result"
    (row,) = scene.system.rows("NOTE#")
    assert len(row["origins"]) == NOTE_ORIGINS_MAX
