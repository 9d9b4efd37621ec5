"""Owns what people are woken for: work that waits, sweeps that stopped, errors, throttles.

Refuses to watch doorbells where rows can be watched: a queue may be empty while a run waits, so the
ages come from the sweep, which reads the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import (
    Duration,
    aws_cloudwatch as cloudwatch,
    aws_cloudwatch_actions as actions,
    aws_logs as logs,
)

from infra import topology
from mesh.kernel.metrics import NAMESPACE, Metric

if TYPE_CHECKING:
    from infra.stacks.stateless import Stateless

MINUTE: Final = Duration.minutes(1)


DIMENSION: Final = "service"
"""What Powertools calls the environment in each figure (`mesh.kernel.metrics.EmfMetrics`)."""


def add(stack: Stateless) -> None:
    """All alarms of an environment, each of which tells the alarm topic."""
    _Alarms(stack).all()


class _Alarms:
    def __init__(self, stack: Stateless) -> None:
        self._stack = stack
        self._environment = stack.environment_settings
        self._action = actions.SnsAction(stack.state.alarm_topic)

    def all(self) -> None:
        self._sweep()
        self._dead_letters()
        self._functions()
        self._gateways()
        self._table()

    def _alarm(
        self,
        construct_id: str,
        what_to_do: str,
        metric: cloudwatch.IMetric,
        *,
        over: float,
        minutes: int = 1,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
        below: bool = False,
    ) -> None:
        alarm = cloudwatch.Alarm(
            self._stack,
            construct_id,
            alarm_name=f"{self._environment.prefix}-{construct_id}",
            alarm_description=what_to_do,
            metric=metric,
            threshold=over,
            evaluation_periods=minutes,
            comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
            if below
            else cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=missing,
        )
        alarm.add_alarm_action(self._action)
        alarm.add_ok_action(self._action)

    def _told(self, metric: Metric, statistic: str) -> cloudwatch.IMetric:
        """A figure that the sweep tells on its standard output, at no cost of a call."""
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=metric.value,
            dimensions_map={DIMENSION: self._environment.name},
            statistic=statistic,
            period=MINUTE,
        )

    def _sweep(self) -> None:
        self._alarm(
            "sweep-stopped",
            "No sweep for three minutes: nothing heals what crashed. See sweep_due's log.",
            self._told(Metric.SWEEP_HEARTBEAT, "Sum"),
            over=1,
            below=True,
            minutes=3,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )
        self._alarm(
            "oldest-waiting-run",
            "A run has waited too long: look at turn_worker's errors and its concurrency.",
            self._told(Metric.OLDEST_WAITING_RUN_AGE_S, "Maximum"),
            over=self._environment.waiting_run_age_s_alarm,
            minutes=3,
        )
        self._alarm(
            "oldest-due-entry",
            "A delivery is overdue: look at outbox_worker's errors and its concurrency.",
            self._told(Metric.OLDEST_DUE_ENTRY_AGE_S, "Maximum"),
            over=self._environment.due_entry_age_s_alarm,
            minutes=3,
        )

    def _dead_letters(self) -> None:
        for name, queue in self._stack.state.queues.items():
            dead = queue.dead_letter_queue
            if dead is None:
                raise ValueError(f"the queue {name} has no dead-letter queue")
            self._alarm(
                f"{name}-dead",
                "A doorbell failed too often; the work itself is in the table, and goes on.",
                dead.queue.metric_approximate_number_of_messages_visible(
                    period=MINUTE, statistic="Maximum"
                ),
                over=0,
            )
            self._alarm(
                f"{name}-backlog",
                "Doorbells pile up: raise the workers' concurrency, or find who floods.",
                queue.metric_approximate_number_of_messages_visible(
                    period=MINUTE, statistic="Maximum"
                ),
                over=self._environment.backlog_alarm,
                minutes=5,
            )

    def _functions(self) -> None:
        for name, function in self._stack.functions.items():
            self._alarm(
                f"{name}-errors",
                "The function crashed or ran out of time: see its log by request id.",
                function.metric_errors(period=MINUTE, statistic="Sum"),
                over=0,
                minutes=2,
            )
            self._alarm(
                f"{name}-throttles",
                "The function's concurrency is used up: raise it, or the account's quota.",
                function.metric_throttles(period=MINUTE, statistic="Sum"),
                over=0,
                minutes=3,
            )

    def _gateways(self) -> None:
        for api, http_api in self._stack.apis.items():
            self._alarm(
                f"{api}-server-errors",
                "Requests end in 5xx: see the access log's integration error.",
                http_api.metric_server_error(period=MINUTE, statistic="Sum"),
                over=5,
                minutes=3,
            )
        unproven = logs.MetricFilter(
            self._stack,
            "UnprovenFilter",
            log_group=self._stack.access_logs[topology.Api.INGRESS],
            filter_pattern=logs.FilterPattern.number_value("$.status", "=", 401),
            metric_namespace=f"{NAMESPACE}/{self._environment.name}",
            metric_name="UnprovenRequests",
            metric_value="1",
        )
        self._alarm(
            "unproven-requests",
            "Many requests do not verify: a flood, or a caller whose secret or clock is wrong.",
            unproven.metric(statistic="Sum", period=MINUTE),
            over=self._environment.unproven_per_minute_alarm,
            minutes=5,
        )

    def _table(self) -> None:
        table = self._stack.state.table
        self._alarm(
            "table-write-throttles",
            "Writes to the table are throttled: look for one hot key, then at the quota.",
            cloudwatch.Metric(
                namespace="AWS/DynamoDB",
                metric_name="WriteThrottleEvents",
                dimensions_map={"TableName": table.table_name},
                statistic="Sum",
                period=MINUTE,
            ),
            over=0,
            minutes=3,
        )
