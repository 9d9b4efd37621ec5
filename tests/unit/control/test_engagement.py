"""The engagement gate: pure, explained, and the same for every surface."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from mesh.control.engagement import Judgement, Reason, Verdict, judge, mentions, needs_parent
from mesh.records.install import Engagement, Policy
from mesh.records.message import Topology

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "payloads.json").read_text("utf-8"))
OUT = "out_01JDXW5Y9ZK3V7Q2M8N4P6R0SW"
PLACES = [Topology.GROUP, Topology.CHANNEL]


def ask(
    engagement: Engagement | None = None,
    *,
    actor_id: str = "u-42",
    body: str = "hello",
    topology: Topology = Topology.GROUP,
    parent_is_reply: bool = False,
) -> tuple[Verdict, Reason]:
    judgement = judge(
        engagement or Engagement(),
        actor_id=actor_id,
        body=body,
        topology=topology,
        handle="ada",
        parent_is_reply=parent_is_reply,
    )
    assert isinstance(judgement, Judgement)
    return judgement.verdict, judgement.reason


@pytest.mark.parametrize("case", VECTORS["mentions"], ids=lambda case: repr(case["body"]))
def test_a_mention_is_the_worked_one(case: dict[str, str | bool]) -> None:
    assert mentions(str(case["body"]), str(case["handle"])) is case["mentioned"]


@pytest.mark.parametrize(
    ("body", "handle", "mentioned"),
    [
        ("@ſam", "sam", False),
        ("@\u212aim", "kim", False),
        ("@KIM", "kim", True),
        ("@a-b_c", "a-b_c", True),
        ("@a.b", "a-b", False),
        ("@ada..", "ada", True),
        ("@ada. Now", "ada", True),
        ("@ada.é", "ada", True),
        ("@adaé", "ada", True),
        ("@adam and @ada", "ada", True),
        ("-@ada", "ada", False),
        ("/@ada", "ada", True),
        ("＠ada", "ada", False),
    ],
)
def test_a_mention_is_judged_in_ascii(body: str, handle: str, mentioned: bool) -> None:
    assert mentions(body, handle) is mentioned


def test_a_direct_message_engages() -> None:
    assert ask(topology=Topology.DIRECT) == (Verdict.ENGAGE, Reason.DIRECT_MESSAGE)


@pytest.mark.behaviour("gate:membership", "gate:observe-or-engage")
@pytest.mark.parametrize("topology", PLACES)
def test_elsewhere_only_what_is_addressed_engages(topology: Topology) -> None:
    assert ask(topology=topology) == (Verdict.OBSERVE, Reason.NOT_ADDRESSED)
    assert ask(topology=topology, body="@ada hi") == (Verdict.ENGAGE, Reason.MENTIONED)
    assert ask(topology=topology, parent_is_reply=True) == (
        Verdict.ENGAGE,
        Reason.REPLY_TO_AGENT,
    )


def test_policy_always_engages_and_policy_never_observes_whatever_was_said() -> None:
    for topology, body, reply in product(Topology, ["hello", "@ada"], [False, True]):
        always = ask(
            Engagement(policy=Policy.ALWAYS), topology=topology, body=body, parent_is_reply=reply
        )
        never = ask(
            Engagement(policy=Policy.NEVER), topology=topology, body=body, parent_is_reply=reply
        )
        assert always == (Verdict.ENGAGE, Reason.POLICY_ALWAYS)
        assert never == (Verdict.OBSERVE, Reason.POLICY_NEVER)


@pytest.mark.behaviour("gate:reachability")
@pytest.mark.parametrize("policy", list(Policy))
def test_the_lists_of_actors_come_before_every_policy(policy: Policy) -> None:
    denied = Engagement(policy=policy, deny_actors=("u-42",), allow_actors=("u-42",))
    assert ask(denied, topology=Topology.DIRECT) == (Verdict.REFUSE, Reason.ACTOR_DENIED)
    others = Engagement(policy=policy, allow_actors=("u-1",))
    assert ask(others, topology=Topology.DIRECT) == (Verdict.REFUSE, Reason.ACTOR_NOT_ALLOWED)
    assert ask(others, actor_id="u-1")[0] is not Verdict.REFUSE


def test_actors_are_compared_exactly() -> None:
    setting = Engagement(deny_actors=("U-42", "u-42 ", "caf\u00e9"))
    assert ask(setting)[0] is Verdict.OBSERVE
    assert ask(setting, actor_id="cafe\u0301")[0] is Verdict.OBSERVE
    assert ask(setting, actor_id="caf\u00e9")[0] is Verdict.REFUSE


@pytest.mark.parametrize("policy", list(Policy))
def test_the_parent_is_looked_up_just_when_the_verdict_depends_on_it(policy: Policy) -> None:
    for topology, body, actor in product(Topology, ["hello", "@ada"], ["u-1", "u-2", "u-3"]):
        setting = Engagement(policy=policy, allow_actors=("u-1", "u-2"), deny_actors=("u-2",))
        depends = ask(setting, actor_id=actor, body=body, topology=topology) != ask(
            setting, actor_id=actor, body=body, topology=topology, parent_is_reply=True
        )
        needed = needs_parent(
            setting, actor_id=actor, body=body, topology=topology, handle="ada", parent_id=OUT
        )
        assert needed is depends


@pytest.mark.parametrize("parent_id", [None, "m-0", "out_", "out_x", OUT.lower(), "run_" + OUT[4:]])
def test_a_parent_that_cannot_be_a_reply_is_never_looked_up(parent_id: str | None) -> None:
    assert not needs_parent(
        Engagement(),
        actor_id="u-42",
        body="hello",
        topology=Topology.GROUP,
        handle="ada",
        parent_id=parent_id,
    )
