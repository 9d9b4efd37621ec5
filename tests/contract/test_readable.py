"""Readable before it runs: plans have no effect, and say what would be done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.test_operator_api import Instance
from tests.fakes.egress import answer
from tests.fakes.operators import error_of
from tests.fakes.system import URL


def rows(instance: Instance) -> list[dict[str, Any]]:
    """Every row as it is stored."""
    return sorted(instance.system.aws.items(), key=lambda item: (item["pk"], item["sk"]))


def steps(part: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(step["name"], step["done"]) for step in part["steps"]]


@pytest.mark.behaviour("enablement:readable-first")
def test_a_plan_tells_the_very_steps_that_enabling_then_runs_and_does_nothing() -> None:
    instance = Instance()
    made = instance.install(enable=False)
    path = f"/api/connectors/{made.install_id}"
    before = rows(instance)
    plan = instance.viewer.ok("POST", f"{path}/plan")
    assert rows(instance) == before
    assert instance.system.calls() == []
    assert plan["state"] == "disabled"
    assert steps(plan["enable"]) == [("check_url", False), ("ping", False), ("open", False)]
    assert all(step["description"] for step in plan["enable"]["steps"])
    assert plan["enable"]["next"].endswith("runs: check_url, ping, open")
    skipped = instance.viewer.ok("POST", f"{path}/plan", {"skip_ping": True})
    assert steps(skipped["enable"]) == [("check_url", False), ("open", False)]
    instance.operator.ok("POST", f"{path}/enable")
    after = instance.viewer.ok("POST", f"{path}/plan")
    assert {done for _, done in steps(after["enable"])} == {True}
    assert after["enable"]["next"].startswith("nothing:")


def test_a_plan_of_a_connector_without_a_url_only_opens() -> None:
    instance = Instance()
    made = instance.install(delivery_url=None, enable=False)
    plan = instance.viewer.ok("POST", f"/api/connectors/{made.install_id}/plan")
    assert steps(plan["enable"]) == [("open", False)]


def test_a_plan_after_a_failed_enabling_says_why_and_what_is_left() -> None:
    instance = Instance()
    instance.system.receiver(answer(401))
    made = instance.install()
    plan = instance.viewer.ok("POST", f"/api/connectors/{made.install_id}/plan")
    assert plan["state"] == "error"
    assert "401" in plan["state_reason"]
    assert ("ping", False) in steps(plan["enable"])


def test_a_plan_of_disabling_tells_what_is_in_flight_and_what_waits() -> None:
    instance = Instance()
    made = instance.install()
    instance.system.receiver(answer(500))
    instance.answered(made)
    path = f"/api/connectors/{made.install_id}"
    seen: list[dict[str, Any]] = []

    def look() -> None:
        seen.append(instance.viewer.ok("POST", f"{path}/plan")["disable"])

    look()
    assert (seen[0]["in_flight"], seen[0]["waiting"]) == (0, 1)
    assert steps(seen[0]) == [("close", False), ("hold", False), ("drain", False)]
    instance.system.table.write(slot_taken(instance, made.install_id))
    look()
    assert (seen[1]["in_flight"], seen[1]["in_flight_until"] is None) == (1, False)
    instance.system.clock.forward(60)
    instance.operator.ok("POST", f"{path}/disable")
    look()
    assert (seen[2]["in_flight"], steps(seen[2])[0]) == (0, ("close", True))
    assert {done for _, done in steps(seen[2])} == {True}


def slot_taken(instance: Instance, install_id: str) -> Any:
    """A write that takes a slot of an install's endpoint, as a delivery does."""
    from mesh.storage import keys
    from mesh.storage.writes import update

    until = instance.system.clock.now_ms() + 30_000
    return update(keys.delivery(install_id), "SET #slot_0 = :until", until=until)


def test_a_plan_takes_nothing_else_and_is_of_ones_own_connectors_alone() -> None:
    instance = Instance()
    made = instance.install("ada", delivery_url=URL)
    path = f"/api/connectors/{made.install_id}/plan"
    assert instance.operator("POST", path).status == 404
    wrong = instance.admin("POST", path, {"what": 1})
    assert (wrong.status, error_of(wrong)) == (422, "invalid_request")
