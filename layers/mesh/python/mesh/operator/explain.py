"""Owns the story of one message, told for people: what came, what was decided and by which rule,
what was done, what was sent, and what happens next.

Refuses to show a body, a secret or a delivery URL: ids, times, rules and reasons answer the
question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mesh.control.installs import Whole
from mesh.control.rows import record_of
from mesh.kernel.clock import rfc3339
from mesh.kernel.ids import story_of, ulid_ms
from mesh.operator.route import Call
from mesh.operator.shapes.happened import ExplainEvent, Explanation
from mesh.operator.stories import Run, run_of, steps_of
from mesh.outbox.entries import REPLY_DELETED, Entries
from mesh.outbox.schedule import due_time
from mesh.records.conversation import Outbox
from mesh.records.install import AgentStatus, EndpointState, InstallState
from mesh.records.notice import Notice
from mesh.records.outbox import Attempt, AttemptEnd, Entry, EntryState, Replay
from mesh.records.run import RunStatus, Step, Story
from mesh.storage import keys
from mesh.storage.conversations import read_outbox_head
from mesh.tools.contract import ObservationKind

PROBE: Final = "probe"
"""The verdict of a run that no message began (`mesh.operator.prober`)."""

RULES: Final = {
    "actor_denied": ("engagement.deny_actors", "the actor is on the deny list"),
    "actor_not_allowed": ("engagement.allow_actors", "the actor is not on the allow list"),
    "direct_message": ("engagement.policy", "a direct message engages the agent"),
    "mentioned": ("engagement.policy", "the message mentions the agent's handle"),
    "reply_to_agent": ("engagement.policy", "the message answers a reply of the agent"),
    "policy_always": ("engagement.policy", "every message engages the agent"),
    "not_addressed": ("engagement.policy", "the message is not addressed to the agent"),
    "policy_never": ("engagement.policy", "no message engages the agent"),
    "busy": ("caps.waiting, engagement.busy", "too much waits in the conversation already"),
}
"""The setting that decided, and why, by the reason that the gate gave."""

_ENDS: Final = {
    AttemptEnd.DELIVERED: "the receiver answered 2xx",
    AttemptEnd.REDIRECT: "the receiver redirected; redirects are never followed",
    AttemptEnd.CLIENT_ERROR: "the receiver refused it",
    AttemptEnd.GONE: "the receiver says that the address is gone",
    AttemptEnd.THROTTLED: "the receiver asked for patience",
    AttemptEnd.SERVER_ERROR: "the receiver failed",
    AttemptEnd.TIMEOUT: "there was no answer in time",
    AttemptEnd.DNS: "the host did not resolve",
    AttemptEnd.CONNECT: "no connection was made",
    AttemptEnd.TLS: "TLS failed",
    AttemptEnd.PROTOCOL: "the answer was not HTTP",
    AttemptEnd.REFUSED_ADDRESS: "the address is one that is never called",
    AttemptEnd.UNKNOWN: "the worker died meanwhile; it may have arrived",
}


def explain(call: Call, story: Story) -> Explanation:
    """The story of one message, in order."""
    run = run_of(call, story)
    story = run.story
    deps = call.plane.deps
    reader = Entries(deps.table, deps.clock, deps.ids)
    entry = reader.find(story)
    events = [_received(story), _verdict(story)]
    if story.verdict == PROBE:
        events = [_probed(story)]
    if story.status is not None:
        events += _run_events(run, steps_of(call, story))
    if entry is not None:
        events.append(_committed(entry))
        events += [_attempted(entry, attempt) for attempt in reader.attempts(entry)]
        events += _last_of(entry)
        if entry.notice_id is not None:
            events.append(_notice(call, entry, entry.notice_id))
    return Explanation(
        subject={
            "id": f"msg_{story.story}",
            "message_id": story.message_id,
            "conversation_key": story.conversation_key,
            "conversation_id": story.conversation_id,
            "actor_id": story.actor_id,
            "install_id": story.install_id,
            "run_id": None if story.status is None else f"run_{story.story}",
            "outbound_id": None if entry is None else entry.outbound_id,
        },
        events=sorted(events, key=lambda event: event.at),  # stable: what is told first stays first
        next=_next(call, run, entry),
    )


def _event(
    at_ms: int,
    kind: str,
    text: str,
    *,
    ids: dict[str, str],
    rule: str | None = None,
    reason: str | None = None,
    sources: Sequence[str] = (),
) -> ExplainEvent:
    return ExplainEvent(
        at=rfc3339(at_ms),
        kind=kind,
        rule=rule,
        reason=reason,
        ids=ids,
        text=text,
        sources=list(sources),
    )


def _received(story: Story) -> ExplainEvent:
    return _event(
        story.received_at,
        "received",
        f"message {story.message_id} of actor {story.actor_id} came, signed with secret"
        f" {story.secret_version}",
        ids={"message_id": f"msg_{story.story}", "request_id": f"req_{story.story}"},
        rule="signature",
        reason="signature_valid",
    )


def _probed(story: Story) -> ExplainEvent:
    return _event(
        story.received_at,
        "probed",
        f"operator {story.actor_id} had a tool called by hand, without a model",
        ids={"run_id": f"run_{story.story}", "operator_id": story.actor_id},
        rule="operator",
        reason="probe",
    )


def _verdict(story: Story) -> ExplainEvent:
    rule, why = RULES.get(story.reason, ("engagement", story.reason))
    return _event(
        story.received_at,
        "verdict",
        f"the gate said {story.verdict}: {why}",
        ids={"message_id": f"msg_{story.story}", "install_id": story.install_id},
        rule=rule,
        reason=story.reason,
    )


def _run_events(run: Run, steps: list[Step]) -> list[ExplainEvent]:
    story, run_id = run.story, f"run_{run.story.story}"
    ids = {"run_id": run_id, "agent_id": story.agent_id}
    events = []
    if story.verdict != PROBE:
        events.append(_event(story.received_at, "run_queued", "a run was queued", ids=ids))
    started = story.started_at or (run.pending.first_leased_at if run.pending else None)
    if started is not None:
        events.append(_event(started, "run_started", "a worker took the run", ids=ids))
    for step in steps:
        took = "" if step.ended_at is None else f" after {step.ended_at - step.started_at} ms"
        what = f"the tool {step.tool}" if step.tool else f"the {step.kind}"
        events.append(
            _event(
                step.ended_at or step.started_at,
                "step",
                f"step {step.number}, a call of {what}, is {step.status}{took}{_judged(step)}",
                ids={"run_id": run_id, "step_id": f"{run_id}#{step.number}"},
                reason=step.error or step.observation_kind,
                sources=step.sources,
            )
        )
    if story.ended_at is not None:
        because = f": {story.run_reason}" if story.run_reason else ""
        events.append(
            _event(
                story.ended_at,
                "run_ended",
                f"the run ended {story.status}{because}",
                ids=ids,
                reason=story.run_reason,
            )
        )
    return events


def _judged(step: Step) -> str:
    """The gate's verdict on a call of a tool, and as whom and at whose cost it was made."""
    if step.tool is None:
        return "" if step.input_tokens is None else _tokens(step)
    if step.replay is None:
        return "; the gate did not let it pass"
    payer = "" if step.payer is None else f", paid by {step.payer}"
    return (
        f"; the gate let it pass on version {step.agent_version} of the agent and version"
        f" {step.binding_version} of its binding{_granted(step)}, acting as {step.acting}{payer}"
        f"{_origin(step)}"
    )


