"""Who may do what: a role holds what the topology grants, and not one action more."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from infra import topology
from infra.stacks import grants
from infra.topology import Allow, Secrets
from mesh.control import connections, instance_key, instance_model_keys, instance_settings, vault
from mesh.storage import keys
from tests.infra.reading import Reading, listed, text

CONTEXTS = {
    "Secrets": instance_key.CONTEXT,
    "Values": {"owner_type": vault.OWNER_TYPE},
    "InstanceValues": {"owner_type": instance_settings.OWNER_TYPE},
}
GRANTED = {
    Secrets.OPEN: {("OpenSecrets", "kms:Decrypt")},
    Secrets.SEAL: {("WrapSecrets", "kms:GenerateDataKey")},
    Secrets.SEAL_VALUES: {("WrapValues", "kms:GenerateDataKey")},
    Secrets.SEAL_INSTANCE_VALUES: {("WrapInstanceValues", "kms:GenerateDataKey")},
    Secrets.REWRAP: {
        (f"{verb}{what}", f"kms:ReEncrypt{way}")
        for verb, way in (("Open", "From"), ("Wrap", "To"))
        for what in CONTEXTS
    },
}
"""The statement and the action of each thing that a function may do with the secrets keys."""
BY_NAME = {secret for secret, _, _ in grants.OPENED_BY_NAME}
"""What is opened under contexts of one name, and not of one owner."""

EVERY = pytest.mark.parametrize("function", topology.FUNCTIONS, ids=lambda f: f.name)


@EVERY
def test_a_function_may_do_to_the_table_what_the_topology_grants(
    reading: Reading, function: topology.Function
) -> None:
    assert reading.allowed(function, "dynamodb") == {
        f"dynamodb:{action}"
        for allowed in function.table
        for action in grants.TABLE_ACTIONS[allowed]
    }


@EVERY
def test_no_function_may_scan_or_touch_the_table_itself(
    reading: Reading, function: topology.Function
) -> None:
    refused = {"Scan", "DeleteTable", "UpdateTable", "PartiQLSelect", "ExportTableToPointInTime"}
    assert not {f"dynamodb:{a}" for a in refused} & reading.allowed(function, "dynamodb")
    assert not [a for a in reading.allowed(function, "dynamodb") if "*" in a]


@EVERY
@pytest.mark.behaviour("audit:settings-write")
def test_no_function_may_change_or_delete_an_audit_row(
    reading: Reading, function: topology.Function
) -> None:
    if not function.table:
        return
    (deny,) = [s for s in reading.statements(function) if s["Effect"] == "Deny"]
    assert {"dynamodb:UpdateItem", "dynamodb:DeleteItem"} <= set(deny["Action"])
    assert deny["Condition"] == {
        "ForAnyValue:StringLike": {"dynamodb:LeadingKeys": [grants.AUDIT_PARTITIONS]}
    }
    may_append = Allow.APPEND_AUDIT in function.table
    assert ("dynamodb:PutItem" in deny["Action"]) is not may_append


def test_audit_rows_lie_where_the_roles_guard_them() -> None:
    partition = keys.audit(0, "01ARZ3NDEKTSV4RRFFQ69G5FAV").pk
    assert partition.startswith(grants.AUDIT_PARTITIONS.removesuffix("*"))


@EVERY
def test_a_function_rings_the_queues_of_the_topology_alone(
    reading: Reading, function: topology.Function
) -> None:
    sends = [
        resource
        for s in reading.statements(function)
        if "sqs:SendMessage" in listed(s["Action"])
        for resource in listed(s["Resource"])
    ]
    assert len(sends) == len(function.rings)


@EVERY
def test_a_function_puts_events_to_the_environments_bus_alone_where_it_tells_of_anything(
    reading: Reading, function: topology.Function
) -> None:
    found = [s for s in reading.statements(function) if "events:PutEvents" in listed(s["Action"])]
    assert bool(found) is function.tells
    for statement in found:
        assert listed(statement["Action"]) == ["events:PutEvents"]
        assert text(statement["Resource"]).endswith(":event-bus/default")
    assert reading.variables(function).get("MESH_EVENT_BUS") == ("default" if found else None)


@EVERY
def test_the_secrets_key_answers_functions_that_are_granted_it_under_meshs_context(
    reading: Reading, function: topology.Function
) -> None:
    found = [s for s in reading.statements(function) if s.get("Sid", "")[4:] in CONTEXTS]
    assert {(s["Sid"], action) for s in found for action in listed(s["Action"])} == {
        each for allowed in function.secrets - BY_NAME for each in GRANTED[allowed]
    }
    for statement in found:
        assert statement["Condition"]["StringEquals"] == {
            f"kms:EncryptionContext:{name}": value
            for name, value in CONTEXTS[statement["Sid"][4:]].items()
        }


@EVERY
def test_models_keys_alone_are_opened_by_the_function_that_asks_models(
    reading: Reading, function: topology.Function
) -> None:
    found = [s for s in reading.statements(function) if s.get("Sid") == "OpenModelKeys"]
    assert bool(found) is (function.name == "turn_worker")
    for statement in found:
        assert listed(statement["Action"]) == ["kms:Decrypt"]
        assert statement["Condition"] == grants.MODEL_KEY_CONDITIONS
    key = vault.model_key_context("agt_1", "openai https://api.openai.com", 1)
    value = vault.value_context("agt_1", "github", 1)
    pattern = grants.MODEL_KEY_CONDITIONS["StringLike"]["kms:EncryptionContext:name"]
    assert isinstance(pattern, str)
    assert fnmatchcase(key.encryption_context()["name"], pattern)
    assert not fnmatchcase(value.encryption_context()["name"], pattern)


@EVERY
@pytest.mark.behaviour("web:apart-from-mcp")
def test_web_providers_keys_alone_are_opened_by_the_functions_that_call_providers(
    reading: Reading, function: topology.Function
) -> None:
    found = [s for s in reading.statements(function) if s.get("Sid") == "OpenProviderKeys"]
    assert bool(found) is (function.name in {"turn_worker", "operator_tools"})
    for statement in found:
        assert listed(statement["Action"]) == ["kms:Decrypt"]
        assert statement["Condition"] == grants.PROVIDER_KEY_CONDITIONS
        assert function.posts_out
    pattern = grants.PROVIDER_KEY_CONDITIONS["StringLike"]["kms:EncryptionContext:name"]
    assert isinstance(pattern, str)
    for owner_id in ("agt_1", connections.INSTANCE_OWNER):
        key = connections.provider_key_context(owner_id, "brave https://api.search.brave.com", 1)
        context = key.encryption_context()
        assert fnmatchcase(context["name"], pattern)
        assert context["owner_type"] in grants.OF_EVERY_OWNER["kms:EncryptionContext:owner_type"]
    for other in (
        vault.model_key_context("agt_1", "openai https://api.openai.com", 1),
        vault.value_context("agt_1", "github", 1),
        vault.value_context("agt_1", "web-key", 1),
    ):
        assert not fnmatchcase(other.encryption_context()["name"], pattern)


@EVERY
def test_bedrocks_models_are_asked_by_turns_alone(
    reading: Reading, function: topology.Function
) -> None:
    asks = reading.allowed(function, "bedrock")
    assert asks == ({"bedrock:InvokeModel"} if function.name == "turn_worker" else set())


def test_the_context_of_every_value_that_is_owned_is_one_that_the_role_allows() -> None:
    for context in (
        vault.value_context("agt_1", "github", 1),
        vault.model_key_context("agt_1", "openai https://api.openai.com", 1),
        connections.provider_key_context("agt_1", "brave https://api.search.brave.com", 1),
    ):
        assert grants.VALUE_CONTEXT.items() <= context.encryption_context().items()
    for ours in (
        instance_model_keys.instance_key_context("openai https://api.openai.com", 1),
        connections.provider_key_context(
            connections.INSTANCE_OWNER, "brave https://api.search.brave.com", 1
        ),
    ):
        assert grants.INSTANCE_VALUE_CONTEXT.items() <= ours.encryption_context().items()


@EVERY
def test_the_tables_key_answers_functions_through_dynamodb_alone(
    reading: Reading, function: topology.Function
) -> None:
    for statement in reading.statements(function):
        if any(a.startswith("kms:") for a in listed(statement["Action"])):
            condition = statement["Condition"]["StringEquals"]
            by_name = statement["Sid"] in {sid for _, sid, _ in grants.OPENED_BY_NAME}
            known = statement["Sid"][4:] in CONTEXTS or by_name
            assert "kms:ViaService" in condition or known


def test_only_the_operators_side_seals_secrets() -> None:
    sealing = {f.name for f in topology.FUNCTIONS if Secrets.SEAL in f.secrets}
    assert sealing == {"operator_connectors", "operator_bootstrap", "operator_instance_settings"}
    values = {f.name for f in topology.FUNCTIONS if Secrets.SEAL_VALUES in f.secrets}
    assert values == {"operator_vault", "operator_web_access"}
    ours = {f.name for f in topology.FUNCTIONS if Secrets.SEAL_INSTANCE_VALUES in f.secrets}
    assert ours == {"operator_instance_settings", "operator_web_access"}
    rewrapping = {f.name for f in topology.FUNCTIONS if Secrets.REWRAP in f.secrets}
    assert rewrapping == {"operator_instance"}


def test_the_functions_that_face_the_world_cannot_write_audit_rows() -> None:
    for name in ("generic_ingress", "turn_worker", "outbox_worker", "operator_authorizer"):
        assert Allow.APPEND_AUDIT not in topology.function(name).table
