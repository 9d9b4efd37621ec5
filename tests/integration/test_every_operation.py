"""The operator API against its own document: Schemathesis draws what `docs/openapi.json` allows
and what it forbids, and everybody sends it.

Nothing may answer 5xx, a status that the document does not name, or a body of another shape.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import given, settings, strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from mesh.control.audit import Cause
from mesh.control.jobs import Jobs
from mesh.records.job import JobKind
from mesh.storage import keys
from tests.fakes.egress import answer
from tests.fakes.operators import admin, minted
from tests.fakes.system import System
from tests.fakes.wsgi import Wsgi

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "openapi.json"
SCHEMA: Final = schemathesis.openapi.from_path(str(DOCUMENT))
OPERATIONS: Final = {
    operation.definition.raw["operationId"]: operation
    for operation in (found.ok() for found in SCHEMA.get_all_operations())
}
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
JUDGED: Final = {"simulateMessage"}
"""What answers 200 to a body that breaks its schema: to say what is wrong with it is its use."""
REQUESTS: Final = 8
"""Requests that are drawn for each operation; each is sent by everybody."""


class World:
    """An instance in which everything that a path can name is there."""

    def __init__(self) -> None:
        self.system = System(lag=False)
        self.system.egress.otherwise = answer(200)
        self.app = Wsgi(self.system)
        self.admin = admin(self.system)
        self.tokens: dict[str, str | None] = {
            "nobody": None,
            "viewer": minted(self.admin, "viewer", ["ada"]).token,
            "operator": minted(self.admin, "operator", ["ada"]).token,
            "admin": self.admin.token,
        }
        self.made = self.system.make_install()
        self.ids = {"connectors": self.made.install_id}
        self._talk()
        self._settings()

    def _talk(self) -> None:
        """One message that is answered, and one whose reply waits."""
        for number, status in ((1, 200), (2, 500)):
            self.system.receiver(answer(status))
            said = self.system.say(self.made, "hello", f"m-{number}")
            run_id = said.json()["run_id"]
            self.system.settle()
        conversation = keys.conversation_id(self.made.install_id, "room-9")
        self.ids |= {
            "runs": run_id,
            "explain": run_id,
            "outbox": run_id.replace("run_", "out_"),
            "conversations": conversation,
        }

    def _settings(self) -> None:
        token = self.admin.ok("POST", "/api/operators", {"name": "x", "role": "viewer"})
        self.ids["operators"] = token["id"]
        vault = "/api/agents/ada/vault/github"
        self.admin.ok("PUT", vault, {"value": "canary-of-the-vault"})
        jobs = Jobs(self.system.table, self.system.clock, self.system.ids)
        job = jobs.new(
            next(iter(JobKind)), "ada", Cause("opr_x", "req_x"), agent_id=self.system.agent.agent_id
        )
        self.system.table.write(jobs.order(job))
        self.ids["jobs"] = job.job_id

    def names(self, path: str) -> dict[str, str]:
        """What the names in `path` stand for here; those that stand for nothing are drawn."""
        kind = path.removeprefix("/api/").partition("/")[0]
        known = {"slug": "ada", "name": "github"}
        if kind in self.ids:
            known["id"] = self.ids[kind]
        return {name: value for name, value in known.items() if "{" + name + "}" in path}


def drawn(operation: Any, names: dict[str, str]) -> st.SearchStrategy[Any]:
    """Requests for `operation`: to what is there, as is allowed and as is not; and to anything."""
    modes = [GenerationMode.POSITIVE]
    if operation.body or operation.query or operation.headers:
        modes.append(GenerationMode.NEGATIVE)
    there = [operation.as_strategy(mode, path_parameters=names) for mode in modes]
    return st.one_of(*there, operation.as_strategy(GenerationMode.POSITIVE))


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_answers_everybody_as_its_document_says(name: str) -> None:
    operation, world = OPERATIONS[name], World()
    names = world.names(operation.path)

    @settings(max_examples=REQUESTS)
    @given(drawn(operation, names))
    def hold(case: Any) -> None:
        for role, token in world.tokens.items():
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            with world.system.put_back():
                response = case.call(app=world.app, headers=headers)
            refuses = role == "admin" and name not in JUDGED
            checks = [*CHECKS, negative_data_rejection] if refuses else CHECKS
            case.validate_response(response, checks=checks)

    hold()
