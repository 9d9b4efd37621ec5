"""Owns how an enabling that stopped short goes on: its worker died, or its request ran out of time.

Refuses to begin one: it runs the steps that are left of what an operator ordered, fenced by that
enabling's own token.
"""

from __future__ import annotations

from mesh.control.audit import Cause
from mesh.control.enablement import Enablement, Provisioner
from mesh.control.installs import Installs
from mesh.kernel.errors import Conflict
from mesh.kernel.ids import Ids
from mesh.kernel.log import Log
from mesh.records.install import InstallState

ACTOR = "mesh"
"""Who is written down as having gone on with it."""


class Enabler:
    """Goes on with enablings."""

    def __init__(
        self,
        installs: Installs,
        enablement: Enablement,
        provisioner: Provisioner,
        ids: Ids,
        log: Log,
    ) -> None:
        self._installs = installs
        self._enablement = enablement
        self._provisioner = provisioner
        self._ids = ids
        self._log = log

    def work(self, install_id: str, _stop_at_ms: int) -> None:
        """Runs the steps that are left. Raises Failed; then the sweep has it tried again."""
        whole = self._installs.find_whole(install_id)
        if whole is None or whole.install.state is not InstallState.ENABLING:
            return
        try:
            reached = self._enablement.go_on(
                whole, self._provisioner, Cause(ACTOR, self._ids.mint("req"))
            )
        except Conflict:
            return  # another change came between; whoever made it looks on
        self._log(
            "connector.enabled_late", install_id=install_id, state=reached.install.state.value
        )
