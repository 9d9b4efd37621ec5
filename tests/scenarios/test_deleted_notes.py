"""What an agent noted of what was deleted goes with it; what it noted elsewhere stays."""

from __future__ import annotations

from typing import Any

import pytest

from infra.local.aws import Killed
from mesh.storage import keys
from tests.fakes.between import just_before_a_write_of
from tests.fakes.operators import Api, admin
from tests.scenarios.test_tools import Scene, says, use

WORDS = "the heron flies at dusk"
KEPT = "closed on Mondays"


class Noted(Scene):
    """An agent that noted something in two rooms of one connector, and in one of another."""

    def __init__(self) -> None:
        lines: list[Any] = []
        for name, text in (("one", WORDS), ("two", KEPT), ("three", KEPT)):
            lines += [says("", use("note", name=name, text=text, version=0)), says("noted")]
        super().__init__(*lines)
        self.api: Api = admin(self.system)
        self.other = self.system.make_install(agent=self.agent)
        for made, room, actor in (
            (self.made, "a", "u-1"),
            (self.made, "b", "u-2"),
            (self.other, "a", "u-1"),
        ):
            self.say("hello", f"m-{room}", made, conversation_key=room, actor_id=actor)
            self.system.settle()
        self.system.clock.forward(35)  # the lists show it
        assert set(self.notes()) == {"one", "two", "three"}

    def order(self, what: str) -> None:
        room = keys.conversation_id(self.made.install_id, "a")
        actor = keys.actor_id(self.made.install_id, "u-1")
        path = {
            "conversation": f"/api/conversations/{room}",
            "actor": f"/api/agents/grace/actors/{actor}",
            "connector": f"/api/connectors/{self.made.install_id}",
            "agent": "/api/agents/grace",
        }[what]
        if what == "agent":
            self.api.ok("POST", f"{path}/pause")
        self.api.ok("DELETE", path)

    def work(self) -> None:
        while self.system.stack.poll_once("chores"):
            pass

    def counts(self) -> dict[str, int]:
        return {
            row["pk"].rpartition("#")[2]: row["n"]
            for row in self.system.rows("COUNT")
            if row["pk"].startswith("NOTES#")
        }


LEFT = {
    "conversation": {"two", "three"},
    "actor": {"two", "three"},
    "connector": {"three"},
    "agent": set[str](),
}


@pytest.mark.parametrize("what", LEFT)
def test_notes_go_with_what_they_are_of(what: str) -> None:
    noted = Noted()
    noted.order(what)
    noted.system.run(180, step_s=30)
    assert set(noted.notes()) == LEFT[what]
    ones, others = noted.made.install_id, noted.other.install_id
    left = {"conversation": 1, "actor": 1}.get(what)
    expected = {} if left is None else {ones: left}
    assert noted.counts() == ({} if what == "agent" else expected | {others: 1})


def died() -> None:
    raise Killed


@pytest.mark.parametrize("what", LEFT)
def test_a_worker_that_dies_at_a_note_leaves_it_to_the_next(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Noted()
    noted.order(what)
    noted.system.clock.forward(31)
    note = keys.note(noted.agent.agent_id, noted.made.install_id, "one")
    just_before_a_write_of(monkeypatch, note, died)
    with pytest.raises(Killed):
        noted.work()
    assert "one" in noted.notes()
    noted.system.run(300, step_s=60)
    assert set(noted.notes()) == LEFT[what]
