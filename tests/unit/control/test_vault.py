"""What agents keep: sealed for one owner, name and version, and never given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from infra.local.aws import Faults, Kind
from mesh.control.rows import record_of
from mesh.control.vault import (
    Vault,
    destination,
    is_name,
    model_key_context,
    model_key_present,
    value_context,
)
from mesh.kernel.errors import Conflict, Failed, Refused
from mesh.kernel.limits import VAULT_NAMES_MAX
from mesh.records.agent import Agent, Limits, Model, ModelKind
from mesh.records.value import SealedValue
from mesh.security.sealing import DataKey, KeyWrapper, SecretContext, open_sealed
from mesh.storage import keys
from mesh.storage.clients import SessionClients
from mesh.storage.kms import KmsWrapper
from mesh.storage.writes import delete, update
from tests.unit.control.world import ALICE, World

VALUE = "canary-value that nobody sees"


class Overtaken:
    """A key service in whose time something else happens."""

    def __init__(self, wrapper: KeyWrapper, others: Iterator[Callable[[], object]]) -> None:
        self._others = others
        self._wrapper = wrapper
        self.unwrap = wrapper.unwrap

    def generate(self, context: dict[str, str]) -> tuple[bytes, bytes]:
        for other in self._others:
            other()
        return self._wrapper.generate(context)


class Kept:
    """A vault over the embedded AWS, with a KMS that demands its contexts."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.world = World(faults)
        clients = SessionClients(self.world.aws.session())
        key = self.world.aws.create_key("secrets")
        self.wrapper = KmsWrapper(lambda: clients.kms, key)
        self.vault = self.over(self.wrapper)

    def over(self, wrapper: KeyWrapper) -> Vault:
        """A vault over that key service."""
        world = self.world
        return Vault(world.table, world.clock, world.random, audit=world.audit, wrapper=wrapper)

    def agent(self, slug: str = "ada") -> Agent:
        return self.world.agent(slug)

    def row(self, key: keys.Key) -> SealedValue:
        item = self.world.table.get(key)
        assert item is not None
        return record_of(item, SealedValue)

    def opened(self, row: SealedValue, context: SecretContext) -> str:
        """What whoever uses a value will do with it, for the one use."""
        assert row.wrapped is not None
        assert row.blob is not None
        key = DataKey(self.wrapper.unwrap(row.wrapped, context.encryption_context()))
        return open_sealed(key, context, row.blob).decode()

    def names(self, agent: Agent) -> list[str]:
        return [value.name for value in self.vault.page(agent.agent_id, 200, None)[0]]

    def reread(self, agent: Agent) -> Agent:
        found = self.world.agents.by_id(agent.agent_id)
        assert found is not None
        return found

    def moved_to(self, agent: Agent, model: Model) -> Agent:
        stands = self.reread(agent)
        return self.world.agents.update(
            stands,
            version=stands.version,
            name=stands.name,
            handle=stands.handle,
            instructions=stands.instructions,
            model=model,
            limits=Limits(),
            cause=ALICE,
        )


@pytest.mark.behaviour("secrets:one-store")
def test_a_value_opens_for_its_own_agent_name_and_version() -> None:
    kept = Kept()
    ada = kept.agent()
    for number, value in enumerate((VALUE, "next"), 1):
        assert kept.vault.set(ada, "github", value, ALICE).version == number
        row = kept.row(keys.vault_value(ada.agent_id, "github"))
        assert kept.opened(row, value_context(ada.agent_id, "github", number)) == value
    assert kept.world.actions()[-2:] == ["vault.put", "vault.put"]


@pytest.mark.behaviour("secrets:owner-by-nature")
def test_a_row_that_is_copied_to_another_owner_name_or_version_does_not_open() -> None:
    kept = Kept()
    ada, bob = kept.agent("ada"), kept.agent("bob")
    kept.vault.set(ada, "github", VALUE, ALICE)
    row = kept.row(keys.vault_value(ada.agent_id, "github"))
    own = value_context(ada.agent_id, "github", 1)
    material = DataKey(kept.wrapper.unwrap(row.wrapped or b"", own.encryption_context()))
    for other in (
        value_context(bob.agent_id, "github", 1),
        value_context(ada.agent_id, "gitlab", 1),
        value_context(ada.agent_id, "github", 2),
        model_key_context(ada.agent_id, "github", 1),
        SecretContext("agent_connector", ada.agent_id, own.name, 1),
    ):
        with pytest.raises(Failed):  # KMS does not open the data key
            kept.opened(row, other)
        with pytest.raises(Failed):  # and with the data key the value does not open either
            open_sealed(material, other, row.blob or b"")


