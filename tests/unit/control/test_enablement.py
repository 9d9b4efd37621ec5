"""Enablement: states that a crash cannot leave half done, and a disabling that drains."""

from __future__ import annotations

import pytest

from infra.local.aws import Killed
from mesh.kernel.errors import Conflict, Failed
from mesh.kernel.limits import DISABLE_WAIT_S
from mesh.records.install import EndpointState, InstallState
from mesh.storage import keys
from mesh.storage.writes import update
from tests.unit.control.world import ALICE, ScriptedProvisioner, World, wanted


@pytest.mark.behaviour("enablement:states", "enablement:per-agent")
def test_enabling_runs_its_steps_in_order_and_ends_enabled() -> None:
    world = World()
    install, _ = world.install(world.agent())
    provisioner = ScriptedProvisioner("check_url", "ping")
    states: list[str] = []
    provisioner.before_each = lambda: states.append(
        world.installs.whole(install.install_id).install.state
    )
    whole = world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    assert provisioner.ran == ["check_url", "ping"]
    assert states == ["enabling", "enabling"]
    assert (whole.install.state, whole.enabling) == (InstallState.ENABLED, None)
    assert {"connector.enable", "connector.enabled"} <= set(world.actions())


@pytest.mark.behaviour("enablement:hooks")
def test_a_failed_step_ends_in_error_with_a_reason_and_the_command_that_goes_on() -> None:
    world = World()
    install, _ = world.install(world.agent())
    provisioner = ScriptedProvisioner("check_url", "ping")
    provisioner.failing["ping"] = Failed("unavailable", "ping failed: connect")
    whole = world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    assert whole.install.state is InstallState.ERROR
    assert whole.install.state_reason == (
        f"ping failed: connect. Then: mesh connector enable {install.install_id}"
    )
    provisioner.failing.clear()
    again = world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    assert again.install.state is InstallState.ENABLED
    assert again.install.state_reason is None
    assert again.install.secret_version == 1, "nothing is minted twice"


@pytest.mark.behaviour("enablement:hooks")
def test_a_crash_at_any_call_of_enabling_leaves_what_enabling_again_completes() -> None:
    calls = 0
    while True:
        calls += 1
        world = World()
        install, _ = world.install(world.agent())
        provisioner = ScriptedProvisioner("check_url", "ping")
        world.aws.kill_at(calls, when="after" if calls % 2 else "before")
        try:
            world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
        except Killed:
            whole = world.enablement.enable(
                install.install_id, provisioner, skip_ping=False, cause=ALICE
            )
            assert whole.install.state is InstallState.ENABLED
            continue
        break
    assert calls > 5


def test_a_step_that_is_done_is_not_run_again_by_the_next_try() -> None:
    world = World()
    install, _ = world.install(world.agent())
    provisioner = ScriptedProvisioner("check_url", "ping")

    def crash_at_ping() -> None:
        if provisioner.ran == ["check_url"]:
            provisioner.before_each = lambda: None
            raise Killed

    provisioner.before_each = crash_at_ping
    with pytest.raises(Killed):
        world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    assert provisioner.ran == ["check_url", "ping"]


@pytest.mark.parametrize("changed_at", ["check_url", "ping", "open"])
def test_steps_that_passed_on_other_settings_are_run_again(changed_at: str) -> None:
    world = World()
    install, _ = world.install(world.agent(), url="https://old.example.com/")
    provisioner = ScriptedProvisioner("check_url", "ping", "open")

    def change_at() -> None:
        if len(provisioner.ran) == provisioner.names.index(changed_at):
            provisioner.before_each = lambda: None
            stands = world.installs.whole(install.install_id).install
            world.installs.update(
                stands, wanted(delivery_url="https://new.example.com/"), version=1, cause=ALICE
            )

    provisioner.before_each = change_at
    with pytest.raises(Conflict, match="go on with mesh connector enable"):
        world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    whole = world.installs.whole(install.install_id)
    assert whole.install.state is InstallState.ENABLING
    assert whole.enabling is not None
    assert whole.enabling.done == ()
    provisioner.ran.clear()
    whole = world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    assert whole.install.state is InstallState.ENABLED
    assert provisioner.ran == ["check_url", "ping", "open"]


def test_deleting_a_failing_connector_lets_all_that_waits_die_and_ends_its_probes() -> None:
    world = World()
    install, _ = world.install(world.agent())
    world.table.write(
        update(
            keys.delivery(install.install_id),
            "SET #state = :degraded, #due_pk = :due, #due_at = :now",
            degraded="degraded",
            due=keys.due(install.install_id),
            now=world.clock.now_ms(),
        )
    )
    world.enablement.remove(install, ALICE)
    (endpoint,) = [i for i in world.aws.items() if i["sk"] == keys.DELIVERY]
    assert not {"due_pk", "due_at"} & endpoint.keys()
    sources = {i["source"] for i in world.aws.items() if i["sk"].startswith("RELEASE")}
    assert sources == {f"HELD#{install.install_id}", f"DEGRADED#{install.install_id}"}


