"""The table's own promises, over the embedded DynamoDB."""

from __future__ import annotations

from infra.local.aws import LocalAws
from mesh.storage.keys import Key
from mesh.storage.table import Table
from mesh.storage.writes import put
from tests.fakes.time import SeededRandom, SimulatedClock


def test_any_number_of_items_is_read_by_key_a_hundred_a_call() -> None:
    clock = SimulatedClock()
    aws = LocalAws(clock=clock, seed=1)
    aws.create_table("mesh")
    table = Table(aws.session().create_client("dynamodb"), "mesh", clock, SeededRandom())
    keys = [Key("AGENTS", f"agent-{number:03d}") for number in range(250)]
    for key in keys:
        table.write(put(key, {"slug": key.sk}))
    with aws.recording() as calls:
        found = table.get_many([*keys, Key("AGENTS", "nobody"), keys[0]])
    assert set(found) == set(keys)
    assert [call.operation for call in calls] == ["BatchGetItem"] * 3
