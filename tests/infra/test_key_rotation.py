"""A second master key wraps from then on, and the first one still opens what it has wrapped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra import stacks, topology  # noqa: F401  # stacks names the Node that jsii starts
from infra.settings import environments
from tests.infra.conftest import StandInCode
from tests.infra.reading import Reading, listed, text


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    """The templates of `dev` once it has had two master keys."""
    from aws_cdk import App

    from infra import app

    made = App(outdir=str(tmp_path_factory.mktemp("cdk.out")), analytics_reporting=False)
    two = replace(environments({})["dev"], secrets_keys=2)
    app.add(made, two, StandInCode(tmp_path_factory.mktemp("code")))
    return Reading.of(made.synth(), "dev")


def test_the_first_key_stays_as_it_was_beside_the_second(reading: Reading) -> None:
    aliases = {
        alias["AliasName"]: alias["TargetKeyId"]["Fn::GetAtt"][0]
        for alias in reading.resources("AWS::KMS::Alias", stateful=True).values()
    }
    assert aliases["alias/mesh-dev-secrets"].startswith("SecretsKey")
    assert not aliases["alias/mesh-dev-secrets"].startswith("SecretsKey2")
    assert aliases["alias/mesh-dev-secrets-2"].startswith("SecretsKey2")
    for name in aliases.values():
        assert reading.stateful[name]["DeletionPolicy"] == "Retain"


def test_functions_wrap_with_the_second_alone_and_open_with_both(reading: Reading) -> None:
    for function in topology.FUNCTIONS:
        assert "SecretsKey2" in reading.variables(function)["MESH_SECRETS_KEY"]
        for statement in reading.statements(function):
            keys = [text(resource) for resource in listed(statement["Resource"])]
            if statement.get("Sid") in ("WrapSecrets", "WrapValues"):
                assert len(keys) == 1
                assert "SecretsKey2" in keys[0]
            elif statement.get("Sid") in ("OpenSecrets", "OpenValues"):
                assert len(keys) == 2
                assert sum("SecretsKey2" in key for key in keys) == 1


def test_taking_either_away_is_told(reading: Reading) -> None:
    (rule,) = reading.resources("AWS::Events::Rule", stateful=True).values()
    assert len(rule["EventPattern"]["detail"]["resources"]["ARN"]) == 4
