"""Owns the kinds of job that delete, and what they are made of.

Refuses a kind without its erasing: each is made here, over the same parts.
"""

from __future__ import annotations

from collections.abc import Mapping

from mesh.control.enablement import Enablement
from mesh.control.installs import Installs
from mesh.jobs.actor import DeleteActor
from mesh.jobs.agent import DeleteAgent
from mesh.jobs.contract import Kind
from mesh.jobs.conversation import DeleteConversation
from mesh.jobs.erasure import Erasure
from mesh.jobs.install import DeleteInstall, Forgetting
from mesh.jobs.rounds import Rounds
from mesh.kernel.clock import Clock
from mesh.records.job import JobKind
from mesh.storage.table import Table


def deletions(
    table: Table, clock: Clock, erasure: Erasure, installs: Installs, enablement: Enablement
) -> Mapping[JobKind, Kind]:
    """The kinds that delete."""
    rounds, forgetting = Rounds(table, clock), Forgetting(table, erasure)
    return {
        JobKind.DELETE_CONVERSATION: DeleteConversation(erasure),
        JobKind.DELETE_ACTOR: DeleteActor(table, clock, erasure, rounds),
        JobKind.DELETE_INSTALL: DeleteInstall(forgetting, rounds),
        JobKind.DELETE_AGENT: DeleteAgent(
            table,
            installs=installs,
            enablement=enablement,
            forgetting=forgetting,
            rounds=rounds,
        ),
    }
