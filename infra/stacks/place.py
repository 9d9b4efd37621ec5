"""Owns where a stack goes: account and region, always said, so no template depends on a shell."""

from __future__ import annotations

import aws_cdk

from infra.settings import Environment


def of(environment: Environment) -> aws_cdk.Environment:
    """The environment as CDK names it."""
    return aws_cdk.Environment(account=environment.account, region=environment.region)
