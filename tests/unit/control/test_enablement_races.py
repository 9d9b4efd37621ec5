"""Changes of one connector beside each other: what each read may be otherwise when it writes."""

from __future__ import annotations

import pytest

from mesh.control.audit import Cause
from mesh.control.jobs import Jobs
from mesh.control.operators import bootstrap
from mesh.control.restore import Restoring
from mesh.kernel.errors import Conflict
from mesh.records.install import EndpointState, InstallState
from mesh.storage import keys
from mesh.storage.writes import update
from tests.fakes.between import just_before_a_write_of
from tests.unit.control.world import ALICE, ScriptedProvisioner, World

STEPS = ScriptedProvisioner()


class Held:
    """A connector that was disabled, or whose delivery was paused, an hour ago."""

    def __init__(self, *, enabled: bool = True, paused: bool = True) -> None:
        self.world = World()
        self.agent = self.world.agent()
        install, _ = self.world.install(self.agent)
        self.id = install.install_id
        self.since = self.world.clock.now_ms()
        if enabled:
            self.enable()
        if paused:
            self.pause()
        elif not enabled:
            self.world.enablement.disable(self.id, ALICE)
            self.hold()
        self.world.clock.forward(3600)

    def enable(self) -> None:
        self.world.enablement.enable(self.id, STEPS, skip_ping=False, cause=ALICE)

    def disable(self) -> None:
        self.world.enablement.disable(self.id, ALICE)

    def resume(self) -> None:
        self.world.enablement.resume_delivery(self.id, ALICE)

    def hold(self) -> None:
        expression = "SET #held_since = if_not_exists(#held_since, :now)"
        self.world.table.write(update(keys.delivery(self.id), expression, now=self.since))

    def pause(self) -> None:
        """As a receiver's 410 does."""
        self.hold()
        paused = EndpointState.PAUSED.value
        self.world.table.write(
            update(keys.delivery(self.id), "SET #state = :paused", paused=paused)
        )

    def stands(self) -> tuple[InstallState, EndpointState, int | None, int]:
        """The states, since when its replies are held, and how many holds are over."""
        whole = self.world.installs.whole(self.id)
        endpoint = whole.endpoint
        return whole.install.state, endpoint.state, endpoint.held_since, len(endpoint.holds)


def test_a_delivery_that_is_resumed_beside_a_disabling_stays_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held()
    done = just_before_a_write_of(monkeypatch, keys.delivery(held.id), held.disable)
    held.resume()
    assert done
    assert held.stands() == (InstallState.DISABLED, EndpointState.OK, held.since, 0)


def test_a_disabling_beside_a_delivery_that_is_resumed_counts_no_time_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held()
    done = just_before_a_write_of(monkeypatch, keys.delivery(held.id), held.resume)
    held.disable()
    assert done
    now = held.world.clock.now_ms()
    state, endpoint, since, over = held.stands()
    assert (state, endpoint, over) == (InstallState.DISABLED, EndpointState.OK, 1)
    assert since is not None
    assert now - 20_000 < since <= now, "the hold that was ended does not come back"


def test_an_opening_beside_a_delivery_that_is_resumed_leaves_no_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(enabled=False)
    provisioner = ScriptedProvisioner("ping")
    done: list[keys.Key] = []

    def at_the_last_step() -> None:
        done.extend(
            just_before_a_write_of(
                monkeypatch, keys.Key(keys.install(held.id), f"RELEASE#HELD#{held.id}"), held.resume
            )
        )

    provisioner.before_each = at_the_last_step
    held.world.enablement.enable(held.id, provisioner, skip_ping=False, cause=ALICE)
    assert held.stands() == (InstallState.ENABLED, EndpointState.OK, None, 1)


def test_an_opening_beside_a_pause_leaves_the_time_of_the_pause_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(enabled=False, paused=False)
    done = just_before_a_write_of(monkeypatch, keys.delivery(held.id), held.pause)
    held.enable()
    assert done
    assert held.stands() == (InstallState.ENABLED, EndpointState.PAUSED, held.since, 0)


def test_an_enabling_that_a_restore_came_before_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(enabled=False, paused=False)
    world = held.world
    jobs = Jobs(world.table, world.clock, world.ids)
    restoring = Restoring(world.table, world.clock, world.audit, world.installs)
    caller = bootstrap(world.operators, "req_x")

    def restore() -> None:
        restoring.order(jobs, world.operators, Cause(caller.record.operator_id, "req_y"))
        assert not restoring.hold(held.id, ALICE), "it is closed: the restore passes it by"

    done = just_before_a_write_of(monkeypatch, keys.settings(held.id), restore)
    with pytest.raises(Conflict, match="mesh job wait"):
        held.enable()
    assert done
    assert held.stands()[0] is InstallState.DISABLED
