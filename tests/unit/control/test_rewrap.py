"""The rotation of the master key: everything opens under the new one, wherever it was stopped."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from infra.local.aws import Faults, Killed, Kind
from mesh.control.connections import INSTANCE_OWNER, provider_key_context
from mesh.control.instance_key import InstanceKeys
from mesh.control.instance_model_keys import KINDS, InstanceModelKeys, instance_key_context
from mesh.control.instance_settings import (
    InstanceControl,
    OperatorWebhook,
    Wanted,
    open_webhook,
)
from mesh.control.rewrap import Rewrapping
from mesh.control.rows import record_of
from mesh.control.secrets import open_secrets
from mesh.control.vault import Vault, model_key_context, own_destination, value_context
from mesh.control.web_rules import Wanted as WantedAccess
from mesh.kernel.errors import Failed
from mesh.kernel.limits import REWRAP_ROWS_PER_STEP
from mesh.records.agent import ModelKind
from mesh.records.connection import Mode
from mesh.records.install import Secret
from mesh.records.rewrap import Rewrap, RewrapStatus
from mesh.records.value import SealedValue
from mesh.security.sealing import DataKey, SecretContext, open_sealed
from mesh.storage import keys
from mesh.storage.clients import SessionClients
from mesh.storage.kms import KmsWrapper
from mesh.storage.table import Table
from mesh.storage.writes import put
from mesh.tools.web.catalogue import PROVIDERS, kept_for
from tests.unit.control.world import ALICE, World, judged

MANY = REWRAP_ROWS_PER_STEP + 2


class Instance:
    """An instance whose secrets the old key wraps, and the functions that know the new one."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.world = World(faults)
        self.clients = SessionClients(self.world.aws.session())
        self.old_key = self.world.aws.create_key("old")
        self.new_key = self.world.aws.create_key("new")
        self.old, self.new = self.wrapper(self.old_key), self.wrapper(self.new_key)
        self.rewrapping = self.rewrapping_over(self.world.table)
        self.kept: dict[tuple[str, str], int] = {}
        with self.world.aws.without_faults():
            self.world.installs._keys = self.instance_keys(self.old)
            self.agents = [self.world.agent(slug) for slug in ("ada", "bob", "cyd")]
            self.install, self.secret = self.world.install(self.agents[0])
            for number in range(MANY):
                self.set(self.old, 1, f"value-{number:02d}")
            self.set(self.old, 2, "github")
            self.vault(self.old).set_model_key(self.agents[1], "key", ALICE)
            for kind in KINDS:
                self.model_keys(self.old).set(kind, f"of {kind}", ALICE)
            self.webhook = self.set_webhook()
            self.provider_keys = [
                self.set_provider_key(owner, provider)
                for owner, provider in ((None, "brave"), (None, "cloudflare"), (0, "firecrawl"))
            ]

    def wrapper(self, key: str) -> KmsWrapper:
        return KmsWrapper(lambda: self.clients.kms, key)

    def instance_keys(self, wrapper: KmsWrapper) -> InstanceKeys:
        world = self.world
        return InstanceKeys(wrapper, world.table, world.clock, world.random)

    def rewrapping_over(self, table: Table) -> Rewrapping:
        world = self.world
        return Rewrapping(table, world.clock, world.ids, audit=world.audit, wrapper=self.new)

    def vault(self, wrapper: KmsWrapper) -> Vault:
        world = self.world
        return Vault(world.table, world.clock, world.random, audit=world.audit, wrapper=wrapper)

    def model_keys(self, wrapper: KmsWrapper) -> InstanceModelKeys:
        world = self.world
        return InstanceModelKeys(
            world.table, world.clock, world.random, audit=world.audit, wrapper=wrapper
        )

    def set_provider_key(self, owner: int | None, provider: str) -> tuple[keys.Key, SecretContext]:
        """Where the key of the instance, or of an agent, lies, and what it opens under."""
        agent = None if owner is None else self.agents[owner]
        described = PROVIDERS[provider]
        wanted = WantedAccess(
            capability=described.capabilities[0],
            mode=Mode.CUSTOM,
            provider=provider,
            config={each.name: "0" * 32 for each in described.config},
            requests_per_minute=60,
            requests_per_run=20,
            api_key=f"canary-of-{provider}",
        )
        self.world.web_access(self.old).put(agent, wanted, version=0, cause=ALICE)
        owner_id = INSTANCE_OWNER if agent is None else agent.agent_id
        context = provider_key_context(owner_id, kept_for(described), 1)
        return keys.provider_key(owner_id, provider), context

    def set_webhook(self) -> OperatorWebhook | None:
        world, keys_of_old = self.world, self.instance_keys(self.old)
        wanted = Wanted(allow_hosts=(), webhook_url="https://hooks.example/x", retention_days=None)
        InstanceControl(
            world.table, world.random, audit=world.audit, instance_keys=keys_of_old, judge=judged
        ).update(wanted, version=0, cause=ALICE)
        return open_webhook(world.table, keys_of_old)

    def set(self, wrapper: KmsWrapper, agent: int, name: str) -> None:
        row = self.vault(wrapper).set(self.agents[agent], name, f"of {name}", ALICE)
        self.kept[self.agents[agent].agent_id, name] = row.version

    def go_on(self, run_ms: int = 60_000) -> Rewrap:
        return self.rewrapping.go_on(ALICE, run_ms)

    def until_done(self) -> Rewrap:
        """Asks again, as the command does, over whatever stops it."""
        for _ in range(200):
            try:
                state = self.go_on(0)
            except Failed:
                continue
            if state.status is not RewrapStatus.RUNNING:
                return state
        pytest.fail("it does not end")

    def everything_opens_without_the_old_key(self) -> None:
        with self.world.aws.without_faults():
            self.clients.kms.disable_key(KeyId=self.old_key)
            for (agent_id, name), version in self.kept.items():
                context = value_context(agent_id, name, version)
                assert self.opened(keys.vault_value(agent_id, name), context) == f"of {name}"
            bob = self.agents[1].agent_id
            assert self.opened(keys.model_key(bob), model_key_context(bob, "offline", 1)) == "key"
            for kind in KINDS:
                ours = instance_key_context(own_destination(kind), 1)
                assert self.opened(keys.instance_model_key(kind), ours) == f"of {kind}"
            for key, context in self.provider_keys:
                provider = key.sk.removeprefix(keys.PROVIDER_KEY)
                assert self.opened(key, context) == f"canary-of-{provider}"
            webhook = open_webhook(self.world.table, self.instance_keys(self.new))
            assert webhook is not None
            assert webhook == self.webhook
            key = self.instance_keys(self.new).current()
            rows = self.world.table.query(keys.install(self.install.install_id), prefix="SECRET#")
            secrets = [record_of(item, Secret) for item in rows.items]
            now = self.world.clock.now_ms()
            assert open_secrets(key, self.install.install_id, secrets, now) == [(1, self.secret)]

    def opened(self, key: keys.Key, context: SecretContext) -> str:
        row = record_of(self.world.table.get(key) or {}, SealedValue)
        material = self.new.unwrap(row.wrapped or b"", context.encryption_context())
        return open_sealed(DataKey(material), context, row.blob or b"").decode()

    def wrapped(self) -> dict[tuple[str, str], bytes]:
        """Every wrapped key, by where it lies."""
        return {(i["pk"], i["sk"]): i["wrapped"] for i in self.world.aws.items() if "wrapped" in i}

    def settings(self) -> list[dict[str, Any]]:
        """Every row, less what a rewrap may change: the wrapping, its own row, audit."""
        return [
            {name: value for name, value in item.items() if name != "wrapped"}
            for item in self.world.aws.items()
            if not item["pk"].startswith("AUDIT#") and item["sk"] != "REWRAP"
        ]


