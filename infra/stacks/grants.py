"""Owns what each function may do: one role a function, from what the topology says of it.

Refuses by name what no function may ever do: change or delete an audit row, and, for all but those
that write settings, make one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aws_cdk import Stack, aws_iam as iam

from infra.stacks.stateful import Stateful
from infra.topology import TABLE, Allow, Function, Secrets

AUDIT_PARTITIONS: Final = "AUDIT#*"
"""The partitions of audit rows, as `mesh.storage.keys.audit` makes them."""

INSTANCE_CONTEXT: Final = {"mesh": "instance-key"}
"""The encryption context of the instance key (`mesh.control.instance_key`)."""

VALUE_CONTEXT: Final = {"owner_type": "agent"}
"""What the encryption contexts of all values that agents own have in common
(`mesh.control.vault`)."""

INSTANCE_VALUE_CONTEXT: Final = {"owner_type": "instance"}
"""What those of all values that the instance owns have in common
(`mesh.control.instance_model_keys`)."""

OF_EVERY_OWNER: Final = {
    "kms:EncryptionContext:owner_type": [
        VALUE_CONTEXT["owner_type"],
        INSTANCE_VALUE_CONTEXT["owner_type"],
    ]
}

MODEL_KEY_CONDITIONS: Final = {
    "StringEquals": OF_EVERY_OWNER,
    "StringLike": {"kms:EncryptionContext:name": "model-key/*"},
}
"""The encryption contexts of models' keys alone: no value of a vault opens under them."""

PROVIDER_KEY_CONDITIONS: Final = {
    "StringEquals": OF_EVERY_OWNER,
    "StringLike": {"kms:EncryptionContext:name": "web-key/*"},
}
"""Those of web providers' keys alone (`mesh.control.connections`)."""

OPENED_BY_NAME: Final = (
    (Secrets.OPEN_MODEL_KEYS, "OpenModelKeys", MODEL_KEY_CONDITIONS),
    (Secrets.OPEN_PROVIDER_KEYS, "OpenProviderKeys", PROVIDER_KEY_CONDITIONS),
)
"""What is opened by the name of its context, not by its owner alone."""

BEDROCK_MODELS: Final = [
    "arn:aws:bedrock:*::foundation-model/*",
    "arn:aws:bedrock:*:*:inference-profile/*",
    "arn:aws:bedrock:*:*:application-inference-profile/*",
]
"""Which models may be asked is the account's own choice at Bedrock; which an agent asks, its
operator's."""

TABLE_ACTIONS: Final = {
    Allow.READ: ("GetItem", "BatchGetItem", "Query"),
    Allow.WRITE: ("PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
    Allow.APPEND_AUDIT: ("PutItem",),
    Allow.INDEXES: ("Query",),
}

NEWEST_KEY_ACTIONS: Final = {
    Secrets.SEAL: "kms:GenerateDataKey",
    Secrets.SEAL_VALUES: "kms:GenerateDataKey",
    Secrets.SEAL_INSTANCE_VALUES: "kms:GenerateDataKey",
    Secrets.REWRAP: "kms:ReEncryptTo",
}
EVERY_KEY_ACTIONS: Final = {Secrets.OPEN: "kms:Decrypt", Secrets.REWRAP: "kms:ReEncryptFrom"}
"""What each needs of the newest secrets key, and of every one that there has been."""

UNDER_CONTEXTS: Final = (
    ("Secrets", INSTANCE_CONTEXT, frozenset({Secrets.OPEN, Secrets.SEAL, Secrets.REWRAP})),
    ("Values", VALUE_CONTEXT, frozenset({Secrets.SEAL_VALUES, Secrets.REWRAP})),
    (
        "InstanceValues",
        INSTANCE_VALUE_CONTEXT,
        frozenset({Secrets.SEAL_INSTANCE_VALUES, Secrets.REWRAP}),
    ),
)
"""What is wrapped, the encryption context that it demands, and what is allowed under that."""


def statements(
    function: Function, state: Stateful, event_bus: str
) -> Iterator[iam.PolicyStatement]:
    """The statements of the function's role, logs and traces aside."""
    yield from _table(function, state)
    if function.rings:
        yield iam.PolicyStatement(
            sid="RingTheseQueues",
            actions=["sqs:SendMessage"],
            resources=[state.queues[name].queue_arn for name in function.rings],
        )
    if function.tells:
        yield iam.PolicyStatement(
            sid="TellThisBus",
            actions=["events:PutEvents"],
            resources=[
                Stack.of(state).format_arn(
                    service="events", resource="event-bus", resource_name=event_bus
                )
            ],
        )
    if function.asks_bedrock:
        yield iam.PolicyStatement(
            sid="AskModels",
            actions=["bedrock:InvokeModel"],
            resources=BEDROCK_MODELS,
        )
    yield from _secrets(function, state)


def _secrets(function: Function, state: Stateful) -> Iterator[iam.PolicyStatement]:
    for what, context, under_it in UNDER_CONTEXTS:
        for verb, actions, of_keys in (
            ("Wrap", NEWEST_KEY_ACTIONS, [state.secrets_key]),
            ("Open", EVERY_KEY_ACTIONS, state.secrets_keys),
        ):
            allowed = sorted(actions[a] for a in function.secrets & under_it & actions.keys())
            if allowed:
                yield iam.PolicyStatement(
                    sid=f"{verb}{what}",
                    actions=allowed,
                    resources=[key.key_arn for key in of_keys],
                    conditions={
                        "StringEquals": {
                            f"kms:EncryptionContext:{name}": value
                            for name, value in context.items()
                        }
                    },
                )
    for secret, sid, conditions in OPENED_BY_NAME:
        if secret in function.secrets:
            yield iam.PolicyStatement(
                sid=sid,
                actions=["kms:Decrypt"],
                resources=[key.key_arn for key in state.secrets_keys],
                conditions=conditions,
            )


def _table(function: Function, state: Stateful) -> Iterator[iam.PolicyStatement]:
    if not function.table:
        return
    on_table = sorted(
        {
            f"dynamodb:{action}"
            for allowed in function.table - {Allow.INDEXES}
            for action in TABLE_ACTIONS[allowed]
        }
    )
    table = state.table.table_arn
    if on_table:
        yield iam.PolicyStatement(sid="UseTheTable", actions=on_table, resources=[table])
    if Allow.INDEXES in function.table:
        yield iam.PolicyStatement(
            sid="QueryTheIndexes",
            actions=["dynamodb:Query"],
            resources=[f"{table}/index/{index.name}" for index in TABLE.indexes],
        )
    denied = ["dynamodb:UpdateItem", "dynamodb:DeleteItem"]
    if Allow.APPEND_AUDIT not in function.table:
        denied.append("dynamodb:PutItem")
    yield iam.PolicyStatement(
        sid="LeaveAuditRowsAlone",
        effect=iam.Effect.DENY,
        actions=denied,
        resources=[table],
        conditions={"ForAnyValue:StringLike": {"dynamodb:LeadingKeys": [AUDIT_PARTITIONS]}},
    )
    yield iam.PolicyStatement(
        sid="OpenTheTableThroughDynamoDB",
        actions=["kms:Decrypt", "kms:DescribeKey"]
        + (["kms:Encrypt", "kms:GenerateDataKey"] if Allow.WRITE in function.table else []),
        resources=[state.table_key.key_arn],
        conditions={
            "StringEquals": {"kms:ViaService": f"dynamodb.{Stack.of(state).region}.amazonaws.com"}
        },
    )
