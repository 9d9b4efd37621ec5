"""Owns how a path's install is found, for every route that names one.

Refuses to tell another's install from one that is missing.
"""

from __future__ import annotations

from mesh.control.agents import not_found
from mesh.operator.route import Call
from mesh.records.install import Install, InstallState


def install_of(call: Call) -> Install:
    """The install of the path's id. Raises `not_found`, the same where it is not the caller's."""
    install = call.plane.installs.by_id(call.path["id"])
    if (
        install is None
        or install.state is InstallState.DELETED
        or not call.principal.reaches(install.agent_id)
    ):
        raise not_found()
    return install