def test_before_the_rewrap_what_the_old_key_wrapped_opens_beside_the_new_key() -> None:
    instance = Instance()
    bob = instance.agents[1].agent_id
    instance.set(instance.new, 1, "newest")
    for name in ("value-00", "newest"):
        assert instance.opened(keys.vault_value(bob, name), value_context(bob, name, 1))


def test_after_the_rewrap_the_old_key_can_be_disabled_and_nothing_else_has_changed() -> None:
    instance = Instance()
    before = instance.settings()
    state = instance.go_on()
    assert (state.status, state.done, state.total) == (RewrapStatus.DONE, 4, 4)
    assert (state.rewrapped, state.unopenable) == (MANY + 8, 0)
    assert instance.settings() == before
    instance.everything_opens_without_the_old_key()
    assert instance.rewrapping.state() == state
    assert instance.world.actions().count("instance.rewrap") == 2, "the order and its end"


def test_a_rewrap_goes_on_where_it_was_stopped_and_begins_anew_once_it_has_ended() -> None:
    instance = Instance()
    places = []
    while (state := instance.go_on(0)).status is RewrapStatus.RUNNING:
        places.append((state.slug, state.row is not None))
    assert places == [("", False), ("ada", False), ("bob", True), ("bob", False), ("cyd", False)]
    assert state.rewrapped == MANY + 8
    again = instance.go_on()
    assert again.token != state.token
    assert again.rewrapped == MANY + 8