def _granted(step: Step) -> str:
    """The settings that a tool of the web was used by."""
    grant = step.grant
    if grant is None:
        return ""
    whose = grant.source.value
    return (
        f", on version {grant.version} of the {whose}'s connection and version"
        f" {grant.key_version} of its key"
    )


def _origin(step: Step) -> str:
    """Where a result came from, or where the call went that had none: ids and names, never
    words."""
    told = ", ".join(f"{name} {value}" for name, value in sorted((step.provenance or {}).items()))
    is_result = step.observation_kind == ObservationKind.RESULT
    return f"; {'its result is from' if is_result else 'it went to'}: {told}" if told else ""


def _tokens(step: Step) -> str:
    return f"; {step.input_tokens} tokens were read and {step.output_tokens} written"


def _committed(entry: Entry) -> ExplainEvent:
    return _event(
        entry.created_at,
        "reply_committed",
        f"the reply is number {entry.sequence} of the conversation's outbox",
        ids={"outbound_id": entry.outbound_id},
        rule="outbox",
    )


def _attempted(entry: Entry, attempt: Attempt) -> ExplainEvent:
    status = "" if attempt.http_status is None else f" ({attempt.http_status})"
    kind = "replay" if attempt.replay else "probe" if attempt.probe else "attempt"
    return _event(
        attempt.ended_at,
        "attempt",
        f"{kind} {attempt.number}: {_ENDS[attempt.end]}{status}",
        ids=_attempt_ids(entry, attempt.number),
        reason=attempt.detail or attempt.end,
    )


def _last_of(entry: Entry) -> list[ExplainEvent]:
    """The attempt in flight, or the end of the entry."""
    if entry.open is not None:
        return [
            _event(
                entry.open.at,
                "attempt",
                f"attempt {entry.open.number} is in flight",
                ids=_attempt_ids(entry, entry.open.number),
            )
        ]
    if entry.state is EntryState.PENDING:
        return []
    at_ms = entry.last_ended_at or (entry.recent[-1].ended_at if entry.recent else entry.created_at)
    because = f": {entry.state_reason}" if entry.state_reason else ""
    return [
        _event(
            at_ms,
            "reply_ended",
            f"the reply is {entry.state}{because}",
            ids={"outbound_id": entry.outbound_id},
            reason=entry.state_reason,
        )
    ]


