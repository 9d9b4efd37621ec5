"""`mesh run cancel`: what is asked and what is said."""

from __future__ import annotations

import json

from tests.unit.cli.test_commands import Api, Line, api, error, mesh, one_line

__all__ = ["api", "mesh"]


def test_a_run_is_cancelled_and_a_run_that_ended_is_told_in_one_line(mesh: Line, api: Api) -> None:
    path = "POST /api/runs/run_1/cancel"
    api.on(path, 200, {"run_id": "run_1", "status": "cancelled"})
    code, out, _ = mesh("run", "cancel", "run_1")
    assert (code, out.splitlines()[0]) == (0, "run_1 is cancelled")
    assert json.loads(mesh("run", "cancel", "run_1", "--json")[1])["status"] == "cancelled"
    api.on(path, 409, error("state_conflict", "the run has ended; look at it again"))
    code, _, err = mesh("run", "cancel", "run_1")
    assert code == 1
    assert "the run has ended" in one_line(err)
