"""Owns what must outlive every release: the table, the keys, the queues and where alarms are told.

Refuses to lose any of it with a stack: keys are always kept, and the environment's settings say
whether the table is.
"""

from __future__ import annotations

from aws_cdk import (
    ArnFormat,
    Duration,
    RemovalPolicy,
    Stack,
    aws_dynamodb as dynamodb,
    aws_events as events,
    aws_events_targets as targets,
    aws_iam as iam,
    aws_kms as kms,
    aws_sns as sns,
    aws_sns_subscriptions as subscriptions,
    aws_sqs as sqs,
)
from constructs import Construct

from infra import topology
from infra.settings import Environment
from infra.stacks.place import of

KEY_CALLS_WATCHED = ("DisableKey", "ScheduleKeyDeletion", "DisableKeyRotation", "PutKeyPolicy")


class Stateful(Stack):
    """The table, its key, the key that wraps secrets, the queues, and the alarm topic."""

    def __init__(self, scope: Construct, environment: Environment) -> None:
        super().__init__(
            scope,
            f"{environment.prefix}-stateful",
            env=of(environment),
            termination_protection=environment.deletion_protection,
            description=f"Mesh ({environment.name}): table, keys, queues",
        )
        self.environment_settings = environment
        self._kept = RemovalPolicy.RETAIN if environment.keep_data else RemovalPolicy.DESTROY

        self.table_key = self._key("TableKey", "table", "wraps the table's own keys")
        self.secrets_keys = [
            self._key(f"SecretsKey{number}", f"secrets-{number}", "wraps Mesh's data keys")
            if number > 1
            else self._key("SecretsKey", "secrets", "wraps Mesh's data keys")
            for number in range(1, environment.secrets_keys + 1)
        ]
        self.secrets_key = self.secrets_keys[-1]
        self.operations_key = self._key("OperationsKey", "operations", "for logs and alarms")
        self._let_logs_and_alarms_use(self.operations_key)

        self.table = self._table_in_use(self._table())
        self.queues = {queue.name: self._queue(queue) for queue in topology.QUEUES}
        self.alarm_topic = self._alarm_topic()
        self._watch_keys()

    def _key(self, construct_id: str, name: str, purpose: str) -> kms.Key:
        """A key with yearly rotation that only the break-glass role may take away."""
        environment = self.environment_settings
        key = kms.Key(
            self,
            construct_id,
            alias=f"alias/{environment.prefix}-{name}",
            description=f"Mesh ({environment.name}): {purpose}",
            enable_key_rotation=True,
            pending_window=Duration.days(30),
            removal_policy=RemovalPolicy.RETAIN,
        )
        key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="OnlyBreakGlassTakesTheKeyAway",
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["kms:DisableKey", "kms:ScheduleKeyDeletion"],
                resources=["*"],
                conditions={
                    "ArnNotEquals": {
                        "aws:PrincipalArn": self.format_arn(
                            service="iam",
                            region="",
                            resource="role",
                            resource_name=environment.break_glass_role,
                        )
                    }
                },
            )
        )
        return key

    def _let_logs_and_alarms_use(self, key: kms.Key) -> None:
        logs = iam.ServicePrincipal(f"logs.{self.region}.amazonaws.com")
        key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="LogsOfThisAccount",
                principals=[logs],
                actions=[
                    "kms:Encrypt",
                    "kms:Decrypt",
                    "kms:ReEncrypt*",
                    "kms:GenerateDataKey*",
                    "kms:DescribeKey",
                ],
                resources=["*"],
                conditions={
                    "ArnLike": {
                        "kms:EncryptionContext:aws:logs:arn": self.format_arn(
                            service="logs",
                            resource="log-group",
                            resource_name="*",
                            arn_format=ArnFormat.COLON_RESOURCE_NAME,
                        )
                    }
                },
            )
        )
        for sid, service, conditions in (
            ("Alarms", "cloudwatch", {"StringEquals": {"aws:SourceAccount": self.account}}),
            # EventBridge names no source account when it has a topic's key opened.
            ("Rules", "events", None),
        ):
            key.add_to_resource_policy(
                iam.PolicyStatement(
                    sid=sid,
                    principals=[iam.ServicePrincipal(f"{service}.amazonaws.com")],
                    actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                    resources=["*"],
                    conditions=conditions,
                )
            )

    def _table(self) -> dynamodb.Table:
        described = topology.TABLE
        table = dynamodb.Table(
            self,
            "Table",
            table_name=self.environment_settings.prefix,
            partition_key=_string(described.hash_key),
            sort_key=_string(described.range_key),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED,
            encryption_key=self.table_key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=self.environment_settings.deletion_protection,
            time_to_live_attribute=described.ttl,
            removal_policy=self._kept,
        )
        for index in described.indexes:
            table.add_global_secondary_index(
                index_name=index.name,
                partition_key=_string(index.hash_key),
                sort_key=dynamodb.Attribute(
                    name=index.range_key,
                    type=dynamodb.AttributeType.NUMBER
                    if index.range_is_number
                    else dynamodb.AttributeType.STRING,
                ),
                projection_type=dynamodb.ProjectionType.KEYS_ONLY,
            )
        return table

    def _table_in_use(self, own: dynamodb.Table) -> dynamodb.ITable:
        """The stack's own table, or the restored one that the settings put in its place."""
        restored = self.environment_settings.restored_table
        if restored is None:
            return own
        # The other stack takes these until it is deployed anew, and what is taken cannot go.
        self.export_value(own.table_arn)
        self.export_value(own.table_name)
        return dynamodb.Table.from_table_name(self, "RestoredTable", restored)

    def _queue(self, queue: topology.Queue) -> sqs.Queue:
        """The queue with its dead-letter queue. Each ring is new: content decides nothing."""
        prefix = self.environment_settings.prefix
        dead = sqs.Queue(
            self,
            f"{queue.name.title()}Dead",
            queue_name=f"{prefix}-{queue.dead_name}",
            retention_period=Duration.seconds(queue.dead_retention_s),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            removal_policy=self._kept,
            fifo=queue.fifo or None,  # CloudFormation refuses a false one
        )
        return sqs.Queue(
            self,
            queue.name.title(),
            queue_name=f"{prefix}-{queue.physical_name}",
            visibility_timeout=Duration.seconds(queue.visibility_s),
            retention_period=Duration.seconds(queue.retention_s),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=queue.max_receives),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            removal_policy=self._kept,
            fifo=queue.fifo or None,
            content_based_deduplication=False if queue.fifo else None,
            deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP if queue.fifo else None,
            fifo_throughput_limit=sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID
            if queue.fifo
            else None,
        )

    def _alarm_topic(self) -> sns.Topic:
        topic = sns.Topic(
            self,
            "Alarms",
            topic_name=f"{self.environment_settings.prefix}-alarms",
            master_key=self.operations_key,
            enforce_ssl=True,
        )
        for service in ("cloudwatch", "events"):
            topic.grant_publish(iam.ServicePrincipal(f"{service}.amazonaws.com"))
        if self.environment_settings.alarm_email:
            topic.add_subscription(
                subscriptions.EmailSubscription(self.environment_settings.alarm_email)
            )
        return topic

    def _watch_keys(self) -> None:
        """Whoever takes a key away stops everything: that is told at once, tried or done."""
        events.Rule(
            self,
            "KeyTakenAway",
            description="A key of Mesh was disabled, or its policy, rotation or deletion touched",
            event_pattern=events.EventPattern(
                source=["aws.kms"],
                detail_type=["AWS API Call via CloudTrail"],
                detail={
                    "eventSource": ["kms.amazonaws.com"],
                    "eventName": list(KEY_CALLS_WATCHED),
                    "resources": {
                        "ARN": [
                            key.key_arn
                            for key in (self.table_key, *self.secrets_keys, self.operations_key)
                        ]
                    },
                },
            ),
            targets=[targets.SnsTopic(self.alarm_topic)],
        )


def _string(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
