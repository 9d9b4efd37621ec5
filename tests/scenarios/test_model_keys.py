"""A model is asked with its agent's key or the instance's, at the origin that it was saved for, and
nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.storage import keys
from mesh.storage.writes import put
from tests.fakes.egress import Call, answer
from tests.fakes.operators import admin
from tests.fakes.system import Made, System

OPENAI = "https://api.openai.com"
OWN = "https://models.example"
MINE, OURS = "canary-of-the-agent", "canary-of-the-instance"
SAID = json.dumps({"choices": [{"message": {"role": "assistant", "content": "hi"}}]}).encode()


class Scene:
    """An agent with a model of OpenAI's kind, and both addresses that it may be asked at."""

    def __init__(self) -> None:
        self.system = System()
        self.api = admin(self.system)
        for origin in (OPENAI, OWN):
            self.system.egress.script(f"{origin}/v1/chat/completions", answer(200, SAID))
        self.api.ok("POST", "/api/agents", {"slug": "grace", "model": self.model()})
        body = {"kind": "generic", "enable": True}
        made = self.api.ok("POST", "/api/agents/grace/connectors", body)
        self.made = Made(made["install_id"], made["secret"])
        self.number = 0

    @staticmethod
    def model(base_url: str | None = None) -> dict[str, Any]:
        return {"kind": "openai", "name": "some-model"} | (
            {} if base_url is None else {"base_url": base_url}
        )

    def moves(self, base_url: str | None) -> None:
        version = self.api.ok("GET", "/api/agents/grace")["version"]
        body = {"model": self.model(base_url), "version": version}
        self.api.ok("PUT", "/api/agents/grace", body)

    def keeps(self, value: str) -> None:
        self.api.ok("PUT", "/api/agents/grace/model-key", {"value": value})

    def instance_keeps(self, value: str) -> None:
        self.api.ok("PUT", "/api/instance/model-keys/openai", {"value": value})

    def run(self) -> Any:
        """A run from its message to its end, as it is shown."""
        self.number += 1
        said = self.system.say(self.made, "hello", f"m-{self.number}")
        self.system.settle()
        return self.api.ok("GET", f"/api/runs/{said.json()['run_id']}")

    def asked(self) -> Call:
        """The last question to a model."""
        return [c for c in self.system.egress.calls if "/chat/completions" in c.url][-1]

    def key(self) -> str | None:
        """The key that the last question bore."""
        self.run()
        found = {name.lower(): told for name, told in self.asked().headers.items()}.get(
            "authorization"
        )
        return None if found is None else found.removeprefix("Bearer ")


def test_the_instances_key_goes_to_its_own_origin_and_the_agents_comes_first() -> None:
    scene = Scene()
    scene.instance_keeps(OURS)
    assert (scene.key(), scene.asked().url.startswith(OPENAI)) == (OURS, True)
    scene.keeps(MINE)
    assert scene.key() == MINE
    scene.api.ok("DELETE", "/api/agents/grace/model-key")
    assert scene.key() == OURS


@pytest.mark.parametrize("own", [True, False])
def test_an_address_of_the_agents_own_never_gets_the_instances_key(own: bool) -> None:
    scene = Scene()
    scene.instance_keeps(OURS)
    scene.moves(f"{OWN}/v1")
    if own:
        scene.keeps(MINE)
    assert scene.key() == (MINE if own else None)
    assert scene.asked().url.startswith(OWN)
    assert OURS not in repr(scene.system.log.events)


def test_a_key_stays_with_the_origin_that_it_was_saved_for() -> None:
    scene = Scene()
    scene.keeps(MINE)
    assert scene.key() == MINE
    scene.moves(f"{OWN}/v1")
    assert scene.key() is None, "it was saved for another origin"
    scene.moves(None)
    assert scene.key() == MINE


def test_without_any_key_the_run_ends_honestly() -> None:
    scene = Scene()
    run = scene.run()
    assert (run["status"], run["reason"]) == ("failed", "model_credential")
    assert not [c for c in scene.system.egress.calls if "/chat/completions" in c.url]


@pytest.mark.parametrize("how", ["another agent's", "another version", "damaged"])
def test_a_key_that_was_moved_or_damaged_goes_nowhere(how: str) -> None:
    scene = Scene()
    scene.keeps(MINE)
    scene.api.ok("POST", "/api/agents", {"slug": "eve", "model": scene.model()})
    scene.api.ok("PUT", "/api/agents/eve/model-key", {"value": "canary-of-eve"})
    (grace,), (eve,) = (
        [
            row
            for row in scene.system.aws.items()
            if row.get("slug") == slug and row["sk"] == "SETTINGS"
        ]
        for slug in ("grace", "eve")
    )
    table = scene.system.table
    mine = table.get(keys.model_key(grace["agent_id"]))
    theirs = table.get(keys.model_key(eve["agent_id"]))
    assert mine is not None
    assert theirs is not None
    changed = {
        "another agent's": theirs,
        "another version": mine | {"version": 7},
        "damaged": mine | {"blob": mine["blob"][:-1] + bytes([mine["blob"][-1] ^ 1])},
    }[how]
    item = {name: value for name, value in changed.items() if name not in ("pk", "sk")}
    table.write(put(keys.model_key(grace["agent_id"]), item))
    run = scene.run()
    assert (run["status"], run["reason"]) == ("failed", "model_credential")
    assert not [c for c in scene.system.egress.calls if "/chat/completions" in c.url]
