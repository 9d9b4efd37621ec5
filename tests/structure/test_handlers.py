"""Handlers are thin, start with nothing in their environment, and load what their layers carry."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from infra import layers, topology

FUNCTIONS = layers.ROOT / "functions"
LINES_MAX = 30

BY_RUNTIME = frozenset(
    {"botocore", "jmespath", "python-dateutil", "six", "urllib3", "certifi", "s3transfer"}
)
"""What Lambda's Python brings, and what botocore takes along where it finds it."""

NEVER = frozenset(
    {"boto3", "click", "rich", "httpx", "mcp", "pyppeteer", "moto", "werkzeug", "infra", "tests"}
)
"""Too slow to start with, or no part of a function at all."""

LEAN = NEVER | {
    "pydantic",
    "h11",
    "idna",
    "regex",
    "aws_lambda_powertools.event_handler",
    "aws_lambda_powertools.utilities.batch",
    "mesh.engine",
    "mesh.outbox",
    "mesh.sweeps",
    "mesh.operator",
    "mesh.models",
    "mesh.tools",
    "mesh.security.egress",
}
"""What stands between a third party and its acknowledgement, if the ingress function loads it."""

MAY_NOT_LOAD = {"generic_ingress": LEAN, "operator_authorizer": NEVER | {"pydantic"}}

EVERY = pytest.mark.parametrize("name", [f.name for f in topology.FUNCTIONS])


SETTINGS = {
    "MESH_ENVIRONMENT": "test",
    "MESH_TABLE": "table",
    "MESH_SECRETS_KEY": "key",
    "MESH_INGRESS_URL": "https://mesh.example/generic/events",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    **{f"MESH_QUEUE_URL_{q.name.upper()}": f"https://sqs/{q.name}" for q in topology.QUEUES},
}

START = """
import json, os, sys
before = set(sys.modules)
import handler
assert callable(handler.handler)
os.environ.update(json.loads(sys.argv[2]))
from mesh import app
from mesh.kernel.settings import Settings
app.build(sys.argv[1], app.Ports(Settings.from_environment()))
print(json.dumps(sorted(set(sys.modules) - before)))
"""
"""Imports the handler with nothing in the environment, then builds the function as Lambda would."""


ONLY_THE_LAYER = {"PYTHONPATH": str(layers.ROOT / "layers" / "mesh" / "python")}
"""The environment of those processes: nothing, but this tree's code before an installed one."""


@cache
def loaded(name: str) -> frozenset[str]:
    """The modules that importing and building the function loads, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", START, name, json.dumps(SETTINGS)],
        cwd=FUNCTIONS / name,
        env=ONLY_THE_LAYER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return frozenset(json.loads(done.stdout))


def test_there_is_a_folder_for_each_function_of_the_topology_and_no_other() -> None:
    folders = {file.parent.name for file in FUNCTIONS.glob("*/handler.py")}
    assert folders == {f.name for f in topology.FUNCTIONS}


@EVERY
def test_a_handler_is_thin(name: str) -> None:
    assert len((FUNCTIONS / name / "handler.py").read_text().splitlines()) <= LINES_MAX


@EVERY
def test_a_handler_imports_with_an_empty_environment_and_no_aws(name: str) -> None:
    assert "handler" in loaded(name)


@EVERY
@pytest.mark.behaviour("ingress:ack-3s")
def test_a_function_loads_nothing_that_would_slow_its_start(name: str) -> None:
    forbidden = MAY_NOT_LOAD.get(name, NEVER)
    found = {
        module
        for module in loaded(name)
        if any(module == f or module.startswith(f"{f}.") for f in forbidden)
    }
    assert sorted(found) == []


@EVERY
def test_a_function_loads_only_packages_that_its_layers_or_the_runtime_carry(name: str) -> None:
    carried = set(BY_RUNTIME)
    for layer in topology.function(name).layers:
        if layer != layers.SHARED_LAYER:
            carried |= _packages(layers.lock_of(layer))
    providers = importlib.metadata.packages_distributions()
    used = {
        _normal(provider)
        for module in {m.partition(".")[0] for m in loaded(name)}
        for provider in providers.get(module, [])
    }
    assert sorted(used - carried - {"mesh"}) == []


IMPORTED = """
import importlib, json, sys
before = set(sys.modules)
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - before)))
"""

WAY_OUT = frozenset({"h11", "idna", "ssl", "mesh.security", "botocore", "mesh.storage"})
OTHERS = frozenset({"mesh.models.anthropic", "mesh.models.openai", "mesh.models.bedrock"})


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("mesh.models.contract", WAY_OUT | OTHERS),
        ("mesh.models.offline", WAY_OUT | OTHERS),
        ("mesh.models.anthropic", {"botocore", "mesh.storage"} | OTHERS),
        ("mesh.models.openai", {"botocore", "mesh.storage"} | OTHERS),
        ("mesh.models.bedrock", {"h11", "mesh.security"} | OTHERS),
    ],
)
def test_a_model_connector_loads_its_own_way_to_its_api_alone(
    module: str, forbidden: frozenset[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, module],
        env=ONLY_THE_LAYER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {
        name
        for name in json.loads(done.stdout)
        if any(name == f or name.startswith(f"{f}.") for f in forbidden | NEVER | {"regex"})
    }
    assert sorted(found - {module}) == []


def _packages(lock: Path) -> set[str]:
    return {
        _normal(m[1]) for m in re.finditer(r"^([A-Za-z0-9._-]+)==", lock.read_text(), re.MULTILINE)
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_layer_of_the_topology_can_be_built() -> None:
    named = {layer for function in topology.FUNCTIONS for layer in function.layers}
    assert named == {layers.SHARED_LAYER, *layers.DEPENDENCY_LAYERS}
    for layer in layers.DEPENDENCY_LAYERS:
        assert _packages(layers.lock_of(layer))
