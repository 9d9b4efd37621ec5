"""Owns what can be made again from the repository: layers, functions, the two gateways, triggers.

Refuses to name a function, a route, a queue or a grant of its own: all of them come from
`infra.topology`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from aws_cdk import (
    CfnOutput,
    Duration,
    Fn,
    RemovalPolicy,
    Stack,
    aws_apigatewayv2 as apigateway,
    aws_apigatewayv2_authorizers as authorizers,
    aws_apigatewayv2_integrations as integrations,
    aws_iam as iam,
    aws_lambda as lambda_,
    aws_lambda_event_sources as sources,
    aws_logs as logs,
    aws_scheduler as scheduler,
)
from constructs import Construct

from infra import topology
from infra.settings import Environment, Throttle
from infra.stacks import alarms, grants
from infra.stacks.place import of
from infra.stacks.stateful import Stateful

UNPROVEN_ROUTES = frozenset({"/healthz"})
"""Routes of the operator API that need no token; the gateway does not ask the authorizer there."""

ACCESS_LOG_FIELDS = {
    "requestId": "$context.requestId",
    "requestTime": "$context.requestTime",
    "httpMethod": "$context.httpMethod",
    "routeKey": "$context.routeKey",
    "status": "$context.status",
    "protocol": "$context.protocol",
    "responseLength": "$context.responseLength",
    "responseLatency": "$context.responseLatency",
    "integrationLatency": "$context.integrationLatency",
    "integrationError": "$context.integrationErrorMessage",
    "ip": "$context.identity.sourceIp",
}
"""What is kept of a request at the gateway: never a header, a path as it came, or a body."""


HANDLER = "handler.handler"
"""Each function's folder has one module, `handler`, with one function, `handler`."""

NOT_SHIPPED = ["**/__pycache__", "**/*.pyc", "**/*.egg-info", "**/*.md", "python/mesh/operator/cli"]
"""What stays out of functions and layers; the operator's command line runs elsewhere."""


class Code(Protocol):
    """Where the code of functions and layers lies."""

    def function(self, name: str) -> Path: ...
    def layer(self, name: str) -> Path: ...


