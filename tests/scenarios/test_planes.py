"""Stories that cross the planes: many agents in one instance, another surface, one ledger."""

from __future__ import annotations

import json

import pytest

from infra.local.aws import Killed
from mesh.connectors.admission import Admission, Arrival
from mesh.connectors.contract import Outbound, OutboundAttempt, Reply
from mesh.connectors.generic.payload import DIGEST_VERSION, digest
from mesh.control.engagement import judge
from mesh.engine.budgets import Budgets
from mesh.engine.slots import Slots
from mesh.engine.thinking import Thinking
from mesh.engine.turn import TurnWorker
from mesh.engine.watch import InlineWatch
from mesh.kernel.clock import Deadline
from mesh.models.contract import Side, Text
from mesh.outbox.commit import Commit
from mesh.records.install import Busy, Engagement, Install, Policy
from mesh.records.message import NormalizedMessage, Topology
from mesh.storage import keys
from mesh.storage.queues import Bell
from mesh.storage.writes import update
from mesh.tools.gate import gate_of
from tests.fakes.model import ScriptedModel, says, words_of
from tests.fakes.system import Made, System, parts_of

FAR = 10**15


class PagerOutbound:
    """Another surface's way out: a line of text, where the generic one has JSON."""

    def render(self, reply: Reply) -> bytes:
        return f"{reply.sequence} {reply.body}".encode()

    def headers(self, attempt: OutboundAttempt, body: bytes) -> dict[str, str]:
        return {"X-Pager-Attempt": str(attempt.number)}


def turn_worker(system: System, model: ScriptedModel, **outbound: Outbound) -> TurnWorker:
    bell = Bell(
        system.aws.session().create_client("sqs"), system.stack.settings.queue_urls, system.ids
    )
    budgets = Budgets(system.table, system.clock, system.ids)
    return TurnWorker(
        table=system.table,
        bell=bell,
        commit=Commit(system.table, system.clock, system.random, 90),
        thinking=Thinking(
            table=system.table,
            models=lambda _: model,
            gate=gate_of(parts_of(system)),
            watch=InlineWatch(system.clock),
            budgets=budgets,
            clock=system.clock,
            ids=system.ids,
            random=system.random,
            kept_days=90,
        ),
        slots=Slots(system.table, system.clock, system.ids, bell),
        budgets=budgets,
        outbound=outbound,
        clock=system.clock,
        ids=system.ids,
        log=system.log,
    )


def conversation_of(made: Made, key: str = "room-9") -> str:
    return keys.conversation_id(made.install_id, key)


@pytest.mark.behaviour("deploy:co-tenancy", "ingress:one-install-one-agent")
def test_fifty_agents_share_one_instance_and_none_hears_another() -> None:
    system = System()
    installs = {
        f"agent-{number}": system.make_install(
            agent=system.make_agent(f"agent-{number}"), url=f"https://r.example/{number}"
        )
        for number in range(50)
    }
    for number, (slug, made) in enumerate(installs.items()):
        url = f"https://r.example/{number}"
        system.receiver(system.egress_ok(), url=url)
        assert system.say(made, f"hello {slug}").status == 202
    system.settle()
    for number, slug in enumerate(installs):
        (reply,) = system.delivered(f"https://r.example/{number}")
        assert reply["agent"]["slug"] == slug
        assert f"hello {slug}" in reply["body"]


@pytest.mark.behaviour(
    "seams:connector-seam", "seams:no-new-concepts", "ingress:same-pipeline", "gate:one-gate"
)
def test_another_surface_passes_the_same_gate_and_pipeline_and_replies_in_its_own_form() -> None:
    system = System()
    made = system.make_install(engagement=Engagement(policy=Policy.ADDRESSED))
    system.table.write(update(keys.settings(made.install_id), "SET #kind = :kind", kind="pager"))
    item = system.table.get(keys.settings(made.install_id))
    assert item is not None
    install = system.install(made.install_id)
    observed = take_in(system, install, "m-1", "no handle here")
    engaged = take_in(system, install, "m-2", "hello @ada")
    assert (observed, engaged) == ("not_addressed", "mentioned")
    model = ScriptedModel(lambda asked: says(f"heard {asked.question}"))
    turn_worker(system, model, pager=PagerOutbound()).work(conversation_of(made), FAR)
    (reply,) = [row for row in system.rows("MSG#") if row["role"] == "reply"]
    assert reply["sent"] == b"1 heard hello @ada"