def test_every_value_and_every_version_has_a_data_key_of_its_own() -> None:
    kept = Kept()
    ada = kept.agent()
    rows = []
    for name in ("a", "a", "b"):
        kept.vault.set(ada, name, VALUE, ALICE)
        rows.append(kept.row(keys.vault_value(ada.agent_id, name)))
    assert len({row.wrapped for row in rows}) == len({row.blob for row in rows}) == 3


def test_a_deleted_value_is_gone_and_its_versions_are_not_given_again() -> None:
    kept = Kept()
    ada = kept.agent()
    kept.vault.set(ada, "github", VALUE, ALICE)
    kept.world.clock.forward(5)
    kept.vault.delete(ada, "github", ALICE)
    assert kept.world.table.get(keys.vault_value(ada.agent_id, "github")) is None
    assert kept.names(ada) == []
    with pytest.raises(Refused, match="nothing here"):
        kept.vault.delete(ada, "github", ALICE)
    again = kept.vault.set(ada, "github", VALUE, ALICE)
    assert (again.version, again.created_at) == (2, kept.world.clock.now_ms())
    assert sorted(kept.world.actions()[1:]) == ["vault.delete", "vault.put", "vault.put"]


def test_values_are_listed_by_name_page_by_page_without_what_was_deleted() -> None:
    kept = Kept()
    ada, bob = kept.agent("ada"), kept.agent("bob")
    names = ["A", "a", "a-b", "a.b", "b", "c", "d", "e", "f", "g"]
    for name in reversed(names):
        kept.vault.set(ada, name, VALUE, ALICE)
    kept.vault.set(bob, "bobs", VALUE, ALICE)
    kept.vault.set_model_key(ada, "key", ALICE)
    for name in ("b", "c", "d", "e"):
        kept.vault.delete(ada, name, ALICE)
    found, after = [], None
    for _ in range(10):
        page, after = kept.vault.page(ada.agent_id, 2, after)
        found += [value.name for value in page]
        if after is None:
            break
    assert found == ["A", "a", "a-b", "a.b", "f", "g"]


def test_many_values_that_were_deleted_cost_a_list_few_reads() -> None:
    kept = Kept()
    ada = kept.agent()
    for number in range(60):
        kept.vault.set(ada, f"gone-{number}", VALUE, ALICE)
        kept.vault.delete(ada, f"gone-{number}", ALICE)
    kept.vault.set(ada, "kept", VALUE, ALICE)
    with kept.world.aws.recording() as calls:
        found, after = kept.vault.page(ada.agent_id, 1, None)
    assert ([value.name for value in found], after) == (["kept"], None)
    assert len(calls) == 1


def test_a_new_name_begins_after_every_version_that_was_deleted() -> None:
    kept = Kept()
    ada, bob = kept.agent("ada"), kept.agent("bob")
    for _ in range(3):
        kept.vault.set(ada, "github", VALUE, ALICE)
    kept.vault.set(ada, "gitlab", VALUE, ALICE)
    kept.vault.delete(ada, "github", ALICE)
    kept.vault.delete(ada, "gitlab", ALICE)
    assert kept.vault.set(ada, "gitlab", VALUE, ALICE).version == 4
    assert kept.vault.set(ada, "github", VALUE, ALICE).version == 4
    assert kept.vault.set(ada, "github", VALUE, ALICE).version == 5
    assert kept.vault.set(bob, "github", VALUE, ALICE).version == 1