def _notice(call: Call, entry: Entry, notice_id: str) -> ExplainEvent:
    """What the operator was told of the entry's death, and whether it went out."""
    ulid = story_of(notice_id)
    item = call.plane.deps.table.get(keys.notice(ulid))
    how = ""
    if item is not None:  # it is not kept as long as its entry
        notice = record_of(item, Notice)
        sent = "is on its way" if notice.on_bus_at is None else "is on the event bus"
        how = f" and {sent}"
        if notice.posted_at is not None:
            how += ", and the operator's webhook took it"
    return _event(
        ulid_ms(ulid),
        "notice",
        f"a notice of it was put down{how}",
        ids={"outbound_id": entry.outbound_id, "notice_id": notice_id},
        reason=entry.state_reason,
    )


def _attempt_ids(entry: Entry, number: int) -> dict[str, str]:
    return {
        "outbound_id": entry.outbound_id,
        "attempt_id": f"{entry.outbound_id}#{number}",
    }


# ---- what happens next


def _next(call: Call, run: Run, entry: Entry | None) -> str:
    story = run.story
    if entry is not None:
        return _next_of_entry(call, story, entry)
    match run.status:
        case None if story.verdict == "refuse":
            return "nothing: the message was refused, and its text was not kept"
        case None:
            return "nothing: the message is context for later turns and starts none"
        case RunStatus.QUEUED | RunStatus.RUNNING:
            return _next_of_run(call, run)
        case _:
            return f"nothing: the run ended {run.status} and made no reply"


def _next_of_run(call: Call, run: Run) -> str:
    if run.status is RunStatus.RUNNING and run.pending is not None:
        until = rfc3339(run.pending.lease_until)
        return f"a worker runs it, and renews its claim by {until}; if it dies, another goes on"
    agent = call.plane.agents.by_id(run.story.agent_id)
    if agent is not None and agent.status is AgentStatus.PAUSED:
        return f"it waits: the agent is paused. Then: mesh agent resume {agent.slug}"
    order = call.plane.deps.table.get(keys.order(run.story.conversation_id))
    if (
        agent is not None
        and order is not None
        and order.get("due_pk") == keys.waiting(agent.agent_id)
    ):
        return (
            f"it waits for one of the agent's {agent.limits.runs_at_once} running slots."
            f" To allow more: mesh agent update {agent.slug} --runs-at-once N"
        )
    return "it waits for its turn in the conversation; the sweep rings again within minutes"


def _next_of_entry(call: Call, story: Story, entry: Entry) -> str:
    if entry.state is not EntryState.PENDING:
        item = call.plane.deps.table.get(keys.replay(story.story))
        if item is not None:
            return _next_of_replay(call, story, entry, msgspec.convert(item, Replay))
    match entry.state:
        case EntryState.DELIVERED:
            return "nothing: the reply is delivered"
        case EntryState.PENDING:
            return _next_of_pending(call, story, entry)
        case _ if entry.state_reason == REPLY_DELETED:
            return "nothing: the reply's words were deleted, and there is nothing left to send"
        case _:
            return (
                f"nothing by itself: the reply is {entry.state}."
                f" To send it: mesh outbox replay {entry.outbound_id}"
            )


def _next_of_replay(call: Call, story: Story, entry: Entry, replay: Replay) -> str:
    if entry.open is not None:
        return f"attempt {entry.open.number} ends by {rfc3339(entry.open.until)}"
    whole = call.plane.installs.find_whole(story.install_id)
    if whole is None or whole.install.delivery_url is None:
        return "the replay that was ordered is dropped: there is nowhere to send it to"
    held = _held(whole)
    if held is not None:
        return f"the replay that was ordered {held}"
    if whole.endpoint.state is EndpointState.DEGRADED:
        return "the replay that was ordered waits: the receiver fails, and one a minute is tried"
    return f"a replay was ordered, and is tried by {rfc3339(replay.due_at)}"


def _held(whole: Whole) -> str | None:
    """What of the connector keeps a reply from being sent, and what lets it go."""
    install_id = whole.install.install_id
    if whole.install.state is not InstallState.ENABLED:
        return (
            f"waits: the connector is {whole.install.state}."
            f" Then: mesh connector enable {install_id}"
        )
    if whole.endpoint.state is EndpointState.PAUSED:
        return (
            f"waits: delivery is paused ({whole.endpoint.reason})."
            f" Then: mesh connector resume-delivery {install_id}"
        )
    return None


def _next_of_pending(call: Call, story: Story, entry: Entry) -> str:
    deps = call.plane.deps
    if entry.open is not None:
        return f"attempt {entry.open.number} ends by {rfc3339(entry.open.until)}"
    whole = call.plane.installs.find_whole(story.install_id)
    if whole is None:
        return "it is never sent: the connector was deleted"
    held = _held(whole)
    if held is not None:
        return f"it {held}"
    item = deps.table.get(keys.outbox(story.conversation_id))
    head = None if item is None else read_outbox_head(deps.table, record_of(item, Outbox))
    if head is not None and head.sequence < entry.sequence:
        return f"it waits for reply {head.sequence}, {head.outbound_id}, which goes before it"
    if whole.endpoint.state is EndpointState.DEGRADED:
        return "the receiver is failing: one reply a minute is tried, and this waits for its turn"
    return f"attempt {entry.attempts + 1} begins at {rfc3339(due_time(entry, whole.endpoint))}"