def take_in(system: System, install: Install, message_id: str, body: str) -> str:
    """Takes a group message in as any surface's function does, after its own verification."""
    message = NormalizedMessage(
        message_id=message_id,
        conversation_key="room-9",
        actor_id="u-42",
        body=body,
        topology=Topology.GROUP,
    )
    judgement = judge(
        install.engagement,
        actor_id=message.actor_id,
        body=message.body,
        topology=message.topology,
        handle=install.agent_handle,
        parent_is_reply=False,
    )
    arrival = Arrival(
        install=install,
        secret_version=1,
        message=message,
        judgement=judgement,
        story=system.ids.ulid(),
        received_at=system.clock.now_ms(),
        digest=digest(message, DIGEST_VERSION),
        digest_version=DIGEST_VERSION,
        kept_days=90,
    )
    admission = Admission(
        system.table,
        system.clock,
        system.random,
        digest,
        deadline=Deadline(system.clock, 1.0),
    )
    return admission.admit(arrival).reason


@pytest.mark.behaviour("identity:perspective", "ingress:perspective", "gate:observe-or-engage")
def test_an_agent_answers_from_its_own_perspective_of_the_conversation() -> None:
    system = System()
    made = system.make_install()
    group = {"topology": "group"}
    system.say(made, "lunch at noon", "m-1", actor_id="grace", display_name="Grace", **group)
    system.say(made, "@ada when is lunch?", "m-2", actor_id="alan", **group)
    system.say(made, "@ada and dinner?", "m-3", actor_id="alan", **group)
    model = ScriptedModel(lambda asked: says(f"heard {asked.question}"))
    worker = turn_worker(system, model, generic=system.generic_outbound())
    worker.work(conversation_of(made), FAR)
    first, second = model.asked
    (only,) = first.turns
    grace, alan = (part.text for part in only.parts if isinstance(part, Text))
    assert 'from="Grace"' in grace
    assert 'observed="true"' in grace
    assert "lunch at noon" in grace
    assert 'from="alan"' in alan
    assert "observed" not in alan
    assert "@ada when is lunch?" in alan
    assert "dinner" not in words_of(first)
    assert second.question == "@ada and dinner?"
    assert second.turns[-1].side is Side.USER
    assert "Be brief." in first.system


@pytest.mark.behaviour("engine:one-ledger")
def test_a_run_that_is_taken_over_uses_the_result_that_its_ledger_has() -> None:
    system = System()
    made = system.make_install()
    system.say(made, "hello")
    model = ScriptedModel(lambda asked: says(f"heard {asked.question}"))
    worker = turn_worker(system, model, generic=system.generic_outbound())
    system.aws.kill_at(8, "before")  # head, agent, slot, lease, context, begun, finished
    with pytest.raises(Killed):
        worker.work(conversation_of(made), FAR)
    assert [row["status"] for row in system.rows("STEP#")] == ["completed"]
    system.clock.forward(120)
    calls = len(model.asked)
    worker.work(conversation_of(made), FAR)
    assert len(model.asked) == calls
    (step,) = system.rows("STEP#")
    assert step["text"] == "heard hello"
    (reply,) = [row for row in system.rows("MSG#") if row["role"] == "reply"]
    assert json.loads(reply["sent"])["body"] == "heard hello"


@pytest.mark.behaviour("gate:verdict:inbound")
def test_an_install_that_rejects_when_busy_observes_what_comes_while_a_run_waits() -> None:
    system = System()
    made = system.make_install(engagement=Engagement(busy=Busy.REJECT))
    verdicts = [system.say(made, "hi", f"m-{n}").json()["engagement"] for n in (1, 2)]
    assert verdicts == [
        {"verdict": "engage", "reason": "direct_message"},
        {"verdict": "observe", "reason": "busy"},
    ]
    system.settle()
    assert system.say(made, "and now?", "m-3").json()["engagement"]["verdict"] == "engage"