def test_a_vault_holds_so_many_values_and_says_what_to_do_when_it_is_full() -> None:
    kept = Kept()
    ada = kept.agent()
    kept.vault.set(ada, "first", VALUE, ALICE)
    kept.world.table.write(
        update(keys.agent(ada.agent_id), "SET #vault_names = :n", n=VAULT_NAMES_MAX - 1)
    )
    kept.vault.set(ada, "last", VALUE, ALICE)
    with pytest.raises(Conflict, match="delete one first, with mesh vault delete"):
        kept.vault.set(ada, "one more", VALUE, ALICE)
    assert kept.vault.set(ada, "last", VALUE, ALICE).version == 2, "what is there is replaced"
    kept.vault.delete(ada, "first", ALICE)
    kept.vault.set(ada, "one-more", VALUE, ALICE)
    assert kept.names(ada) == ["last", "one-more"]


def test_two_that_reach_for_the_last_place_do_not_both_get_it() -> None:
    kept = Kept()
    ada = kept.agent()
    kept.world.table.write(
        update(keys.agent(ada.agent_id), "SET #vault_names = :n", n=VAULT_NAMES_MAX - 1)
    )
    others = iter([lambda: kept.vault.set(ada, "other", VALUE, ALICE)])
    overtaken = kept.over(Overtaken(kept.wrapper, others))
    with pytest.raises(Conflict):
        overtaken.set(ada, "mine", VALUE, ALICE)
    assert kept.names(ada) == ["other"]


def test_values_that_fill_a_page_of_the_table_are_listed_over_several() -> None:
    kept = Kept()
    ada = kept.agent()
    names = [f"v-{number:03d}" for number in range(80)]
    for name in names:
        kept.vault.set(ada, name, "x" * 16_000, ALICE)
    found, after, pages = [], None, 0
    while pages == 0 or after is not None:
        page, after = kept.vault.page(ada.agent_id, 200, after)
        found += [value.name for value in page]
        pages += 1
    assert (found, pages > 1) == (names, True)


def test_a_write_that_another_came_before_goes_after_it() -> None:
    kept = Kept()
    ada = kept.agent()
    kept.vault.set(ada, "github", "first", ALICE)
    others = iter([lambda: kept.vault.set(ada, "github", "other", ALICE)])
    overtaken = kept.over(Overtaken(kept.wrapper, others))
    assert overtaken.set(ada, "github", "mine", ALICE).version == 3
    row = kept.row(keys.vault_value(ada.agent_id, "github"))
    assert kept.opened(row, value_context(ada.agent_id, "github", 3)) == "mine"


def test_nothing_is_kept_for_an_agent_that_is_gone() -> None:
    kept = Kept()
    ada = kept.agent()
    kept.world.table.write(delete(keys.agent(ada.agent_id)))
    for act in (
        lambda: kept.vault.set(ada, "github", VALUE, ALICE),
        lambda: kept.vault.set_model_key(ada, VALUE, ALICE),
    ):
        with pytest.raises(Refused, match="nothing here"):
            act()
    assert kept.world.table.get(keys.vault_value(ada.agent_id, "github")) is None
    assert kept.world.table.get(keys.model_key(ada.agent_id)) is None


@pytest.mark.parametrize("seed", range(6))
def test_under_lost_answers_and_contention_each_change_has_one_audit_row(seed: int) -> None:
    kept = Kept(Faults(seed, rates={Kind.LOST: 0.2, Kind.CONFLICT: 0.2, Kind.THROTTLE: 0.1}))
    with kept.world.aws.without_faults():
        ada = kept.agent()

    def until_answered(act: Callable[[], object]) -> None:
        for _ in range(20):
            try:
                act()
            except Failed:
                continue
            except Refused:  # a deletion whose answer was lost had been done
                pass
            return
        pytest.fail("it is never answered")

    for _ in range(4):
        until_answered(lambda: kept.vault.set(ada, "github", VALUE, ALICE))
        until_answered(lambda: kept.vault.set_model_key(ada, "key", ALICE))
    until_answered(lambda: kept.vault.delete(ada, "github", ALICE))
    until_answered(lambda: kept.vault.delete_model_key(ada, ALICE))
    with kept.world.aws.without_faults():
        done = kept.world.actions()
        assert done.count("vault.put") == kept.reread(ada).vault_version
        assert done.count("model_key.put") == kept.row(keys.model_key(ada.agent_id)).version
        assert done.count("vault.delete") == done.count("model_key.delete") == 1
        assert kept.names(ada) == []
        assert not model_key_present(kept.reread(ada))