def test_past_twenty_seconds_it_is_still_enabling_and_goes_on_later() -> None:
    world = World()
    install, _ = world.install(world.agent())
    provisioner = ScriptedProvisioner("check_url", "ping")
    provisioner.before_each = lambda: world.clock.forward(21)
    whole = world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    assert whole.install.state is InstallState.ENABLING
    again = world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    assert again.install.state is InstallState.ENABLED
    assert provisioner.ran == ["check_url", "ping"]


def test_an_enabling_that_was_disabled_meanwhile_opens_nothing() -> None:
    world = World()
    install, _ = world.install(world.agent())
    provisioner = ScriptedProvisioner("ping")
    provisioner.before_each = lambda: world.enablement.disable(install.install_id, ALICE)
    with pytest.raises(Conflict):
        world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    assert world.installs.whole(install.install_id).install.state is InstallState.DISABLED


def test_enabling_what_is_enabled_changes_nothing() -> None:
    world = World()
    install, _ = world.install(world.agent())
    provisioner = ScriptedProvisioner("ping")
    world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    before = world.actions()
    world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    assert (world.actions(), provisioner.ran) == (before, ["ping"])


@pytest.mark.behaviour("enablement:drain")
def test_disabling_closes_first_and_answers_when_the_request_in_flight_has_ended() -> None:
    world = World()
    install, _ = world.install(world.agent())
    began = world.clock.now_ms()
    in_flight = update(
        keys.delivery(install.install_id), "SET #slot_3 = :until", until=began + 4_000
    )
    world.enablement.enable(install.install_id, ScriptedProvisioner(), skip_ping=False, cause=ALICE)
    world.table.write(in_flight)
    world.enablement.disable(install.install_id, ALICE)
    assert 4_000 <= world.clock.now_ms() - began <= 5_000


def test_disabling_waits_fifteen_seconds_at_most() -> None:
    world = World()
    install, _ = world.install(world.agent())
    began = world.clock.now_ms()
    world.enablement.enable(install.install_id, ScriptedProvisioner(), skip_ping=False, cause=ALICE)
    world.table.write(
        update(keys.delivery(install.install_id), "SET #slot_0 = :until", until=began + 10**9)
    )
    whole = world.enablement.disable(install.install_id, ALICE)
    assert whole.install.state is InstallState.DISABLED
    assert world.clock.now_ms() - began <= (DISABLE_WAIT_S + 2) * 1000


def test_the_time_of_a_disabled_install_counts_to_no_entry() -> None:
    world = World()
    install, _ = world.install(world.agent())
    provisioner = ScriptedProvisioner()
    world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    disabled_at = world.clock.now_ms()
    world.enablement.disable(install.install_id, ALICE)
    world.clock.forward(3600)
    whole = world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    (hold,) = whole.endpoint.holds
    assert (hold.since, hold.until) == (disabled_at, world.clock.now_ms())
    assert whole.endpoint.held_since is None


def test_enabling_leaves_a_paused_delivery_paused_and_resuming_closes_its_hold() -> None:
    world = World()
    install, _ = world.install(world.agent())
    provisioner = ScriptedProvisioner()
    world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    paused_at = world.clock.now_ms()
    world.table.write(
        update(
            keys.delivery(install.install_id),
            "SET #state = :paused, #reason = :gone, #held_since = :now",
            paused="paused",
            gone="gone",
            now=paused_at,
        )
    )
    world.enablement.disable(install.install_id, ALICE)
    whole = world.enablement.enable(install.install_id, provisioner, skip_ping=False, cause=ALICE)
    assert whole.endpoint.state is EndpointState.PAUSED
    assert whole.endpoint.held_since == paused_at
    world.clock.forward(10)
    resumed = world.enablement.resume_delivery(install.install_id, ALICE).endpoint
    assert (resumed.state, resumed.reason, resumed.failures) == (EndpointState.OK, None, 0)
    assert [(hold.since, hold.until) for hold in resumed.holds] == [
        (paused_at, world.clock.now_ms())
    ]


def test_enabling_and_resuming_order_the_release_of_what_was_held() -> None:
    world = World()
    install, _ = world.install(world.agent())
    world.enablement.enable(install.install_id, ScriptedProvisioner(), skip_ping=False, cause=ALICE)
    world.enablement.resume_delivery(install.install_id, ALICE)
    sources = {i["source"] for i in world.aws.items() if i["sk"].startswith("RELEASE")}
    assert sources == {f"HELD#{install.install_id}", f"DEGRADED#{install.install_id}"}
