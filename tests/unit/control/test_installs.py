"""Installs: a secret that is shown once and kept sealed, its rotation, and the delivery URL."""

from __future__ import annotations

import pytest

from mesh.control.audit import Cause
from mesh.control.idempotency import Minted, Minting
from mesh.control.installs import KEEP, Wanted
from mesh.control.instance_key import CONTEXT
from mesh.control.rotation import Rotated
from mesh.control.secrets import open_delivery_url, open_secrets, valid_now
from mesh.kernel.errors import Conflict, Failed, Invalid, Refused
from mesh.records.install import Caps, Engagement, InstallState
from mesh.security.sealing import InstanceKey
from mesh.storage import keys
from tests.unit.control.world import ALICE, World, wanted

URL = "https://hooks.example.com/T0/B0/very-secret-path"


def rotate(
    world: World,
    install_id: str,
    *,
    overlap_s: int = 3600,
    force: bool = False,
    minting: Minting | None = None,
) -> Rotated:
    return world.rotation.rotate(
        install_id,
        overlap_s=overlap_s,
        force=force,
        cause=ALICE,
        minting=minting or world.minting(),
    )


def opened(world: World, install_id: str) -> list[str]:
    secrets = world.installs.whole(install_id).secrets
    now = world.clock.now_ms()
    return [text for _, text in open_secrets(world.keys.current(), install_id, secrets, now)]


@pytest.mark.behaviour("secrets:connector-owner", "secrets:owner-by-nature")
def test_a_secret_is_stored_sealed_and_opens_for_its_own_install_alone() -> None:
    world = World()
    agent = world.agent()
    install, secret = world.install(agent)
    other, _ = world.install(agent)
    assert opened(world, install.install_id) == [secret]
    rows = world.installs.whole(install.install_id).secrets
    with pytest.raises(Failed):
        open_secrets(world.keys.current(), other.install_id, rows, world.clock.now_ms())
    stored = repr(list(world.aws.items()))
    assert secret not in stored
    assert secret.removeprefix("whsec_") not in stored


@pytest.mark.behaviour("secrets:one-store")
def test_everything_sealed_opens_under_the_one_wrapped_key_of_the_instance() -> None:
    world = World()
    made = [world.install(world.agent(slug), url=URL)[0] for slug in ("ada", "bob")]
    wrapped = [item["wrapped"] for item in world.aws.items() if "wrapped" in item]
    assert len(wrapped) == 1
    key = InstanceKey(world.wrapper.unwrap(wrapped[0], CONTEXT))
    now = world.clock.now_ms()
    for install in made:
        rows = world.installs.whole(install.install_id).secrets
        assert len(open_secrets(key, install.install_id, rows, now)) == 1
        assert open_delivery_url(key, install) == URL


def test_a_delivery_url_is_stored_sealed_and_shown_by_host_and_hash() -> None:
    world = World()
    install, _ = world.install(world.agent(), url=URL)
    assert install.delivery_shown is not None
    assert install.delivery_shown.startswith("https://hooks.example.com/… ")
    assert "very-secret-path" not in repr(list(world.aws.items()))
    stored = world.installs.whole(install.install_id).install
    assert open_delivery_url(world.keys.current(), stored) == URL


@pytest.mark.parametrize(
    ("url", "hosts", "path"),
    [
        ("http://hooks.example.com/x", (), "delivery_url"),
        ("https://127.0.0.1/x", (), "delivery_url"),
        ("https://localhost/x", (), "delivery_url"),
        ("https://hooks.example.com:8443/x", (), "delivery_url"),
        ("https://hooks.example.com/x", ("other.example",), "delivery_url"),
        ("https://hooks.example.com/x", ("ok.example", "not a host"), "allow_hosts.1"),
        (None, ("not a host",), "allow_hosts.0"),
    ],
)
def test_a_delivery_url_is_judged_when_it_is_saved(
    url: str | None, hosts: tuple[str, ...], path: str
) -> None:
    world = World()
    agent = world.agent()
    with pytest.raises(Invalid) as caught:
        world.installs.create(
            agent,
            wanted(delivery_url=url, allow_hosts=hosts),
            kind="generic",
            enable=False,
            skip_ping=False,
            cause=ALICE,
            minting=world.minting(),
        )
    assert [field.path for field in caught.value.fields] == [path]
    assert world.actions() == ["agent.create"]


def test_the_same_key_mints_no_second_install_and_another_body_is_a_conflict() -> None:
    world = World()
    agent = world.agent()
    install, _ = world.install(agent, minting=world.minting("k", "body"))
    with pytest.raises(Minted) as again:
        world.install(agent, minting=world.minting("k", "body"))
    assert again.value.answer == {"install_id": install.install_id}
    with pytest.raises(Conflict) as caught:
        world.install(agent, minting=world.minting("k", "other body"))
    assert caught.value.code == "idempotency_conflict"
    world.clock.forward(24 * 3600)
    world.install(agent, minting=world.minting("k", "other body"))
    assert world.actions().count("connector.create") == 2


def test_after_a_rotation_both_secrets_count_until_the_overlap_ends() -> None:
    world = World()
    install, first = world.install(world.agent())
    rotated = rotate(world, install.install_id, overlap_s=60)
    assert rotated.version == 2
    assert rotated.previous_valid_until == world.clock.now_ms() + 60_000
    assert opened(world, install.install_id) == [rotated.secret, first]
    world.clock.forward(60)
    assert opened(world, install.install_id) == [rotated.secret]


