"""Owns what the operator API needs from outside.

Refuses to make a client or to read the environment, and to load what only some functions need: the
composition root hands everything in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.kernel.clock import Clock
from mesh.kernel.ids import Ids, Random
from mesh.kernel.log import Log
from mesh.kernel.settings import Settings
from mesh.storage.queues import Bell
from mesh.storage.table import Table

if TYPE_CHECKING:
    from mesh.control.instance_key import InstanceKeys
    from mesh.engine.watch import Watch
    from mesh.security.egress.contract import Egress
    from mesh.storage.kms import KmsWrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDeps:
    """What an operator function is given."""

    table: Table
    instance_keys: InstanceKeys
    key_wrapper: KmsWrapper
    bell: Bell
    clock: Clock
    ids: Ids
    random: Random
    egress: Callable[[], Egress]
    """Makes the way out; asked by the functions that judge or call an address."""
    watch: Callable[[], Watch]
    """Makes what waits for a call of a tool; asked by the function that makes one."""
    settings: Settings
    log: Log
