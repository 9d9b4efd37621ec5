"""Owns the routes of runs, their cancelling, and the question why a turn did or did not happen.

Refuses to tell of a message before it is known whose it is.
"""

from __future__ import annotations

from typing import Final

from mesh.control.agents import not_found
from mesh.control.audit import Deed
from mesh.control.rows import record_of
from mesh.kernel.clock import rfc3339
from mesh.kernel.errors import Conflict, Failed, Refused
from mesh.kernel.ids import is_minted, story_of
from mesh.kernel.limits import (
    LIST_ROWS_PER_REQUEST,
    TRANSACTION_TRIES,
)
from mesh.operator.agents import agent_of
from mesh.operator.explain import explain
from mesh.operator.outbox import story_by_id
from mesh.operator.route import Answer, Call, Needs, Route, nothing
from mesh.operator.shapes.base import Nothing
from mesh.operator.shapes.happened import (
    BudgetShown,
    BudgetsShown,
    ExplainEvent,
    Explanation,
    MessageSearch,
    RunList,
    RunListing,
    RunShown,
    RunSummary,
    StepShown,
)
from mesh.operator.stories import Run, is_forgotten, run_of, steps_of
from mesh.records.agent import Agent, Limits
from mesh.records.conversation import Conversation, Pending
from mesh.records.run import Claim, Refusal, RunStatus, Step, StepKind, Story
from mesh.storage import keys
from mesh.storage.happened import Place, Walk, in_batches
from mesh.storage.table import Cancelled


def run_by_id(call: Call) -> Story:
    """The story of the path's `run_…` id. Raises `not_found`."""
    story = story_by_id(call, call.path["id"], ("run_",))
    if story.status is None:
        raise not_found()
    return story


def _list(call: Call, agent: Agent, query: RunListing) -> Answer:
    told = call.place(query.cursor)
    place = None if told is None else Place(int(told[0]), str(told[1]))
    walk = Walk(
        call.plane.deps.table,
        lambda at_ms: keys.runs_lists(agent.agent_id, at_ms),
        newest_ms=call.plane.deps.clock.now_ms(),
        oldest_ms=agent.created_at,
        place=place,
    )
    items: list[RunSummary] = []
    further: Place | None = None
    stopped = False
    for number, (found, item) in enumerate(in_batches(call.plane.deps.table, iter(walk))):
        if len(items) == query.limit or number == LIST_ROWS_PER_REQUEST:
            stopped = True
            break
        further = found.place
        story = record_of(item, Story)
        if query.install_id not in (None, story.install_id):
            continue
        run = run_of(call, story)
        if run.status is not None and query.status in (None, run.status):
            items.append(RunSummary.model_validate(_summary(run, run.status)))
    end = further if stopped else walk.place
    cursor = call.cursor(None if end is None else [end.day, end.before])
    return Answer(RunList(items=items, next_cursor=cursor))


def _get(call: Call, story: Story, _: Nothing) -> Answer:
    run, steps = run_of(call, story), steps_of(call, story)
    agent = call.plane.agents.by_id(story.agent_id)
    limits = Limits() if agent is None else agent.limits
    fields = {
        **_summary(run, run.status or RunStatus.QUEUED),
        "outbound_id": f"out_{story.story}" if run.story.sequence is not None else None,
        "budgets": _budgets(call, run, steps, limits),
        "steps": [_step(step) for step in steps],
    }
    return Answer(RunShown.model_validate(fields))


def _cancel(call: Call, story: Story, _: Nothing) -> Answer:
    """Ends a run that is not over. What a worker that has it thinks further is thrown away."""
    deps, commit = call.plane.deps, call.plane.commit
    deed = Deed(action="run.cancel", target=f"run_{story.story}", agent_id=story.agent_id)
    for attempt in range(TRANSACTION_TRIES):
        if attempt:
            deps.table.back_off()
        items = deps.table.get_many(
            (
                keys.order(story.conversation_id),
                keys.pending(story.conversation_id, story.order or 0),
            )
        )
        order = items.get(keys.order(story.conversation_id))
        waits = items.get(keys.pending(story.conversation_id, story.order or 0))
        if order is None or waits is None:
            raise Conflict("state_conflict", "the run has ended; look at it again")
        conversation, pending = record_of(order, Conversation), record_of(waits, Pending)
        try:
            call.plane.audit.commit(
                commit.cancel_writes(conversation, pending, "operator"), call.cause, deed
            )
        except Cancelled:
            continue  # a worker or a message came between: what stands now is judged
        deps.bell.turn(story.conversation_id, story.agent_id)
        ended = deps.table.get(keys.story(story.story))
        return _get(call, story if ended is None else record_of(ended, Story), Nothing())
    raise Failed("unavailable", "the conversation is contended; try again")


def _explain_id(call: Call, story: Story | None, _: Nothing) -> Answer:
    if story is not None:
        return Answer(explain(call, story))
    refused = _refused(call, call.path["id"])
    if refused is None:
        raise not_found()
    return Answer(refused)


def _explain_message(call: Call, _: None, query: MessageSearch) -> Answer:
    install = call.plane.installs.by_id(query.install_id)
    if install is None or not call.principal.reaches(install.agent_id):
        raise not_found()
    table = call.plane.deps.table
    claim = table.get(keys.claim(install.install_id, query.conversation_key, query.message_id))
    item = claim and table.get(keys.story(record_of(claim, Claim).story))
    story = record_of(item, Story) if item else None
    if story is None or is_forgotten(call, story):
        raise Refused(
            "not_found",
            "no such message was taken in; mesh connector refusals may tell why",
        )
    return Answer(explain(call, story))


