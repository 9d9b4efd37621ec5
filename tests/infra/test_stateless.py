"""What runs: functions, their layers and triggers, the two gateways, the alarms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra import topology
from infra.settings import Environment
from infra.stacks.stateless import UNPROVEN_ROUTES
from mesh.kernel.metrics import NAMESPACE, EmfMetrics, Metric
from mesh.kernel.settings import Settings
from tests.infra.reading import Reading, listed


def test_every_function_of_the_topology_is_made_and_no_other(reading: Reading) -> None:
    names = {f["FunctionName"] for f in reading.resources("AWS::Lambda::Function").values()}
    assert names == {f"mesh-{reading.name}-{f.name}" for f in topology.FUNCTIONS}


@pytest.mark.parametrize("function", topology.FUNCTIONS, ids=lambda f: f.name)
def test_a_function_has_the_size_time_and_layers_of_the_topology(
    reading: Reading, function: topology.Function
) -> None:
    made = reading.function(function)
    assert made["Runtime"] == "python3.13"
    assert made["Architectures"] == ["arm64"]
    assert made["Timeout"] == function.timeout_s
    assert made["MemorySize"] == function.memory_mb
    assert made["TracingConfig"] == {"Mode": "Active"}
    versions = reading.resources("AWS::Lambda::LayerVersion")
    names = [versions[layer["Ref"]]["LayerName"] for layer in made["Layers"]]
    assert names == [f"mesh-{reading.name}-{layer}" for layer in function.layers]


@pytest.mark.parametrize("function", topology.FUNCTIONS, ids=lambda f: f.name)
def test_a_function_can_read_its_settings_from_what_it_is_given(
    reading: Reading, function: topology.Function
) -> None:
    given = reading.variables(function)
    read = {f"MESH_{name.upper()}" for name in Settings.__struct_fields__}
    assert {v for v in given if not v.startswith("MESH_QUEUE_URL_")} <= read, "nobody reads these"
    settings = Settings.from_environment(given)
    assert settings.environment == reading.name
    assert set(settings.queue_urls) == {queue.name for queue in topology.QUEUES}
    assert len(settings.own_hosts) == len(topology.Api)


def test_concurrency_is_set_aside_where_the_topology_says(
    reading: Reading, known: dict[str, Environment]
) -> None:
    aside = {
        f.name: reading.function(f).get("ReservedConcurrentExecutions") for f in topology.FUNCTIONS
    }
    assert {name for name, share in aside.items() if share} == {
        f.name for f in topology.FUNCTIONS if f.reserved_concurrency
    }
    assert sum(share or 0 for share in aside.values()) < 900, "an account begins with 1,000"
    assert set(known[reading.name].reserved_concurrency) <= set(aside)


def test_loop_detection_is_off_for_functions_that_ring_themselves_alone(reading: Reading) -> None:
    for function in topology.FUNCTIONS:
        loop = reading.function(function).get("RecursiveLoop")
        assert loop == ("Allow" if function.rings_itself else None)


def test_workers_take_one_message_at_a_time_and_report_failures_by_item(
    reading: Reading, known: dict[str, Environment]
) -> None:
    mappings = list(reading.resources("AWS::Lambda::EventSourceMapping").values())
    assert len(mappings) == sum(len(f.queues) for f in topology.FUNCTIONS)
    for mapping in mappings:
        assert mapping["BatchSize"] == 1
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert sorted(m["ScalingConfig"]["MaximumConcurrency"] for m in mappings) == sorted(
        known[reading.name].worker_concurrency[queue]
        for f in topology.FUNCTIONS
        for queue in f.queues
    )


def test_the_sweep_ticks_by_the_topology_and_may_be_invoked_by_its_schedule_alone(
    reading: Reading,
) -> None:
    schedules = reading.resources("AWS::Scheduler::Schedule")
    swept = [f for f in topology.FUNCTIONS if f.schedule_minutes]
    assert len(schedules) == len(swept) == 1
    (schedule,) = schedules.values()
    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    role_id = schedule["Target"]["RoleArn"]["Fn::GetAtt"][0]
    (policy,) = reading.resources("AWS::IAM::Role")[role_id]["Policies"]
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert statement["Resource"] == {"Fn::GetAtt": [reading.logical_id(swept[0]), "Arn"]}


def test_every_route_leads_to_the_function_of_the_topology(reading: Reading) -> None:
    routes = reading.resources("AWS::ApiGatewayV2::Route").values()
    told = {(_api(reading, route), route["RouteKey"]): _target(reading, route) for route in routes}
    assert told == {
        (f"mesh-{reading.name}-{route.api}", f"{route.method} {route.path}"): reading.logical_id(f)
        for f in topology.FUNCTIONS
        for route in f.routes
    }


def test_no_two_functions_claim_one_route() -> None:
    routes = [route for f in topology.FUNCTIONS for route in f.routes]
    assert len(routes) == len(set(routes))


def test_operator_routes_ask_an_authorizer_that_demands_no_header_and_keeps_no_answer(
    reading: Reading,
) -> None:
    (authorizer,) = reading.resources("AWS::ApiGatewayV2::Authorizer").values()
    assert authorizer["AuthorizerType"] == "REQUEST"
    assert authorizer["AuthorizerResultTtlInSeconds"] == 0
    assert authorizer["EnableSimpleResponses"] is True
    assert not authorizer.get("IdentitySource")
    for route in reading.resources("AWS::ApiGatewayV2::Route").values():
        path = route["RouteKey"].split()[1]
        operator = _api(reading, route) == f"mesh-{reading.name}-{topology.Api.OPERATOR}"
        asks = route.get("AuthorizationType") == "CUSTOM"
        assert asks == (operator and path not in UNPROVEN_ROUTES)


def test_each_gateway_has_a_throttle_and_an_access_log_of_its_own(
    reading: Reading, known: dict[str, Environment]
) -> None:
    stages = reading.resources("AWS::ApiGatewayV2::Stage").values()
    settings = known[reading.name]
    assert sorted(s["DefaultRouteSettings"]["ThrottlingRateLimit"] for s in stages) == sorted(
        [settings.ingress_throttle.per_second, settings.operator_throttle.per_second]
    )
    logs = {json.dumps(s["AccessLogSettings"]["DestinationArn"]) for s in stages}
    assert len(logs) == len(topology.Api)


def test_access_logs_hold_no_header_path_or_body(reading: Reading) -> None:
    for stage in reading.resources("AWS::ApiGatewayV2::Stage").values():
        kept = json.loads(stage["AccessLogSettings"]["Format"]).values()
        assert not [v for v in kept if "header" in v.lower() or v == "$context.path"]


def test_logs_are_sealed_and_end(reading: Reading, known: dict[str, Environment]) -> None:
    groups = reading.resources("AWS::Logs::LogGroup").values()
    assert len(groups) == len(topology.FUNCTIONS) + len(topology.Api)
    for group in groups:
        assert group["KmsKeyId"]
        assert group["RetentionInDays"] == known[reading.name].logs_kept_days


def test_logs_that_are_kept_are_not_in_the_way_of_the_stack_made_again(reading: Reading) -> None:
    names = [g["LogGroupName"] for g in reading.resources("AWS::Logs::LogGroup").values()]
    for name in names:
        assert "AWS::StackId" in json.dumps(name)
    assert len({json.dumps(name) for name in names}) == len(names)


def test_every_alarm_tells_the_topic_and_says_what_to_do(reading: Reading) -> None:
    for alarm in reading.resources("AWS::CloudWatch::Alarm").values():
        assert alarm["AlarmActions"]
        assert len(alarm["AlarmDescription"]) > 20


def test_dead_letters_errors_and_throttles_are_watched_everywhere(reading: Reading) -> None:
    named = {a["AlarmName"] for a in reading.resources("AWS::CloudWatch::Alarm").values()}
    prefix = f"mesh-{reading.name}"
    assert {f"{prefix}-{q.name}-dead" for q in topology.QUEUES} <= named
    for function in topology.FUNCTIONS:
        assert {f"{prefix}-{function.name}-errors", f"{prefix}-{function.name}-throttles"} <= named


def test_alarms_watch_rows_and_a_sweep_that_stopped(reading: Reading) -> None:
    watched = {
        a["MetricName"]: a
        for a in reading.resources("AWS::CloudWatch::Alarm").values()
        if "MetricName" in a
    }
    for metric in Metric:
        assert watched[metric.value]["Namespace"] == NAMESPACE
    heartbeat = watched[Metric.SWEEP_HEARTBEAT.value]
    assert heartbeat["TreatMissingData"] == "breaching"
    assert heartbeat["ComparisonOperator"] == "LessThanThreshold"


def test_alarms_name_figures_as_the_sweep_emits_them(
    reading: Reading, capsys: pytest.CaptureFixture[str]
) -> None:
    EmfMetrics(reading.name)(dict.fromkeys(Metric, 1.0))
    emitted = json.loads(capsys.readouterr().out)
    (directive,) = emitted["_aws"]["CloudWatchMetrics"]
    (dimensions,) = directive["Dimensions"]
    told = {
        (directive["Namespace"], metric["Name"], tuple((d, emitted[d]) for d in dimensions))
        for metric in directive["Metrics"]
    }
    watched = {
        (
            alarm["Namespace"],
            alarm["MetricName"],
            tuple((d["Name"], d["Value"]) for d in alarm.get("Dimensions", [])),
        )
        for alarm in reading.resources("AWS::CloudWatch::Alarm").values()
        if alarm.get("Namespace") == NAMESPACE
    }
    assert told == watched


def test_no_function_has_a_public_url_and_the_bootstrap_has_no_route(reading: Reading) -> None:
    assert not reading.resources("AWS::Lambda::Url")
    assert not topology.function("operator_bootstrap").routes


def test_environments_differ_in_figures_alone(assembly: Any) -> None:
    def shape(name: str) -> dict[str, int]:
        template = assembly.get_stack_by_name(f"mesh-{name}-stateless").template
        kinds: dict[str, int] = {}
        for resource in template["Resources"].values():
            kinds[resource["Type"]] = kinds.get(resource["Type"], 0) + 1
        return kinds

    assert shape("dev") == shape("staging") == shape("prod")


def test_no_template_holds_a_secret(assembly: Any) -> None:
    for stack in assembly.stacks:
        text = json.dumps(stack.template)
        assert "whsec_" not in text
        assert "AWS::SecretsManager" not in text


def _api(reading: Reading, route: dict[str, Any]) -> str:
    api: str = reading.resources("AWS::ApiGatewayV2::Api")[route["ApiId"]["Ref"]]["Name"]
    return api


def _target(reading: Reading, route: dict[str, Any]) -> str:
    integration_id = route["Target"]["Fn::Join"][1][1]["Ref"]
    integration = reading.resources("AWS::ApiGatewayV2::Integration")[integration_id]
    function: str = listed(integration["IntegrationUri"]["Fn::GetAtt"])[0]
    return function
