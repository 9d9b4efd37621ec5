"""Owns the plan of an enablement: what turning an install on or off would do, read before it runs.

Refuses any effect: it says what the states, and the very steps that enabling runs, already tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mesh.control.enablement import Provisioner, Step
from mesh.control.installs import Whole
from mesh.kernel.limits import DISABLE_WAIT_S
from mesh.records.install import InstallState

OPEN: Final = Step("open", "let messages in, and let go out what was held")
CLOSE: Final = Step("close", "refuse every message from then on with 403 connector_disabled")
HOLD: Final = Step("hold", "hold the replies that wait; runs that began go on to their ends")
DRAIN: Final = Step("drain", f"wait up to {DISABLE_WAIT_S:g} s for the deliveries in flight")


@dataclass(frozen=True, slots=True)
class Planned:
    """A step, and whether it would be passed over because it is done already."""

    step: Step
    done: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What turning an install on, or off, would do, each in order."""

    enabling: tuple[Planned, ...]
    disabling: tuple[Planned, ...]
    in_flight: tuple[int, ...]
    """When each delivery in flight ends at the latest (Unix ms), soonest first."""


def plan(whole: Whole, provisioner: Provisioner, now_ms: int, *, skip_ping: bool) -> Plan:
    """What enabling (with or without its ping) and disabling would do to the install as it stands.

    A step of an enabling that stopped short is done only if it passed on these very settings.
    """
    state = whole.install.state
    enabled = state is InstallState.ENABLED
    passed = whole.enabling.done if whole.enabling is not None else ()
    steps = (*provisioner.steps(whole.install, skip_ping=skip_ping), OPEN)
    in_flight = tuple(sorted(u for u in whole.endpoint.slots.values() if u > now_ms))
    closed = state is not InstallState.ENABLED
    held = whole.endpoint.held_since is not None
    return Plan(
        enabling=tuple(Planned(step, enabled or step.name in passed) for step in steps),
        disabling=(
            Planned(CLOSE, closed),
            Planned(HOLD, held),
            Planned(DRAIN, closed and not in_flight),
        ),
        in_flight=in_flight,
    )
