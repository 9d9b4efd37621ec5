"""The table goes back to what it was: what comes back, what is closed, and what a
receiver sees of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from infra.local.aws import Killed
from infra.local.aws.values import Item
from mesh.storage import keys
from tests.fakes.operators import Api, admin, error_of, minted
from tests.fakes.system import Made, System, answer

FINISH = "/api/instance/restore/finish"
PROMISED_S = 120
"""Two passes of the sweep, and time for what they ring."""


@dataclass
class Disaster:
    """An instance with two connectors, backed up in the middle of its work, and what followed."""

    system: System = field(default_factory=System)

    def __post_init__(self) -> None:
        system = self.system
        self.api = admin(system)
        self.viewer = minted(self.api, "viewer")
        self.one = system.make_install()
        self.two = system.make_install()
        rotated = self.api.ok("POST", f"/api/connectors/{self.one.install_id}/rotate", {})
        self.old_one, self.one = self.one, Made(self.one.install_id, rotated["secret"])
        system.say(self.one, "first", "m-1")
        system.run(5)
        system.receiver(answer(503), answer(204))
        system.say(self.one, "second", "m-2")
        system.settle()  # its reply waits for a second try
        system.say(self.one, "third", "m-3")  # its run waits
        assert [row["state"] for row in system.rows(keys.ENTRY)] == ["delivered", "pending"]
        self.backup: list[Item] = system.aws.dynamo.items()
        system.run(PROMISED_S, step_s=10)
        system.say(self.one, "fourth", "m-4")
        system.run(300, step_s=60)
        self.before = system.delivered()
        assert [body["sequence"] for body in self.before] == [1, 2, 2, 3, 4]

    def restored(self) -> Api:
        """The table as it was; the functions stand still until somebody asks them."""
        self.system.aws.dynamo.restore(self.backup)
        return admin(self.system)

    def state(self, api: Api, made: Made) -> tuple[str, str | None]:
        shown = api.ok("GET", f"/api/connectors/{made.install_id}")
        return shown["state"], shown["state_reason"]

    def enable(self, api: Api, made: Made) -> None:
        path = f"/api/connectors/{made.install_id}/enable"
        assert api.ok("POST", path, {"skip_ping": True})["state"] == "enabled"


def ended(system: System, api: Api, job: Any) -> Any:
    for _ in range(60):
        shown = api.ok("GET", f"/api/jobs/{job['job_id']}")
        if shown["status"] != "running":
            return shown
        system.run(30, step_s=5)
    pytest.fail("the job does not end")


def test_what_a_restore_brings_back_is_closed_and_a_receiver_can_tell_every_number() -> None:
    lost = Disaster()
    system = lost.system
    api = lost.restored()
    ordered = api("POST", FINISH, {})
    assert ordered.status == 202
    assert ordered.json()["kind"] == "instance.restore"

    # From the answer on, no token of before counts.
    for old in (lost.api, lost.viewer):
        assert error_of(old("GET", "/api/whoami")) == "unauthorized"
    shown = ended(system, api, ordered.json())
    assert (shown["status"], shown["done"]) == ("done", 2)
    for made in (lost.one, lost.two):
        state, reason = lost.state(api, made)
        assert state == "disabled"
        assert str(reason).endswith(f"mesh connector enable {made.install_id}")
        assert error_of(system.say(made, "hello", "m-9")) == "connector_disabled"
    assert system.say(lost.old_one, "hello", "m-9").status == 401  # the overlap is over
    system.run(PROMISED_S, step_s=10)
    assert system.delivered() == lost.before

    lost.enable(api, lost.one)
    assert lost.state(api, lost.two)[0] == "disabled"
    system.run(PROMISED_S, step_s=10)
    assert system.say(lost.one, "after", "m-5").status == 202
    system.run(PROMISED_S, step_s=10)
    after = system.delivered()[len(lost.before) :]
    assert [body["in_reply_to"] for body in after] == ["m-2", "m-3", "m-5"]
    # What waited in the backup bears the id that it had: a receiver drops it as a repetition.
    known = {body["outbound_id"] for body in lost.before}
    assert [body["outbound_id"] in known for body in after] == [True, True, False]
    assert after[0] == lost.before[1]
    # What is new is told from what bore the same number.
    assert (after[-1]["sequence"], after[-1]["epoch"] > 1) == (4, True)
    by_number: dict[tuple[int, int], set[str]] = {}
    for body in (*lost.before, *after):
        number = body["epoch"], body["sequence"]
        by_number.setdefault(number, set()).add(body["outbound_id"])
    assert all(len(ids) == 1 for ids in by_number.values())


def test_a_second_restore_from_the_same_backup_is_an_epoch_of_its_own() -> None:
    lost = Disaster()
    epochs = []
    for _ in range(2):
        api = lost.restored()
        ended(lost.system, api, api.ok("POST", FINISH, {}))
        (row,) = lost.system.rows("EPOCH")
        epochs.append(row["epoch"])
        lost.system.clock.forward(60)
    assert 1 < epochs[0] < epochs[1]


def test_a_connector_opens_only_once_its_agent_bears_the_new_epoch() -> None:
    lost = Disaster()
    api = lost.restored()
    job = api.ok("POST", FINISH, {})
    path = f"/api/connectors/{lost.two.install_id}"
    system = lost.system
    system.set_state(lost.two.install_id, "disabled")  # as one that the job has passed
    refused = api("POST", f"{path}/enable", {"skip_ping": True})
    assert error_of(refused) == "state_conflict"
    assert f"mesh job wait {job['job_id']}" in refused.json()["error"]["message"]
    body = {"kind": "generic", "enable": True}
    made = api.ok("POST", "/api/agents/ada/connectors", body)
    assert made["secret"] is not None
    assert made["state"] != "enabled"
    ended(system, api, job)
    lost.enable(api, lost.two)
    # An agent and a token that are made afterwards are of the new epoch.
    api.ok("POST", "/api/agents", {"slug": "bob"})
    made = api.ok("POST", "/api/agents/bob/connectors", body)
    assert made["state"] == "enabled"
    assert minted(api, "viewer").ok("GET", "/api/whoami")["role"] == "viewer"


def test_revoked_by_a_restore_is_shown_as_revoked() -> None:
    lost = Disaster()
    api = lost.restored()
    api.ok("POST", FINISH, {})
    whoami = api.ok("GET", "/api/whoami")
    by_id = {each["id"]: each["revoked_at"] for each in api.every("/api/operators")}
    assert [operator for operator, at in by_id.items() if at is None] == [whoami["id"]]
    gone = next(operator for operator, at in by_id.items() if at is not None)
    assert error_of(api("DELETE", f"/api/operators/{gone}")) == "not_found"


def test_finishing_is_an_admins_and_takes_no_fields() -> None:
    system = System()
    api = admin(system)
    for role in ("operator", "viewer"):
        assert error_of(minted(api, role, ["ada"])("POST", FINISH, {})) == "forbidden"
    assert api("POST", FINISH, {"epoch": 7}).status == 422
    assert not system.rows("EPOCH")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 40, 5))
def test_whatever_dies_meanwhile_everything_is_closed_in_the_end(call: int, when: Any) -> None:
    system = System()
    installs = [system.make_install() for _ in range(2)]
    bob = system.make_agent("bob")
    installs.append(system.make_install(agent=bob))
    api = admin(system)
    job = api.ok("POST", FINISH, {})
    system.aws.kill_at(call, when)
    try:
        system.run(30, step_s=5)
    except Killed:
        system.run(300)
    shown = ended(system, api, job)
    assert shown["status"] == "done"
    (epoch,) = system.rows("EPOCH")
    for made in installs:
        install = system.install(made.install_id)
        assert install.state == "disabled"
        agent = system.agents.by_id(install.agent_id)
        assert agent is not None
        assert agent.epoch == epoch["epoch"]
    held = api.every("/api/audit?action=connector.hold")
    assert sorted(row["target"] for row in held) == sorted(m.install_id for m in installs)
    assert len(api.every("/api/audit?action=instance.restored")) == 1


def test_a_connector_that_was_closed_before_keeps_its_reason_and_loses_its_old_secret() -> None:
    system = System()
    made = system.make_install()
    api = admin(system)
    path = f"/api/connectors/{made.install_id}"
    api.ok("POST", f"{path}/rotate", {})
    api.ok("POST", f"{path}/disable")
    ended(system, api, api.ok("POST", FINISH, {}))
    shown = api.ok("GET", path)
    assert (shown["state"], shown["state_reason"]) == ("disabled", None)
    assert shown["secret"]["previous_valid_until"] is None
    assert len([row for row in system.rows("SECRET#") if made.install_id in row["pk"]]) == 1
    assert json.dumps(shown).count("whsec_") == 0