def story_or_request(call: Call) -> Story | None:
    """The story of any of its ids; None for a request id that may have been refused."""
    minted = call.path["id"]
    try:
        return story_by_id(call, minted, ("msg_", "run_", "out_", "req_"))
    except Refused:
        if minted.startswith("req_") and is_minted(minted):
            return None
        raise


def _refused(call: Call, request_id: str) -> Explanation | None:
    """The refusal of a proven caller that got this request id; None where it is not the asker's."""
    table = call.plane.deps.table
    item = table.get(keys.refusal(story_of(request_id)))
    if item is None:
        return None
    refusal = record_of(item, Refusal)
    install = call.plane.installs.by_id(refusal.install_id)
    if install is None or not call.principal.reaches(install.agent_id):
        return None
    row = table.get(keys.refused(refusal.install_id, refusal.at, refusal.reason))
    return _refusal(request_id, refusal, 1 if row is None else int(row["n"]))


def _refusal(request_id: str, refusal: Refusal, count: int) -> Explanation:
    event = ExplainEvent(
        at=rfc3339(refusal.at),
        kind="refused",
        rule="ingress",
        reason=refusal.reason,
        ids={"request_id": request_id, "install_id": refusal.install_id},
        text=f"a signed request was refused: {refusal.reason}; {count} such in that minute,"
        f" the caller's clock is off by {refusal.skew_s} s",
    )
    return Explanation(
        subject={"id": request_id, "install_id": refusal.install_id},
        events=[event],
        next="nothing: the caller was told, and nothing was taken in",
    )


def _summary(run: Run, status: RunStatus) -> dict[str, object]:
    story = run.story
    started = story.started_at or (run.pending.first_leased_at if run.pending else None)
    return {
        "run_id": f"run_{story.story}",
        "status": status,
        "reason": story.run_reason,
        "install_id": story.install_id,
        "conversation_id": story.conversation_id,
        "message_id": story.message_id,
        "received_at": rfc3339(story.received_at),
        "started_at": None if started is None else rfc3339(started),
        "ended_at": None if story.ended_at is None else rfc3339(story.ended_at),
    }


def _budgets(call: Call, run: Run, steps: list[Step], limits: Limits) -> BudgetsShown:
    story = run.story
    started = story.started_at or (run.pending.first_leased_at if run.pending else None)
    until = story.ended_at or call.plane.deps.clock.now_ms()
    seconds = 0 if started is None else max(0, until - started) // 1000
    tools = sum(step.kind is StepKind.TOOL and step.replay is not None for step in steps)
    return BudgetsShown(
        steps=BudgetShown(used=len(steps), limit=limits.steps),
        tool_calls=BudgetShown(used=tools, limit=limits.tool_calls),
        seconds=BudgetShown(used=seconds, limit=limits.seconds),
        input_tokens=BudgetShown(
            used=sum(step.input_tokens or 0 for step in steps), limit=limits.input_tokens
        ),
        output_tokens=BudgetShown(
            used=sum(step.output_tokens or 0 for step in steps), limit=limits.output_tokens
        ),
    )


def _step(step: Step) -> StepShown:
    return StepShown(
        number=step.number,
        kind=step.kind,
        tool=step.tool,
        status=step.status,
        reason=step.error,
        call_id=step.call_id,
        observation_kind=step.observation_kind,
        origin=step.provenance,
        sources=list(step.sources),
        agent_version=step.agent_version,
        binding_version=step.binding_version,
        connection_version=None if step.grant is None else step.grant.version,
        key_version=None if step.grant is None else step.grant.key_version,
        acting=step.acting,
        payer=step.payer,
        started_at=rfc3339(step.started_at),
        ended_at=None if step.ended_at is None else rfc3339(step.ended_at),
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/agents/{slug}/runs",
        operation="listRuns",
        summary="An agent's runs, newest first",
        needs=Needs.VIEWER,
        find=agent_of,
        takes=RunListing,
        act=_list,
        answers=RunList,
    ),
    Route(
        method="GET",
        path="/api/runs/{id}",
        operation="getRun",
        summary="One run, with its steps",
        needs=Needs.VIEWER,
        find=run_by_id,
        takes=Nothing,
        act=_get,
        answers=RunShown,
    ),
    Route(
        method="POST",
        path="/api/runs/{id}/cancel",
        operation="cancelRun",
        summary="End a run that is queued or running; it makes no reply, and the next goes on",
        needs=Needs.OPERATOR,
        find=run_by_id,
        takes=Nothing,
        act=_cancel,
        answers=RunShown,
    ),
    Route(
        method="GET",
        path="/api/explain",
        operation="explainMessage",
        summary="Why a message, by its sender's ids, did or did not start a turn",
        needs=Needs.VIEWER,
        find=nothing,
        takes=MessageSearch,
        act=_explain_message,
        answers=Explanation,
    ),
    Route(
        method="GET",
        path="/api/explain/{id}",
        operation="explain",
        summary="The whole story that an id belongs to: msg_, run_, out_ or req_",
        needs=Needs.VIEWER,
        find=story_or_request,
        takes=Nothing,
        act=_explain_id,
        answers=Explanation,
    ),
)
