"""Owns what a leased run is worked on with: its steps so far, its context, its model, its tools.

Refuses to begin what cannot end: a run that was cut short again and again, one whose time is over,
one whose model is not to be had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mesh.engine.budgets import TOKENS, Budgets
from mesh.engine.calls import Calls
from mesh.engine.context import read_context
from mesh.engine.contract import Materials, Said
from mesh.engine.framing import Frames
from mesh.engine.holding import LeaseHolding
from mesh.engine.ledger import Ledger, progress
from mesh.engine.run import Run
from mesh.engine.slots import Place
from mesh.engine.watch import Watch
from mesh.kernel.clock import Clock
from mesh.kernel.ids import Ids, Random
from mesh.kernel.limits import CONTEXT_TOKENS_MAX, HANDOVERS_MAX, LEASES_WITHOUT_PROGRESS_MAX
from mesh.models.contract import ModelConnector
from mesh.records.agent import Agent, ModelKind
from mesh.records.conversation import Conversation, Pending
from mesh.records.note import Note
from mesh.storage.table import Table
from mesh.tools.gate import Gate
from mesh.tools.memory import shown_to
from mesh.tools.offers import Offer, offering_of

Models = Callable[[Agent], ModelConnector | None]
"""The connector of an agent's model; None where there is none of that kind here."""


class Thinking:
    """Works leased runs. One per function."""

    def __init__(
        self,
        *,
        table: Table,
        models: Models,
        gate: Gate,
        watch: Watch,
        budgets: Budgets,
        clock: Clock,
        ids: Ids,
        random: Random,
        kept_days: int,
    ) -> None:
        self._table = table
        self._models = models
        self._gate = gate
        self._watch = watch
        self._budgets = budgets
        self._clock = clock
        self._ids = ids
        self._random = random
        self._kept_days = kept_days

    def think(
        self,
        conversation: Conversation,
        pending: Pending,
        agent: Agent,
        place: Place,
        stop_at_ms: int,
    ) -> Said:
        """What the run is to answer, whoever made its steps so far.

        Raises HandOver where another invocation is to go on, LostLease, Failed.
        """
        ledger = Ledger(
            self._table,
            conversation.conversation_id,
            pending,
            self._kept_days,
            self._keeping(agent),
        )
        steps = ledger.steps()
        lost = pending.lease_no - 1 - pending.excused - progress(steps)
        if lost >= LEASES_WITHOUT_PROGRESS_MAX:
            return Said("", "poisoned")
        if pending.excused > HANDOVERS_MAX:
            return Said("", "deadline")
        model = self._models(agent)
        if model is None:
            return Said("", "model_unavailable")
        tokens_max = min(CONTEXT_TOKENS_MAX, agent.limits.input_tokens // 2)
        lines = read_context(self._table, conversation, pending, tokens_max)
        if not lines:
            return Said("", "message_deleted")
        materials = Materials(
            agent=agent,
            install_id=pending.install_id,
            conversation_id=conversation.conversation_id,
            run_id=f"run_{pending.story}",
            before=pending.last_order,
            order=pending.order,
            lines=lines,
            notes=self._notes(agent, pending.install_id),
            started_at=pending.first_leased_at or self._clock.now_ms(),
            stop_at=stop_at_ms,
        )
        holding = LeaseHolding(
            self._table, self._clock, place, conversation.conversation_id, pending
        )
        run = Run(
            materials,
            ledger=ledger,
            model=model,
            calls=Calls(
                materials,
                ledger=ledger,
                gate=self._gate,
                watch=self._watch,
                holding=holding,
                clock=self._clock,
            ),
            watch=self._watch,
            holding=holding,
            offers=self._offers,
            over=partial(self._over, agent),
            frames=Frames(self._random),
            clock=self._clock,
            ids=self._ids,
        )
        return run.go(steps)

    def _keeping(self, agent: Agent) -> Callable[..., None] | None:
        limit = agent.limits.tokens_per_day
        return None if limit is None else partial(self._budgets.keep_answer, agent, limit)

    def _over(self, agent: Agent) -> str | None:
        return TOKENS if self._budgets.tokens_reached(agent) else None

    def _notes(self, agent: Agent, install_id: str) -> tuple[Note, ...]:
        if agent.model.kind is ModelKind.OFFLINE:
            return ()  # it reads no prompt
        return shown_to(self._table, agent.agent_id, install_id)

    def _offers(self, agent: Agent) -> Mapping[str, Offer]:
        if agent.model.kind is ModelKind.OFFLINE:
            return {}  # it calls no tool
        return offering_of(self._table, agent, self._gate.definitions).offers
