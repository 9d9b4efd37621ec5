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

TABLE_ACTIONS: Final = {
    Allow.READ: ("GetItem", "BatchGetItem", "Query"),
    Allow.WRITE: ("PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
    Allow.APPEND_AUDIT: ("PutItem",),
    Allow.INDEXES: ("Query",),
}

SECRETS_ACTIONS: Final = {
    Secrets.OPEN: "kms:Decrypt",
    Secrets.SEAL: "kms:GenerateDataKey",
    Secrets.SEAL_VALUES: "kms:GenerateDataKey",
}

SECRETS_STATEMENTS: Final = (
    ("WrapSecrets", INSTANCE_CONTEXT, frozenset({Secrets.OPEN, Secrets.SEAL})),
    ("WrapValues", VALUE_CONTEXT, frozenset({Secrets.SEAL_VALUES})),
)
"""Name, demanded encryption context, and what is allowed under it."""


def statements(function: Function, state: Stateful) -> Iterator[iam.PolicyStatement]:
    """The statements of the function's role, logs and traces aside."""
    yield from _table(function, state)
    if function.rings:
        yield iam.PolicyStatement(
            sid="RingTheseQueues",
            actions=["sqs:SendMessage"],
            resources=[state.queues[name].queue_arn for name in function.rings],
        )
    for sid, context, of_it in SECRETS_STATEMENTS:
        if granted := function.secrets & of_it:
            yield iam.PolicyStatement(
                sid=sid,
                actions=sorted(SECRETS_ACTIONS[allowed] for allowed in granted),
                resources=[state.secrets_key.key_arn],
                conditions={
                    "StringEquals": {
                        f"kms:EncryptionContext:{name}": value for name, value in context.items()
                    }
                },
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
