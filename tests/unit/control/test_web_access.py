"""Changes of web access that meet others, or that die half-way: one wins, nothing is half written,
and no key of a change that lost stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from infra.local.aws import Faults, Killed, Kind
from mesh.control.connections import (
    INSTANCE_OWNER,
    open_provider_key,
    provider_key_context,
    read_grants,
)
from mesh.control.web_access import WebAccess
from mesh.control.web_rules import Wanted
from mesh.kernel.errors import Conflict, Failed, Invalid, Refused
from mesh.records.agent import Agent
from mesh.records.connection import Capability, Connection, Grant, Mode, Provider
from mesh.security.sealing import KeyWrapper
from mesh.storage import keys
from mesh.storage.clients import SessionClients
from mesh.storage.kms import KmsWrapper
from mesh.storage.writes import update
from mesh.tools.web.catalogue import BRAVE, PROVIDERS, kept_for
from tests.unit.control.test_vault import Overtaken
from tests.unit.control.world import ALICE, World

KEY, OTHER = "canary-key-of-the-first", "canary-key-of-the-other"
SEARCH, READ = Capability.SEARCH, Capability.READ
BOTH = Provider(
    name="both",
    title="Both",
    capabilities=(SEARCH, READ),
    origin="https://api.both.example",
    key_hint="A key.",
    redirects="None.",
    subrequests="None.",
)
"""A provider of two capabilities, by one key: of those that ship none is yet."""


def custom(key: str | None = None, provider: str = "brave", **more: Any) -> Wanted:
    given = {"capability": SEARCH, "requests_per_minute": 60, "requests_per_run": 20}
    return Wanted(mode=Mode.CUSTOM, provider=provider, api_key=key, **(given | more))


def off(provider: str | None = None, *, clear_key: bool = False, **more: Any) -> Wanted:
    given = {"capability": SEARCH} | more
    return Wanted(mode=Mode.DISABLED, provider=provider, clear_key=clear_key, **given)


def inherit(requests_per_run: int | None = None) -> Wanted:
    return Wanted(capability=SEARCH, mode=Mode.INHERIT, requests_per_run=requests_per_run)


class Web:
    """Web access over the embedded AWS, with a KMS that demands its contexts."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.world = World(faults)
        clients = SessionClients(self.world.aws.session())
        key = self.world.aws.create_key("secrets")
        self.wrapper = KmsWrapper(lambda: clients.kms, key)
        self.access = self.over(self.wrapper)
        with self.world.aws.without_faults():
            self.ada = self.world.agent("ada")

    def over(self, wrapper: KeyWrapper) -> WebAccess:
        """Web access over that key service."""
        return self.world.web_access(wrapper, both=BOTH)

    def overtaken(self, *others: Callable[[], object]) -> WebAccess:
        """Web access in which others come between what a change reads and what it writes."""
        return self.over(Overtaken(self.wrapper, iter(others)))

    def put(self, agent: Agent | None, wanted: Wanted, version: int) -> Connection:
        return self.access.put(agent, wanted, version=version, cause=ALICE)

    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Everything that is set for the web, by where it lies."""
        items = self.world.aws.items()
        return {(i["pk"], i["sk"]): i for i in items if i["pk"].startswith("WEB#")}

    def audited(self) -> int:
        return sum(each.startswith("web_") for each in self.world.actions())

    def stands(self, agent: Agent | None = None, capability: Capability = SEARCH) -> Connection:
        return self.access.shelf(agent).connections[capability]

    def grant(self) -> Any:
        return read_grants(self.world.table, self.ada.agent_id, [SEARCH])[SEARCH]

    def opened(self) -> str | None:
        """The key that the agent's next call would be made with."""
        grant = self.grant()
        assert isinstance(grant, Grant), grant
        provider = PROVIDERS[grant.provider]
        return open_provider_key(
            self.world.table, self.wrapper, self.ada.agent_id, grant, kept_for(provider)
        )


OWNERS = pytest.mark.parametrize("of_agent", [False, True])


def owner(web: Web, of_agent: bool) -> Agent | None:
    return web.ada if of_agent else None


# ---- changes that meet


@pytest.mark.behaviour("operator:stale-409")
@OWNERS
def test_versions_go_up_by_one_through_every_mode_and_a_stale_one_changes_nothing(
    of_agent: bool,
) -> None:
    web = Web()
    who = owner(web, of_agent)
    changes = [custom(KEY), off("brave"), custom(), off("brave", clear_key=True), custom(OTHER)]
    changes += [inherit(), off(), inherit(3)] if of_agent else [off()]
    for version, wanted in enumerate(changes):
        for stale in {0, version - 1, version + 1, version + 9} - {version}:
            rows, audited = web.rows(), web.audited()
            with pytest.raises(Conflict) as refused:
                web.put(who, wanted, stale)
            assert refused.value.code == "version_conflict"
            assert (web.rows(), web.audited()) == (rows, audited)
        assert web.put(who, wanted, version).version == version + 1


