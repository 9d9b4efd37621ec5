"""Owns the seam of a job: what a kind of job does in one step, and what it answers.

Refuses a step that may not be repeated: whatever dies, or runs twice, the same step is made again
from the place that was kept last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mesh.records.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a step came to."""

    place: Mapping[str, Any] | None
    """Where the next one begins (plain values, as the table keeps them); None at the end."""
    done: int = 0
    """How many things this step has done."""
    wait_s: int = 0
    """How long the next step is not to begin: work in flight has to end first."""
    waits: str | None = None
    """What it waits for, in words for people; shown until its next step."""
    failed: str | None = None
    """Why the job cannot be ended, in words for people; it is `failed` then, and stays where it
    is."""


class Kind(Protocol):
    """A kind of job."""

    @property
    def ended(self) -> str:
        """The action of the audit row at its end, such as `conversation.deleted`."""
        ...

    def step(self, job: Job, stop_at_ms: int) -> Progress:
        """Makes one bounded step from `job.place`, any number of times and beside another worker.

        It may go on until `stop_at_ms` where that spares rounds. Raises Failed; then it is made
        again.
        """
        ...
