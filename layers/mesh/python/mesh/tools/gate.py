"""Owns the gate before each call of a tool: one check under the writer's own conditions before it,
a look each second while it runs, and a second check behind it.

Refuses a call on an offer that does not stand any more, and a result that raced a revocation. No
person approves single calls: the binding and the account's permissions decide (seed 000, "Design
guardrails"), and every verdict is a row of the run's ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mesh.kernel.errors import Conflict, Failed, Refused
from mesh.storage.table import Table
from mesh.tools import admission, packages
from mesh.tools.contract import (
    Call,
    Definition,
    Handler,
    Judging,
    Observation,
    ObservationKind,
    Parts,
)
from mesh.tools.offers import Offer


class Gate:
    """Admits and makes calls. One per function; holds no state between calls."""

    def __init__(
        self,
        table: Table,
        definitions: Mapping[str, Definition],
        handlers: Mapping[str, Handler],
    ) -> None:
        self._table = table
        self.definitions = definitions
        self.handlers = handlers

    def judge(self, offer: Offer, arguments: Mapping[str, Any]) -> str | None:
        """What its tool has against a call whose arguments fit the schema, in words for the model;
        None where nothing stands against it."""
        handler = self.handlers[offer.definition.name]
        return handler.judge(arguments, offer.grant) if isinstance(handler, Judging) else None

    def sources(self, offer: Offer, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The URLs that a call is about, as far as they are known before it."""
        handler = self.handlers[offer.definition.name]
        return handler.sources(arguments) if isinstance(handler, Judging) else ()

    def stand(self, agent_id: str, offers: Sequence[Offer]) -> bool:
        """Whether all that the offers rest on is as it was, read consistently, in one read. Raises
        Failed."""
        rows = self._table.get_many(
            key for offer in offers for key in admission.rows_of(agent_id, offer)
        )
        return all(admission.stands(agent_id, offer, rows) for offer in offers)

    def make(self, offer: Offer, arguments: Mapping[str, Any], call: Call) -> Observation:
        """Makes an admitted call. A refusal and a failure of the tool's own are observations.

        Raises Failed (`unavailable`) where Mesh's own table is unreachable: that is the run's
        failure, and not the tool's.
        """
        try:
            return self.handlers[offer.definition.name](arguments, call)
        except (Refused, Conflict) as error:
            return Observation(kind=ObservationKind.FAILED, text=f"{error.code}: {error.message}")
        except Failed as failed:
            if failed.code == "unavailable":
                raise
            return Observation(kind=ObservationKind.FAILED, text=f"{failed.code}: {failed.message}")


def gate_of(parts: Parts) -> Gate:
    """The gate over every package that ships."""
    definitions: dict[str, Definition] = {}
    handlers: dict[str, Handler] = {}
    for name in packages.names():
        package = packages.load(name)
        made = package.make(parts)
        for definition in package.definitions:
            definitions[definition.name] = definition
            handlers[definition.name] = made[package.handler_of[definition.name]]
    return Gate(parts.table, definitions, handlers)