@pytest.mark.parametrize("seed", range(3))
def test_whatever_answers_are_lost_everything_opens_in_the_end(seed: int) -> None:
    instance = Instance(
        Faults(seed, rates={Kind.LOST: 0.2, Kind.CONFLICT: 0.1, Kind.THROTTLE: 0.1})
    )
    assert instance.until_done().status is RewrapStatus.DONE
    instance.everything_opens_without_the_old_key()


@pytest.mark.parametrize("when", ["before", "after"])
def test_wherever_the_process_dies_it_goes_on_and_wraps_every_key(
    when: Literal["before", "after"],
) -> None:
    instance = Instance()
    died = 0
    for call in range(1, 90, 6):
        before = instance.wrapped()
        instance.world.aws.kill_at(call, when)
        try:
            assert instance.go_on().status is RewrapStatus.DONE
        except Killed:
            died += 1
        instance.world.aws.spare()
        assert instance.until_done().status is RewrapStatus.DONE
        after = instance.wrapped()
        assert before.keys() == after.keys()
        assert not set(before.values()) & set(after.values())
    assert died > 10
    instance.everything_opens_without_the_old_key()


def test_a_value_that_is_written_while_its_key_is_wrapped_anew_stands() -> None:
    instance = Instance()
    bob = instance.agents[1].agent_id
    met: list[str] = []

    class Overtaken(KmsWrapper):
        def rewrap(self, wrapped: bytes, context: dict[str, str]) -> bytes:
            fresh = super().rewrap(wrapped, context)
            if context.get("name") == "vault/value-03" and not met:
                met.append("set")
                instance.set(instance.old, 1, "value-03")
            if context.get("name") == "vault/value-04" and len(met) == 1:
                met.append("delete")
                instance.vault(instance.old).delete(instance.agents[1], "value-04", ALICE)
                del instance.kept[bob, "value-04"]
            return fresh

    instance.new = Overtaken(lambda: instance.clients.kms, instance.new_key)
    instance.rewrapping = instance.rewrapping_over(instance.world.table)
    assert instance.go_on().status is RewrapStatus.DONE
    assert met == ["set", "delete"]
    assert instance.kept[bob, "value-03"] == 2
    instance.everything_opens_without_the_old_key()


def test_two_at_once_do_no_harm() -> None:
    instance = Instance()
    started = instance.go_on(0)
    other = instance.rewrapping_over(instance.world.table)
    assert other.go_on(ALICE, 60_000).status is RewrapStatus.DONE
    ended = instance.rewrapping._kept(started, started, ALICE)
    assert ended.status is RewrapStatus.DONE
    instance.everything_opens_without_the_old_key()


def test_a_row_that_was_moved_is_counted_and_the_others_are_wrapped() -> None:
    instance = Instance()
    bob, cyd = (agent.agent_id for agent in instance.agents[1:])
    moved = instance.world.table.get(keys.vault_value(bob, "value-00"))
    assert moved is not None
    instance.world.table.write(put(keys.vault_value(cyd, "value-00"), moved))
    state = instance.go_on()
    assert (state.status, state.unopenable) == (RewrapStatus.FAILED, 1)
    instance.everything_opens_without_the_old_key()


def test_an_instances_model_key_that_was_moved_to_another_kind_does_not_open() -> None:
    instance = Instance()
    table = instance.world.table
    moved = table.get(keys.instance_model_key("openai"))
    assert moved is not None
    table.write(put(keys.instance_model_key("anthropic"), moved))
    ours = instance_key_context(own_destination(ModelKind.ANTHROPIC), 1)
    with pytest.raises(Failed):
        instance.opened(keys.instance_model_key("anthropic"), ours)
    state = instance.go_on()
    assert (state.status, state.unopenable) == (RewrapStatus.FAILED, 1)


def test_a_key_service_that_does_not_answer_stops_it_and_it_goes_on_later() -> None:
    instance = Instance()
    instance.clients.kms.disable_key(KeyId=instance.new_key)
    with pytest.raises(Failed, match="cannot be used"):
        instance.go_on()
    state = instance.rewrapping.state()
    assert state is not None
    assert (state.status, state.rewrapped) == (RewrapStatus.RUNNING, 0)
    instance.clients.kms.enable_key(KeyId=instance.new_key)
    assert instance.go_on().status is RewrapStatus.DONE
    instance.everything_opens_without_the_old_key()


def test_an_instance_without_secrets_is_done_at_once() -> None:
    world = World()
    clients = SessionClients(world.aws.session())
    wrapper = KmsWrapper(lambda: clients.kms, world.aws.create_key("secrets"))
    rewrapping = Rewrapping(world.table, world.clock, world.ids, audit=world.audit, wrapper=wrapper)
    assert rewrapping.state() is None
    state = rewrapping.go_on(ALICE, 60_000)
    assert (state.status, state.done, state.total, state.rewrapped) == ("done", 1, 1, 0)