def test_a_rotation_without_overlap_revokes_at_once() -> None:
    world = World()
    install, _ = world.install(world.agent())
    rotated = rotate(world, install.install_id, overlap_s=0)
    assert rotated.previous_valid_until is None
    assert opened(world, install.install_id) == [rotated.secret]


@pytest.mark.parametrize("overlap_s", [0, 60])
def test_within_an_overlap_rotation_needs_force_and_drops_the_oldest(overlap_s: int) -> None:
    world = World()
    install, _ = world.install(world.agent())
    second = rotate(world, install.install_id)
    with pytest.raises(Conflict) as caught:
        rotate(world, install.install_id, overlap_s=overlap_s)
    assert caught.value.code == "state_conflict"
    third = rotate(world, install.install_id, overlap_s=overlap_s, force=True)
    expected = [third.secret, second.secret] if overlap_s else [third.secret]
    assert opened(world, install.install_id) == expected
    stored = [item for item in world.aws.items() if item["sk"].startswith("SECRET#")]
    assert len(stored) == len(expected), "a dropped secret is gone, not hidden"


def test_after_the_overlap_rotation_needs_no_force() -> None:
    world = World()
    install, _ = world.install(world.agent())
    rotate(world, install.install_id, overlap_s=60)
    world.clock.forward(61)
    assert rotate(world, install.install_id).version == 3


def test_ending_the_overlap_leaves_the_current_secret_alone() -> None:
    world = World()
    install, _ = world.install(world.agent())
    rotated = rotate(world, install.install_id)
    world.rotation.end_overlap(install.install_id, ALICE)
    assert opened(world, install.install_id) == [rotated.secret]
    world.rotation.end_overlap(install.install_id, ALICE)
    assert world.actions().count("connector.end_overlap") == 1


def test_a_rotation_asked_for_twice_mints_once() -> None:
    world = World()
    install, _ = world.install(world.agent())
    first = rotate(world, install.install_id, minting=world.minting("r"))
    with pytest.raises(Minted) as again:
        rotate(world, install.install_id, minting=world.minting("r"))
    assert again.value.answer == {
        "version": 2,
        "previous_valid_until": first.previous_valid_until,
    }
    assert world.installs.whole(install.install_id).install.secret_version == 2


def update(world: World, install_id: str, settings: Wanted, version: int) -> None:
    install = world.installs.by_id(install_id)
    assert install is not None
    world.installs.update(install, settings, version=version, cause=ALICE)


def test_a_left_out_url_stays_and_null_removes_it() -> None:
    world = World()
    install, _ = world.install(world.agent(), url=URL)
    keep = Wanted(
        name="Renamed",
        delivery_url=KEEP,
        allow_hosts=(),
        engagement=Engagement(),
        caps=Caps(),
        failure_replies=False,
    )
    update(world, install.install_id, keep, 1)
    kept = world.installs.whole(install.install_id).install
    assert (kept.name, kept.failure_replies, kept.version) == ("Renamed", False, 2)
    assert open_delivery_url(world.keys.current(), kept) == URL
    update(world, install.install_id, wanted(delivery_url=install.delivery_shown), 2)
    same = world.installs.whole(install.install_id).install
    assert open_delivery_url(world.keys.current(), same) == URL, "what is shown stands for it"
    update(world, install.install_id, wanted(delivery_url=None), 3)
    gone = world.installs.whole(install.install_id).install
    assert (gone.delivery_url, gone.delivery_shown, gone.delivery_host) == (None, None, None)


def test_a_kept_url_must_pass_a_changed_allowlist() -> None:
    world = World()
    install, _ = world.install(world.agent(), url=URL)
    settings = Wanted(
        name="x",
        delivery_url=KEEP,
        allow_hosts=("other.example",),
        engagement=Engagement(),
        caps=Caps(),
        failure_replies=True,
    )
    with pytest.raises(Invalid):
        update(world, install.install_id, settings, 1)


def test_a_tombstone_is_nothing_to_an_operator_and_still_something_to_ingress() -> None:
    world = World()
    install, _ = world.install(world.agent(), url=URL)
    world.enablement.remove(install, ALICE)
    with pytest.raises(Refused):
        world.installs.whole(install.install_id)
    row = world.installs.by_id(install.install_id)
    assert row is not None
    assert (row.state, row.delivery_url) == (InstallState.DELETED, None)
    assert world.table.get(keys.secret(install.install_id, 1)) is not None
    assert world.installs.of_agent(install.agent_id, 50, None) == ([], None)


def test_of_an_overlap_the_current_secret_comes_first() -> None:
    world = World()
    install, _ = world.install(world.agent())
    rotate(world, install.install_id)
    rows = world.installs.whole(install.install_id).secrets
    assert [row.version for row in valid_now(rows, world.clock.now_ms())] == [2, 1]


def test_nothing_of_a_secret_is_in_a_repr() -> None:
    world = World()
    install, _ = world.install(world.agent(), url=URL)
    rotated = rotate(world, install.install_id)
    assert rotated.secret not in repr(rotated)
    assert "blob" not in repr(world.installs.whole(install.install_id))
    assert repr(InstanceKey(b"k" * 32)) == "InstanceKey(…)"


def test_an_unknown_or_malformed_id_finds_nothing() -> None:
    world = World()
    assert world.installs.by_id("ins_" + "0" * 26) is None
    assert world.installs.by_id("ins_x#SETTINGS") is None
    with pytest.raises(Refused):
        world.rotation.rotate(
            "ins_" + "0" * 26,
            overlap_s=0,
            force=False,
            cause=Cause("opr_alice", "req"),
            minting=world.minting(),
        )