@pytest.mark.behaviour("operator:stale-409")
@OWNERS
@pytest.mark.parametrize("first", [None, custom(KEY)])
def test_of_two_changes_at_once_one_wins_and_the_losers_key_does_not_stay(
    of_agent: bool, first: Wanted | None
) -> None:
    web = Web()
    who, version = owner(web, of_agent), 0
    if first is not None:
        version = web.put(who, first, 0).version
    winner = custom(OTHER, requests_per_run=7)
    overtaken = web.overtaken(lambda: web.put(who, winner, version))
    with pytest.raises(Conflict) as refused:
        overtaken.put(who, custom("canary-of-the-loser"), version=version, cause=ALICE)
    assert refused.value.code == "version_conflict"
    assert refused.value.current_version == version + 1
    assert (web.stands(who).version, web.stands(who).requests_per_run) == (version + 1, 7)
    assert web.opened() == OTHER
    assert web.audited() == 2 * (version + 1)


def test_a_key_that_another_capability_set_meanwhile_is_gone_after_and_not_lost() -> None:
    web = Web()
    other = custom(OTHER, "both", capability=READ)
    overtaken = web.overtaken(lambda: web.put(None, other, 0))
    overtaken.put(None, custom(KEY, "both"), version=0, cause=ALICE)
    key = web.access.shelf(None).keys["both"]
    assert key.version == 2
    context = provider_key_context(INSTANCE_OWNER, kept_for(BOTH), 2)
    assert web.wrapper.unwrap(key.wrapped or b"", context.encryption_context())


def test_a_key_that_another_capability_goes_by_is_not_forgotten_under_it() -> None:
    web = Web()
    web.put(None, custom(KEY, "both"), 0)
    web.put(None, custom(None, "both", capability=READ), 0)
    with pytest.raises(Conflict, match="read goes by this key of Both as well") as refused:
        web.put(None, off("both", clear_key=True), 1)
    assert refused.value.code == "state_conflict"
    assert web.stands().mode is Mode.CUSTOM
    web.put(None, off("both", capability=READ), 1)
    web.put(None, off("both", clear_key=True), 1)
    assert web.access.shelf(None).keys == {}


def test_a_key_that_is_forgotten_meanwhile_is_not_gone_by() -> None:
    """The last moment: after the rows were read, before they are written."""
    web = Web()
    web.put(None, custom(KEY, "both"), 0)
    meanwhile = iter([lambda: web.put(None, off("both", clear_key=True), 1)])
    read = web.world.table.get_many

    def overtaken(wanted: Any) -> Any:
        found = read(wanted)
        for other in meanwhile:
            other()
        return found

    web.world.table.get_many = overtaken  # type: ignore[method-assign]
    with pytest.raises(Invalid) as refused:
        web.put(None, custom(None, "both", capability=READ), 0)
    assert [each.path for each in refused.value.fields] == ["api_key"]
    assert READ not in web.access.shelf(None).connections


@pytest.mark.behaviour("meters:lower-only")
def test_an_allowance_is_judged_by_the_instances_as_it_is_written() -> None:
    web = Web()
    web.put(None, custom(KEY, requests_per_run=9), 0)
    lowered = iter([lambda: web.put(None, custom(requests_per_run=2), 1)])
    read = web.world.table.get_many

    def overtaken(wanted: Any) -> Any:
        found = read(wanted)
        for other in lowered:
            other()
        return found

    web.world.table.get_many = overtaken  # type: ignore[method-assign]
    with pytest.raises(Invalid, match="not valid") as refused:
        web.put(web.ada, inherit(5), 0)
    assert [each.problem for each in refused.value.fields] == [
        "must not be above the instance's, which is 2"
    ]
    assert web.access.shelf(web.ada).connections == {}
    assert web.put(web.ada, inherit(2), 0).requests_per_run == 2


def test_an_agent_that_is_deleted_meanwhile_is_left_no_row() -> None:
    web = Web()

    def deleted() -> None:
        row = keys.agent(web.ada.agent_id)
        web.world.table.write(update(row, "SET #status = :status", status="deleting"))

    with pytest.raises(Refused) as refused:
        web.overtaken(deleted).put(web.ada, custom(KEY), version=0, cause=ALICE)
    assert refused.value.code == "not_found"
    assert web.rows() == {}
    assert web.audited() == 0
    for wanted in (off(), inherit(), custom(KEY)):
        with pytest.raises(Refused):
            web.put(web.ada, wanted, 0)


# ---- keys by provider and owner


@pytest.mark.behaviour("secrets:by-provider-and-owner")
@OWNERS
def test_another_provider_and_back_again_each_with_its_own_key(of_agent: bool) -> None:
    web = Web()
    who = owner(web, of_agent)
    web.put(who, custom(KEY), 0)
    first = web.rows()[keys.provider_key(_id(web, of_agent), "brave")]
    with pytest.raises(Invalid):
        web.put(who, custom(None, "perplexity"), 1)
    web.put(who, custom(OTHER, "perplexity"), 1)
    assert web.opened() == OTHER
    web.put(who, custom(), 2)
    assert web.opened() == KEY
    assert web.rows()[keys.provider_key(_id(web, of_agent), "brave")] == first