class Stateless(Stack):
    """Every function with its layers, role, logs and trigger; the gateways; the alarms."""

    def __init__(
        self, scope: Construct, environment: Environment, state: Stateful, code: Code
    ) -> None:
        super().__init__(
            scope,
            f"{environment.prefix}-stateless",
            env=of(environment),
            description=f"Mesh ({environment.name}): functions, gateways, triggers, alarms",
        )
        self.environment_settings = environment
        self.state = state
        self.code = code

        self.apis = {api: self._api(api) for api in topology.Api}
        self.access_logs = {
            topology.Api.INGRESS: self._stage(topology.Api.INGRESS, environment.ingress_throttle),
            topology.Api.OPERATOR: self._stage(
                topology.Api.OPERATOR, environment.operator_throttle
            ),
        }
        self.layers = {
            name: self._layer(name)
            for name in sorted({layer for f in topology.FUNCTIONS for layer in f.layers})
        }
        self.logs: dict[str, logs.LogGroup] = {}
        self.functions = {f.name: self._function(f) for f in topology.FUNCTIONS}
        self._routes()
        for function in topology.FUNCTIONS:
            self._queues(function)
            self._schedule(function)
        alarms.add(self)

        CfnOutput(self, "IngressUrl", value=self.ingress_url)
        CfnOutput(self, "OperatorUrl", value=self.apis[topology.Api.OPERATOR].api_endpoint)
        CfnOutput(
            self, "BootstrapFunction", value=self.functions["operator_bootstrap"].function_name
        )

    @property
    def ingress_url(self) -> str:
        """Where third parties post."""
        return f"{self.apis[topology.Api.INGRESS].api_endpoint}/generic/events"

    def _api(self, api: topology.Api) -> apigateway.HttpApi:
        return apigateway.HttpApi(
            self,
            f"{api.title()}Api",
            api_name=f"{self.environment_settings.prefix}-{api}",
            create_default_stage=False,
        )

    def _log_group(self, construct_id: str, name: str) -> logs.LogGroup:
        """A group whose name ends as this very stack's id does: one that is kept when the stack
        goes, or its first deployment fails, is not in the way of the next."""
        made = Fn.select(0, Fn.split("-", Fn.select(2, Fn.split("/", self.stack_id))))
        return logs.LogGroup(
            self,
            construct_id,
            log_group_name=f"{name}-{made}",
            retention=_retention(self.environment_settings.logs_kept_days),
            encryption_key=self.state.operations_key,
            removal_policy=RemovalPolicy.RETAIN
            if self.environment_settings.keep_data
            else RemovalPolicy.DESTROY,
        )

    def _stage(self, api: topology.Api, throttle: Throttle) -> logs.LogGroup:
        """The stage with its own throttle: a flood at one gateway leaves the other standing."""
        group = self._log_group(
            f"{api.title()}AccessLog",
            f"/aws/vendedlogs/mesh/{self.environment_settings.name}/{api}-access",
        )
        apigateway.CfnStage(
            self,
            f"{api.title()}Stage",
            api_id=self.apis[api].api_id,
            stage_name="$default",
            auto_deploy=True,
            default_route_settings=apigateway.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=throttle.per_second,
                throttling_burst_limit=throttle.burst,
                detailed_metrics_enabled=True,
            ),
            access_log_settings=apigateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=group.log_group_arn, format=json.dumps(ACCESS_LOG_FIELDS)
            ),
        )
        return group

    def _layer(self, name: str) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            f"{name.title()}Layer",
            layer_version_name=f"{self.environment_settings.prefix}-{name}",
            code=lambda_.Code.from_asset(str(self.code.layer(name)), exclude=NOT_SHIPPED),
            compatible_runtimes=[lambda_.Runtime.PYTHON_3_13],
            compatible_architectures=[lambda_.Architecture.ARM_64],
        )

    def _function(self, function: topology.Function) -> lambda_.Function:
        environment = self.environment_settings
        construct_id = _title(function.name)
        group = self._log_group(
            f"{construct_id}Log", f"/aws/lambda/{environment.prefix}-{function.name}"
        )
        self.logs[function.name] = group
        role = iam.Role(
            self,
            f"{construct_id}Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            inline_policies={
                "mesh": iam.PolicyDocument(
                    statements=[
                        iam.PolicyStatement(
                            sid="WriteItsOwnLog",
                            actions=["logs:CreateLogStream", "logs:PutLogEvents"],
                            resources=[group.log_group_arn],
                        ),
                        *grants.statements(function, self.state, environment.event_bus),
                    ]
                )
            },
        )
        return lambda_.Function(
            self,
            construct_id,
            function_name=f"{environment.prefix}-{function.name}",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            code=lambda_.Code.from_asset(
                str(self.code.function(function.name)), exclude=NOT_SHIPPED
            ),
            handler=HANDLER,
            layers=[self.layers[name] for name in function.layers],
            role=role,
            timeout=Duration.seconds(function.timeout_s),
            memory_size=function.memory_mb,
            reserved_concurrent_executions=self._set_aside(function),
            recursive_loop=lambda_.RecursiveLoop.ALLOW if function.rings_itself else None,
            tracing=lambda_.Tracing.ACTIVE,
            log_group=group,
            logging_format=lambda_.LoggingFormat.JSON,
            environment=self._environment(function),
        )

    def _set_aside(self, function: topology.Function) -> int | None:
        """Executions that are its own; none at all is what keeps a function from running."""
        environment = self.environment_settings
        if not self._works(function):
            return 0
        if not function.reserved_concurrency:
            return None
        return environment.reserved_concurrency.get(function.name, environment.reserved_default)

    def _works(self, function: topology.Function) -> bool:
        """Whether the function runs: in standby only what operators ask for does."""
        asked = any(route.api is topology.Api.OPERATOR for route in function.routes)
        alone = not (function.routes or function.queues or function.schedule_minutes)
        chores = "chores" in function.queues
        return not self.environment_settings.standby or asked or alone or chores

    def _environment(self, function: topology.Function) -> dict[str, str]:
        """What `mesh.kernel.settings.Settings` reads. Nothing in it is secret."""
        environment = self.environment_settings
        return {
            "MESH_ENVIRONMENT": environment.name,
            "MESH_TABLE": self.state.table.table_name,
            "MESH_SECRETS_KEY": self.state.secrets_key.key_arn,
            "MESH_INGRESS_URL": self.ingress_url,
            "MESH_OWN_HOSTS": ",".join(
                f"{api.api_id}.execute-api.{self.region}.amazonaws.com"
                for api in self.apis.values()
            ),
            "MESH_MESSAGES_KEPT_DAYS": str(environment.messages_kept_days),
            "MESH_ATTEMPTS_KEPT_DAYS": str(environment.attempts_kept_days),
            "MESH_AUDIT_KEPT_DAYS": str(environment.audit_kept_days),
            **({"MESH_EVENT_BUS": environment.event_bus} if function.tells else {}),
            **{
                f"MESH_QUEUE_URL_{name.upper()}": queue.queue_url
                for name, queue in self.state.queues.items()
            },
        }

    def _routes(self) -> None:
        """Each route to its function. The operator API's ask the authorizer, which never denies."""
        authorizer = authorizers.HttpLambdaAuthorizer(
            "Authorizer",
            self.functions[topology.AUTHORIZER],
            authorizer_name=topology.AUTHORIZER,
            # A request without a token must reach Mesh's own 401, so the gateway demands no header
            # and keeps no answer.
            identity_source=[],
            results_cache_ttl=Duration.seconds(0),
            response_types=[authorizers.HttpLambdaResponseType.SIMPLE],
        )
        for function in topology.FUNCTIONS:
            integration = integrations.HttpLambdaIntegration(
                f"{_title(function.name)}Integration", self.functions[function.name]
            )
            for route in function.routes:
                asks = route.api is topology.Api.OPERATOR and route.path not in UNPROVEN_ROUTES
                self.apis[route.api].add_routes(
                    path=route.path,
                    methods=[apigateway.HttpMethod[route.method]],
                    integration=integration,
                    authorizer=authorizer if asks else None,
                )

    def _queues(self, function: topology.Function) -> None:
        for name in function.queues:
            self.functions[function.name].add_event_source(
                sources.SqsEventSource(
                    self.state.queues[name],
                    batch_size=1,
                    report_batch_item_failures=True,
                    max_concurrency=self.environment_settings.worker_concurrency[name],
                    enabled=self._works(function),
                )
            )

    def _schedule(self, function: topology.Function) -> None:
        """A tick that is missed is not made up for: the next one sees the same rows."""
        if function.schedule_minutes is None:
            return
        target = self.functions[function.name]
        role = iam.Role(
            self,
            f"{_title(function.name)}ScheduleRole",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            ),
            inline_policies={
                "tick": iam.PolicyDocument(
                    statements=[
                        iam.PolicyStatement(
                            actions=["lambda:InvokeFunction"], resources=[target.function_arn]
                        )
                    ]
                )
            },
        )
        minutes = function.schedule_minutes
        scheduler.CfnSchedule(
            self,
            f"{_title(function.name)}Schedule",
            name=f"{self.environment_settings.prefix}-{function.name}",
            state="ENABLED" if self._works(function) else "DISABLED",
            schedule_expression=f"rate({minutes} minute{'s' if minutes > 1 else ''})",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=target.function_arn,
                role_arn=role.role_arn,
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_retry_attempts=0, maximum_event_age_in_seconds=60
                ),
            ),
        )


def _title(name: str) -> str:
    """`turn_worker` as CloudFormation names things: `TurnWorker`."""
    return "".join(part.title() for part in name.split("_"))


def _retention(days: int) -> logs.RetentionDays:
    """CloudWatch keeps logs for certain spans only. Raises KeyError for any other."""
    return {
        14: logs.RetentionDays.TWO_WEEKS,
        30: logs.RetentionDays.ONE_MONTH,
        90: logs.RetentionDays.THREE_MONTHS,
        180: logs.RetentionDays.SIX_MONTHS,
    }[days]
