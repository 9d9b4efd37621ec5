"""A restored table takes the place of the stack's own, and in standby nothing but operators and
their long changes work."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from infra import stacks, topology  # noqa: F401  # stacks names the Node that jsii starts
from infra.settings import environments
from tests.infra.conftest import StandInCode
from tests.infra.reading import Reading, listed, text

RESTORED = "mesh-dev-restored-2026-11-30"
STANDS_STILL = {"generic_ingress", "turn_worker", "outbox_worker", "sweep_due"}


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> object:
    """`dev` between a restore and its finish."""
    from aws_cdk import App

    from infra import app

    made = App(outdir=str(tmp_path_factory.mktemp("cdk.out")), analytics_reporting=False)
    restored = replace(environments({})["dev"], restored_table=RESTORED, standby=True)
    app.add(made, restored, StandInCode(tmp_path_factory.mktemp("code")))
    return made.synth()


@pytest.fixture(scope="module")
def between(assembly: object) -> Reading:
    return Reading.of(assembly, "dev")


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reading, dict[str, object]]:
    """`dev` as ever, and what its stateful stack gives the other."""
    from aws_cdk import App

    from infra import app

    made = App(outdir=str(tmp_path_factory.mktemp("cdk.out")), analytics_reporting=False)
    app.add(made, environments({})["dev"], StandInCode(tmp_path_factory.mktemp("code")))
    synthesized = made.synth()
    return Reading.of(synthesized, "dev"), _given(synthesized)


def _given(assembly: object) -> dict[str, object]:
    stack = assembly.get_stack_by_name("mesh-dev-stateful")  # type: ignore[attr-defined]  # jsii's
    outputs: dict[str, object] = stack.template["Outputs"]
    return outputs


def test_every_function_uses_the_restored_table_and_may_use_no_other(between: Reading) -> None:
    for function in topology.FUNCTIONS:
        assert between.variables(function)["MESH_TABLE"] == RESTORED
        for statement in between.statements(function):
            if statement.get("Sid") in ("UseTheTable", "QueryTheIndexes", "LeaveAuditRowsAlone"):
                for resource in listed(statement["Resource"]):
                    assert f"table/{RESTORED}" in text(resource)


def test_the_own_table_stays_and_is_given_until_the_other_stack_has_let_go(
    between: Reading, ordinary: tuple[Reading, dict[str, object]], assembly: object
) -> None:
    before, given = ordinary
    tables = [r.resources("AWS::DynamoDB::Table", stateful=True) for r in (before, between)]
    assert tables[0] == tables[1]
    of_table = {name for name, value in given.items() if "Table" in json.dumps(value)}
    assert of_table <= _given(assembly).keys()


def test_in_standby_only_operators_and_their_long_changes_work(
    between: Reading, ordinary: tuple[Reading, dict[str, object]]
) -> None:
    for reading, still in ((between, STANDS_STILL), (ordinary[0], set())):
        stopped = set()
        for function in topology.FUNCTIONS:
            if reading.function(function).get("ReservedConcurrentExecutions") == 0:
                stopped.add(function.name)
        assert stopped == still
        sources = reading.resources("AWS::Lambda::EventSourceMapping").values()
        idle = {text(source["FunctionName"]) for source in sources if not source["Enabled"]}
        assert len(idle) == (2 if still else 0)
        (schedule,) = reading.resources("AWS::Scheduler::Schedule").values()
        assert schedule["State"] == ("DISABLED" if still else "ENABLED")
