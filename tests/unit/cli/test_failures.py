"""What was not found leads to the list of its own kind."""

from __future__ import annotations

import pytest

from tests.unit.cli.test_commands import INSTALL, Api, Line, api, error, mesh, one_line

__all__ = ["api", "mesh"]


@pytest.mark.parametrize(
    ("request_line", "line", "hint"),
    [
        (
            "DELETE /api/agents/ada/vault/nope",
            ("vault", "delete", "nope", "--agent", "ada"),
            "mesh vault list --agent ada",
        ),
        (
            "GET /api/agents/nobody/vault",
            ("vault", "list", "--agent", "nobody"),
            "mesh agent list",
        ),
        ("GET /api/agents/nobody", ("agent", "show", "nobody"), "mesh agent list"),
        ("GET /api/runs/run_1", ("run", "show", "run_1"), "mesh run list"),
        ("GET /api/explain/msg_1", ("explain", "msg_1"), "mesh run list"),
        ("POST /api/outbox/out_1/replay", ("outbox", "replay", "out_1"), "mesh outbox list"),
        (
            f"POST /api/connectors/{INSTALL}/outbox/replay",
            ("outbox", "replay", "--connector", INSTALL, "--yes"),
            "mesh connector list",
        ),
        (
            "GET /api/conversations/conv_1",
            ("conversation", "show", "conv_1"),
            "mesh conversation list",
        ),
    ],
)
def test_what_was_not_found_leads_to_its_own_list(
    mesh: Line, api: Api, request_line: str, line: tuple[str, ...], hint: str
) -> None:
    api.on(request_line, 404, error("not_found", "there is no such thing"))
    code, _, err = mesh(*line)
    assert (code, one_line(err)) == (1, f"mesh: there is no such thing; see: {hint}\n")
