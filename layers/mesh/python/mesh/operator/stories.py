"""Owns what is read of one message's story: its run, steps, reply and place in the queue.

Refuses a body: a story is told by ids, times and reasons.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from mesh.control.rows import record_of
from mesh.engine.lease import is_live
from mesh.operator.route import Call
from mesh.records.conversation import Conversation, Pending
from mesh.records.run import RunStatus, Step, StepStatus, Story
from mesh.storage import keys

_STEPS_SHOWN_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it stands: what the story says, and the row that waits while it is not over."""

    story: Story
    status: RunStatus | None
    pending: Pending | None


def run_of(call: Call, story: Story) -> Run:
    """How the run of a story stands. While it is not over, its lease tells queued from running."""
    if story.status is not RunStatus.QUEUED or story.order is None:
        return Run(story, story.status, None)
    deps = call.plane.deps
    item = deps.table.get(keys.pending(story.conversation_id, story.order))
    if item is None:
        # It ended between the two reads; the story knows by now.
        again = deps.table.get(keys.story(story.story))
        fresh = story if again is None else record_of(again, Story)
        return Run(fresh, fresh.status, None)
    pending = record_of(item, Pending)
    live = is_live(pending, deps.clock.now_ms())
    return Run(story, RunStatus.RUNNING if live else RunStatus.QUEUED, pending)


def is_forgotten(call: Call, story: Story) -> bool:
    """Whether a story was deleted with its conversation, however far its erasing is."""
    if story.order is None:
        return False
    item = call.plane.deps.table.get(keys.order(story.conversation_id))
    return item is not None and record_of(item, Conversation).forgets(story.order)


def steps_of(call: Call, story: Story) -> list[Step]:
    """The steps of a story's run, in order.

    One that was under way when its run ended is told as uncertain: nobody will say how it came out.
    """
    table = call.plane.deps.table
    page = table.query(keys.story_partition(story.story), prefix=keys.STEP, limit=_STEPS_SHOWN_MAX)
    steps = [record_of(item, Step) for item in page.items]
    if story.ended_at is None:
        return steps
    return [
        replace(step, status=StepStatus.UNCERTAIN) if step.status is StepStatus.RUNNING else step
        for step in steps
    ]
