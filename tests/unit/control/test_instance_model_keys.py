"""The instance's model keys: whose model is asked with which, and that a moved row stays shut."""

from __future__ import annotations

import pytest

from mesh.control.instance_model_keys import (
    InstanceModelKeys,
    instance_key_context,
    sealed_model_key,
)
from mesh.control.vault import Vault, model_key_context
from mesh.kernel.errors import Failed, Refused
from mesh.records.agent import Agent, Limits, Model, ModelKind
from mesh.security.sealing import DataKey, SecretContext, open_sealed
from mesh.storage import keys
from mesh.storage.clients import SessionClients
from mesh.storage.kms import KmsWrapper
from mesh.storage.writes import put
from tests.unit.control.world import ALICE, World

OPENAI = "openai https://api.openai.com"


class Kept:
    """An instance's model keys over the embedded AWS, with a KMS that demands its contexts."""

    def __init__(self) -> None:
        self.world = World()
        clients = SessionClients(self.world.aws.session())
        key = self.world.aws.create_key("secrets")
        self.wrapper = KmsWrapper(lambda: clients.kms, key)
        world, audit = self.world, self.world.audit
        self.keys = InstanceModelKeys(
            world.table, world.clock, world.random, audit=audit, wrapper=self.wrapper
        )
        self.vault = Vault(
            world.table, world.clock, world.random, audit=audit, wrapper=self.wrapper
        )

    def agent(self, model: Model) -> Agent:
        """An agent as it stands, with that model."""
        made = self.world.agents.by_slug("ada") or self.world.agent("ada")
        return self.world.agents.update(
            made,
            version=made.version,
            name=made.name,
            handle=made.handle,
            instructions="",
            model=model,
            limits=Limits(),
            cause=ALICE,
        )

    def asked_with(self, model: Model) -> str | None:
        """The key that an agent's model is asked with, opened as whoever asks it will."""
        found = sealed_model_key(self.world.table, self.agent(model))
        if found is None:
            return None
        row, context = found
        assert row.wrapped is not None
        assert row.blob is not None
        material = self.wrapper.unwrap(row.wrapped, context.encryption_context())
        return open_sealed(DataKey(material), context, row.blob).decode()


def test_an_agents_own_key_comes_first_and_an_origin_of_its_own_gets_no_other() -> None:
    kept = Kept()
    openai = Model(kind=ModelKind.OPENAI, name="gpt")
    elsewhere = Model(kind=ModelKind.OPENAI, name="gpt", base_url="https://llm.example/v1")
    assert kept.asked_with(openai) is None
    kept.keys.set(ModelKind.OPENAI, "of the instance", ALICE)
    assert kept.asked_with(openai) == "of the instance"
    for other in (
        elsewhere,
        Model(kind=ModelKind.OPENAI, base_url="https://api.openai.com/v2"),
        Model(kind=ModelKind.ANTHROPIC),
        Model(kind=ModelKind.BEDROCK),
        Model(),
    ):
        assert kept.asked_with(other) is None
    kept.vault.set_model_key(kept.agent(openai), "of ada", ALICE)
    assert kept.asked_with(openai) == "of ada"
    assert kept.asked_with(elsewhere) is None
    kept.vault.delete_model_key(kept.agent(openai), ALICE)
    assert kept.asked_with(openai) == "of the instance"
    kept.keys.delete(ModelKind.OPENAI, ALICE)
    assert kept.asked_with(openai) is None


@pytest.mark.behaviour("secrets:owner-by-nature")
def test_a_row_that_was_moved_or_is_asked_for_by_another_owner_does_not_open() -> None:
    kept = Kept()
    kept.keys.set(ModelKind.OPENAI, "of the instance", ALICE)
    row = kept.world.table.get(keys.instance_model_key("openai"))
    assert row is not None
    kept.world.table.write(put(keys.instance_model_key("anthropic"), row))
    with pytest.raises(Failed):
        kept.asked_with(Model(kind=ModelKind.ANTHROPIC, name="claude"))
    own = instance_key_context(OPENAI, 1)
    material = DataKey(kept.wrapper.unwrap(row["wrapped"], own.encryption_context()))
    for other in (
        instance_key_context("openai https://llm.example", 1),
        instance_key_context(OPENAI, 2),
        model_key_context("instance", OPENAI, 1),
        SecretContext("instance", "other", own.name, 1),
    ):
        with pytest.raises(Failed):
            kept.wrapper.unwrap(row["wrapped"], other.encryption_context())
        with pytest.raises(Failed):
            open_sealed(material, other, row["blob"])


def test_versions_are_not_given_again_and_what_is_gone_is_not_found() -> None:
    kept = Kept()
    with pytest.raises(Refused, match="nothing here"):
        kept.keys.delete(ModelKind.OPENAI, ALICE)
    assert kept.keys.set(ModelKind.OPENAI, "one", ALICE).version == 1
    kept.keys.delete(ModelKind.OPENAI, ALICE)
    assert kept.keys.kept() == {}
    with pytest.raises(Refused, match="nothing here"):
        kept.keys.delete(ModelKind.OPENAI, ALICE)
    assert kept.keys.set(ModelKind.OPENAI, "two", ALICE).version == 2
    assert list(kept.keys.kept()) == [ModelKind.OPENAI]
    assert sorted(kept.world.actions()) == ["model_key.delete", "model_key.put", "model_key.put"]


def test_of_two_that_set_a_key_at_once_each_has_a_version_of_its_own() -> None:
    kept = Kept()
    others = iter(range(1))

    class Overtaken(KmsWrapper):
        def generate(self, context: dict[str, str]) -> tuple[bytes, bytes]:
            for _ in others:
                kept.keys.set(ModelKind.OPENAI, "other", ALICE)
            return kept.wrapper.generate(context)

    clients = SessionClients(kept.world.aws.session())
    world = kept.world
    overtaken = InstanceModelKeys(
        world.table,
        world.clock,
        world.random,
        audit=world.audit,
        wrapper=Overtaken(lambda: clients.kms, "unused"),
    )
    assert overtaken.set(ModelKind.OPENAI, "mine", ALICE).version == 2
    assert kept.asked_with(Model(kind=ModelKind.OPENAI, name="gpt")) == "mine"