def _id(web: Web, of_agent: bool) -> str:
    return web.ada.agent_id if of_agent else INSTANCE_OWNER


def test_an_agents_key_is_no_other_agents_and_not_the_instances() -> None:
    web = Web()
    eve = web.world.agent("eve")
    web.put(web.ada, custom(KEY), 0)
    for who in (eve, None):
        with pytest.raises(Invalid):
            web.put(who, custom(), 0)
    row = web.rows()[keys.provider_key(web.ada.agent_id, "brave")]
    for owner_id in (eve.agent_id, INSTANCE_OWNER):
        context = provider_key_context(owner_id, kept_for(BRAVE), 1)
        with pytest.raises(Failed):
            web.wrapper.unwrap(row["wrapped"], context.encryption_context())


# ---- whatever dies

STEPS: tuple[tuple[Wanted, Wanted], ...] = (
    (custom(KEY), custom(OTHER)),
    (custom(KEY), custom(OTHER, "perplexity")),
    (custom(KEY), off("brave", clear_key=True)),
    (custom(KEY), off("brave")),
    (custom(KEY), custom(requests_per_run=1)),
)


@pytest.mark.behaviour("operator:clear-key")
@OWNERS
@pytest.mark.parametrize(("stands", "wanted"), STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_wherever_a_change_dies_it_is_there_as_a_whole_or_not_at_all(
    of_agent: bool, stands: Wanted, wanted: Wanted, when: Literal["before", "after"]
) -> None:
    died = []
    for call in range(1, 20):
        web = Web()
        who = owner(web, of_agent)
        web.put(who, stands, 0)
        rows, audited = web.rows(), web.audited()
        web.world.aws.kill_at(call, when)
        try:
            web.put(who, wanted, 1)
        except Killed:
            web.world.aws.spare()
        else:
            break
        done = web.stands(who).version == 2
        died.append(done)
        if not done:
            assert (web.rows(), web.audited()) == (rows, audited)
        _is_whole(web, who, wanted if done else stands)
        # Whoever asks again learns which, and can go on.
        if done:
            with pytest.raises(Conflict):
                web.put(who, wanted, 1)
        else:
            web.put(who, wanted, 1)
        _is_whole(web, who, wanted)
    assert died
    assert died[-1] is (when == "after"), "the last call is the one that writes"


def _is_whole(web: Web, who: Agent | None, wanted: Wanted) -> None:
    """The settings and the key of one change are there, and the audit rows of each."""
    connection, shelf = web.stands(who), web.access.shelf(who)
    assert (connection.mode, connection.provider) == (wanted.mode, wanted.provider)
    if wanted.mode is Mode.CUSTOM:
        assert connection.provider in shelf.keys
        assert web.opened() == (wanted.api_key or KEY)
    elif wanted.clear_key:
        assert shelf.keys == {}
    actions = [each for each in web.world.actions() if each == "web_access.put"]
    assert len(actions) == connection.version


def insist(web: Web, who: Agent | None, wanted: Wanted, version: int) -> None:
    """Asks again while it is told to, as an operator does."""
    for _ in range(20):
        try:
            stands = web.put(who, wanted, version).version
        except Failed:
            continue
        except Conflict as late:  # the answer of the one before was lost for good
            stands = late.current_version or 0
        assert stands == version + 1
        return
    pytest.fail("it does not end")


@OWNERS
def test_lost_answers_throttles_and_conflicts_neither_double_a_change_nor_undo_it(
    of_agent: bool,
) -> None:
    rates = {Kind.LOST: 0.3, Kind.CONFLICT: 0.2, Kind.THROTTLE: 0.1, Kind.UNPROCESSED: 0.2}
    for seed in range(15):
        web = Web(Faults(seed, rates=rates))
        who = owner(web, of_agent)
        changes = [custom(KEY), custom(OTHER), off("brave", clear_key=True), custom(KEY)]
        for version, wanted in enumerate(changes):
            insist(web, who, wanted, version)
        with web.world.aws.without_faults():
            assert web.stands(who).version == len(changes)
            assert web.access.shelf(who).keys["brave"].version == 3
            assert web.opened() == KEY
            assert web.audited() == 2 * len(changes)


def test_a_key_service_that_fails_leaves_everything_as_it_was() -> None:
    web = Web()
    web.put(None, custom(KEY), 0)
    rows = web.rows()

    def fails() -> Iterator[Callable[[], object]]:
        raise Failed("unavailable", "KMS cannot be reached")
        yield

    with pytest.raises(Failed):
        web.over(Overtaken(web.wrapper, fails())).put(None, custom(OTHER), version=1, cause=ALICE)
    assert (web.rows(), web.opened()) == (rows, KEY)
