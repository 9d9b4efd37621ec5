"""What must survive: the table, its indexes, the keys and the queues."""

from __future__ import annotations

from infra import topology
from infra.settings import Environment
from tests.infra.reading import Reading


def _table(reading: Reading) -> dict[str, object]:
    (table,) = reading.resources("AWS::DynamoDB::Table", stateful=True).values()
    return dict(table)


def test_the_table_has_the_keys_indexes_and_ttl_of_the_topology(reading: Reading) -> None:
    table = _table(reading)
    described = topology.TABLE
    assert table["KeySchema"] == [
        {"AttributeName": described.hash_key, "KeyType": "HASH"},
        {"AttributeName": described.range_key, "KeyType": "RANGE"},
    ]
    assert table["TimeToLiveSpecification"] == {"AttributeName": described.ttl, "Enabled": True}
    indexes = {i["IndexName"]: i for i in table["GlobalSecondaryIndexes"]}  # type: ignore[attr-defined]
    assert {i.name for i in described.indexes} == set(indexes)
    types = {a["AttributeName"]: a["AttributeType"] for a in table["AttributeDefinitions"]}  # type: ignore[attr-defined]
    for index in described.indexes:
        assert indexes[index.name]["Projection"] == {"ProjectionType": "KEYS_ONLY"}
        assert [k["AttributeName"] for k in indexes[index.name]["KeySchema"]] == [
            index.hash_key,
            index.range_key,
        ]
        assert types[index.range_key] == ("N" if index.range_is_number else "S")


def test_the_table_is_paid_by_request_and_can_be_restored_to_any_second(reading: Reading) -> None:
    table = _table(reading)
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


def test_the_table_is_sealed_by_a_key_of_its_own(reading: Reading) -> None:
    table = _table(reading)
    key = table["SSESpecification"]["KMSMasterKeyId"]["Fn::GetAtt"][0]  # type: ignore[index]
    aliases = reading.resources("AWS::KMS::Alias", stateful=True).values()
    (alias,) = [a for a in aliases if a["AliasName"] == f"alias/mesh-{reading.name}-table"]
    assert alias["TargetKeyId"]["Fn::GetAtt"][0] == key
    assert len({a["TargetKeyId"]["Fn::GetAtt"][0] for a in aliases}) == 3


def test_what_an_environment_keeps_its_table_keeps(
    reading: Reading, known: dict[str, Environment]
) -> None:
    settings = known[reading.name]
    (table,) = [r for r in reading.stateful.values() if r["Type"] == "AWS::DynamoDB::Table"]
    assert table["DeletionPolicy"] == ("Retain" if settings.keep_data else "Delete")
    assert table["Properties"]["DeletionProtectionEnabled"] is settings.deletion_protection


def test_production_is_protected_from_deletion(known: dict[str, Environment]) -> None:
    for name in ("staging", "prod"):
        assert known[name].deletion_protection
        assert known[name].keep_data


def test_keys_rotate_are_kept_and_only_break_glass_takes_one_away(reading: Reading) -> None:
    for key in [r for r in reading.stateful.values() if r["Type"] == "AWS::KMS::Key"]:
        assert key["DeletionPolicy"] == "Retain"
        assert key["Properties"]["EnableKeyRotation"] is True
        denied = [s for s in key["Properties"]["KeyPolicy"]["Statement"] if s["Effect"] == "Deny"]
        assert [sorted(s["Action"]) for s in denied] == [
            ["kms:DisableKey", "kms:ScheduleKeyDeletion"]
        ]
        assert list(denied[0]["Condition"]) == ["ArnNotEquals"]


def test_taking_a_key_away_is_told_at_once(reading: Reading) -> None:
    (rule,) = reading.resources("AWS::Events::Rule", stateful=True).values()
    detail = rule["EventPattern"]["detail"]
    assert {"DisableKey", "ScheduleKeyDeletion"} <= set(detail["eventName"])
    (topic,) = reading.resources("AWS::SNS::Topic", stateful=True)
    assert [t["Arn"] for t in rule["Targets"]] == [{"Ref": topic}]


def test_each_queue_has_its_dead_letter_queue_and_the_times_of_the_topology(
    reading: Reading,
) -> None:
    queues = {
        q["QueueName"]: q for q in reading.resources("AWS::SQS::Queue", stateful=True).values()
    }
    assert len(queues) == 2 * len(topology.QUEUES)
    for queue in topology.QUEUES:
        made = queues[f"mesh-{reading.name}-{queue.physical_name}"]
        dead = queues[f"mesh-{reading.name}-{queue.dead_name}"]
        assert made["VisibilityTimeout"] == queue.visibility_s
        assert made["RedrivePolicy"]["maxReceiveCount"] == queue.max_receives
        assert dead["MessageRetentionPeriod"] == queue.dead_retention_s
        assert made["SqsManagedSseEnabled"] is dead["SqsManagedSseEnabled"] is True


def test_fifo_queues_work_per_group_and_content_decides_nothing(reading: Reading) -> None:
    queues = {
        q["QueueName"]: q for q in reading.resources("AWS::SQS::Queue", stateful=True).values()
    }
    for queue in topology.QUEUES:
        made = queues[f"mesh-{reading.name}-{queue.physical_name}"]
        if queue.fifo:
            assert made["FifoQueue"] is True
            assert made["ContentBasedDeduplication"] is False
            assert made["DeduplicationScope"] == "messageGroup"
            assert made["FifoThroughputLimit"] == "perMessageGroupId"
        else:
            assert "FifoQueue" not in made


def test_a_queue_stays_hidden_for_longer_than_its_function_runs() -> None:
    for function in topology.FUNCTIONS:
        for name in function.queues:
            assert topology.queue(name).visibility_s > function.timeout_s