# ---- the model's key


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Model(), "offline"),
        (Model(kind=ModelKind.BEDROCK), "bedrock"),
        (Model(kind=ModelKind.OPENAI), "openai https://api.openai.com"),
        (Model(kind=ModelKind.ANTHROPIC), "anthropic https://api.anthropic.com"),
        (
            Model(kind=ModelKind.OPENAI, base_url="https://LLM.example:443/v1"),
            "openai https://llm.example",
        ),
        (
            Model(kind=ModelKind.OPENAI, base_url="https://llm.example:8443/v1"),
            "openai https://llm.example:8443",
        ),
    ],
)
def test_a_models_key_goes_to_its_kind_at_its_origin(model: Model, expected: str) -> None:
    assert destination(model) == expected


@pytest.mark.behaviour("secrets:by-provider-and-owner")
def test_a_model_key_counts_for_the_kind_and_origin_that_it_was_saved_for_and_no_other() -> None:
    kept = Kept()
    ada = kept.moved_to(kept.agent(), Model(kind=ModelKind.OPENAI))
    assert not model_key_present(ada)
    made = kept.vault.set_model_key(ada, "sk-canary-model", ALICE)
    assert made.kept_for == "openai https://api.openai.com"
    assert model_key_present(kept.reread(ada))
    for other in (
        Model(kind=ModelKind.ANTHROPIC),
        Model(kind=ModelKind.OPENAI, base_url="https://api.openai.com.example/v1"),
        Model(kind=ModelKind.OPENAI, base_url="https://api.openai.com:8443/v1"),
        Model(),
    ):
        assert not model_key_present(kept.moved_to(ada, other))
    path = Model(kind=ModelKind.OPENAI, name="gpt", base_url="https://api.openai.com/v2")
    assert model_key_present(kept.moved_to(ada, path))

    row = kept.row(keys.model_key(ada.agent_id))
    own = model_key_context(ada.agent_id, made.kept_for, 1)
    assert kept.opened(row, own) == "sk-canary-model"
    for context in (
        model_key_context(ada.agent_id, "openai https://elsewhere.example", 1),
        model_key_context(ada.agent_id, "anthropic https://api.openai.com", 1),
        model_key_context(ada.agent_id, made.kept_for, 2),
        SecretContext(own.owner_type, "agt_other", own.name, own.version),
    ):
        with pytest.raises(Failed):
            kept.opened(row, context)


def test_a_model_key_is_for_the_model_as_it_stands_when_the_key_is_written() -> None:
    kept = Kept()
    ada = kept.moved_to(kept.agent(), Model(kind=ModelKind.OPENAI))
    moved = Model(kind=ModelKind.OPENAI, base_url="https://llm.example/v1")
    overtaken = kept.over(Overtaken(kept.wrapper, iter([lambda: kept.moved_to(ada, moved)])))
    made = overtaken.set_model_key(ada, "sk-canary-model", ALICE)
    assert made.kept_for == "openai https://llm.example"
    assert model_key_present(kept.reread(ada))


def test_a_deleted_model_key_is_gone_and_the_next_has_a_version_of_its_own() -> None:
    kept = Kept()
    ada = kept.agent()
    with pytest.raises(Refused, match="nothing here"):
        kept.vault.delete_model_key(ada, ALICE)
    kept.vault.set_model_key(ada, "one", ALICE)
    kept.vault.delete_model_key(ada, ALICE)
    assert not model_key_present(kept.reread(ada))
    assert kept.row(keys.model_key(ada.agent_id)).blob is None
    with pytest.raises(Refused, match="nothing here"):
        kept.vault.delete_model_key(ada, ALICE)
    assert kept.vault.set_model_key(ada, "two", ALICE).version == 2


def test_a_sealed_value_shows_neither_key_nor_value() -> None:
    kept = Kept()
    row = kept.vault.set(kept.agent(), "github", VALUE, ALICE)
    assert repr(row) == "SealedValue(name='github', version=1)"


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("github", True),
        ("GITHUB_TOKEN", True),
        ("a.b-c_1", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        (".a", False),
        ("a/b", False),
        ("a#b", False),
        ("a b", False),
        ("é", False),
        ("a\n", False),
    ],
)
def test_names_are_short_plain_words(name: str, good: bool) -> None:
    assert is_name(name) is good
