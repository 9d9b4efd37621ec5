"""Owns what must hold for a call to be admitted: what its offer rests on, and the meters that it
counts on.

Refuses to read: each demand is a write of the one transaction that reserves the call's place, and
its condition decides. A meter is counted before the request leaves and never goes back: from the
commit on a call costs its unit, whatever comes of it. Seed 001, "Runtime contracts".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mesh.control import connections
from mesh.kernel.clock import MINUTE_MS
from mesh.kernel.limits import METER_ROW_KEPT_MS
from mesh.records.connection import Capability, Grant
from mesh.records.install import AgentStatus
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.keys import Key
from mesh.storage.writes import Write, check, update
from mesh.tools.contract import Observation, ObservationKind
from mesh.tools.offers import Offer

REVOKED: Final = Observation(
    kind=ObservationKind.REVOKED,
    text="what this tool was offered on has changed since, so it was not called; what is offered"
    " now stands for itself",
)
_UNITS: Final = {Capability.SEARCH: "searches", Capability.READ: "pages"}


@dataclass(frozen=True, slots=True)
class Demand:
    """One condition of an admission."""

    write: Write
    otherwise: Observation
    """What the model is told where the condition does not hold."""
    retry_after_s: int | None = None
    """When it may hold again, where time alone brings that."""


def demands(agent_id: str, offer: Offer, story: str, now_ms: int, ttl: int) -> list[Demand]:
    """Everything that must hold for a call of the run `story` on `offer` at `now_ms`; `ttl` is that
    of the run's rows, in Unix seconds."""
    held = [_agent(agent_id, offer), _binding(agent_id, offer)]
    if offer.grant is None:
        return [Demand(write, REVOKED) for write in held]
    held += connections.conditions(agent_id, offer.grant)
    return [
        *(Demand(write, REVOKED) for write in held),
        _run_meter(offer.grant, story, ttl),
        _minute_meter(offer.grant, agent_id, now_ms),
    ]


def rows_of(agent_id: str, offer: Offer) -> tuple[Key, ...]:
    """The rows that the offer rests on."""
    granted = () if offer.grant is None else connections.rows_of(agent_id, offer.grant)
    return (keys.agent(agent_id), keys.tool(agent_id, offer.definition.name), *granted)


def stands(agent_id: str, offer: Offer, rows: Mapping[Key, Item]) -> bool:
    """Whether what the offer rests on is as it was, by `rows`, read from `rows_of` it."""
    agent = rows.get(keys.agent(agent_id))
    if agent is None or agent["version"] != offer.agent_version:
        return False
    if agent["status"] != AgentStatus.ACTIVE:
        return False
    tool = rows.get(keys.tool(agent_id, offer.definition.name))
    if (0 if tool is None else tool["version"]) != offer.binding_version:
        return False
    if tool is not None and not tool["enabled"]:
        return False
    return offer.grant is None or connections.stands(agent_id, offer.grant, rows)


def _agent(agent_id: str, offer: Offer) -> Write:
    return check(
        keys.agent(agent_id),
        "#version = :version AND #status = :active",
        version=offer.agent_version,
        active=AgentStatus.ACTIVE.value,
    )


def _binding(agent_id: str, offer: Offer) -> Write:
    key = keys.tool(agent_id, offer.definition.name)
    if offer.binding_version == 0:  # a tool of a capability needs no row
        return check(key, "attribute_not_exists(#pk)")
    return check(
        key, "#version = :version AND #enabled = :yes", version=offer.binding_version, yes=True
    )


def _run_meter(grant: Grant, story: str, ttl: int) -> Demand:
    most, units = grant.requests_per_run, _UNITS[grant.capability]
    told = (
        f"the allowance of {most} {units} for one run is used up: go on with what you have, and"
        " say so where it matters"
    )
    return Demand(
        _counted(keys.run_meter(story, grant.capability), most, ttl),
        Observation(kind=ObservationKind.LIMITED, text=told),
    )


def _minute_meter(grant: Grant, agent_id: str, now_ms: int) -> Demand:
    """The UTC clock minute, of the connection's owner and the capability: no change of settings
    begins it anew."""
    owner_id = connections.owner_id_of(grant.source, agent_id)
    most, units = grant.requests_per_minute, _UNITS[grant.capability]
    left_s = -(-(MINUTE_MS - now_ms % MINUTE_MS) // 1000)
    told = (
        f"the {most} {units} that this connection may make in a minute are used up, by this agent"
        f" and all others that share it; the next minute begins in {left_s} s. Nothing was sent,"
        " and nothing is tried again by itself"
    )
    ttl = (now_ms + METER_ROW_KEPT_MS) // 1000
    return Demand(
        _counted(keys.minute_meter(owner_id, grant.capability, now_ms), most, ttl),
        Observation(kind=ObservationKind.LIMITED, text=told),
        left_s,
    )


def _counted(key: Key, most: int, ttl: int) -> Write:
    return update(
        key,
        "SET #calls = if_not_exists(#calls, :zero) + :one, #ttl = :ttl, #v = :v",
        "attribute_not_exists(#calls) OR #calls < :most",
        zero=0,
        one=1,
        most=most,
        ttl=ttl,
        v=keys.ITEM_VERSION,
    )
